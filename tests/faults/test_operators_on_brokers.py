"""Lost disks, alarms, purges, drained stops and rebalancing on real brokers: proven where they act, and only there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.nemesis.alarm import Alarm
from rabbitmq_resilience.nemesis.conditions import AfterStep, NodeIs, NotCritical, When
from rabbitmq_resilience.nemesis.delete_queue import DeleteQueue
from rabbitmq_resilience.nemesis.enable_feature_flag import EnableFeatureFlag
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.lose_disk import LoseDisk
from rabbitmq_resilience.nemesis.nemesis import Nemesis
from rabbitmq_resilience.nemesis.purge_queue import PurgeQueue
from rabbitmq_resilience.nemesis.rebalance import Rebalance
from rabbitmq_resilience.nemesis.set_policy import PolicyInjection, SetPolicy
from rabbitmq_resilience.nemesis.stop import Stop
from rabbitmq_resilience.sut.broker.management import ManagementApi
from rabbitmq_resilience.sut.observer import Observer
from rabbitmq_resilience.sut.pool import unfit_reason
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.distributions import find_broker
from rabbitmq_resilience.tools.homes import TRIXIE
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.queues import declare
from rabbitmq_resilience.workload.workload_model import Workload
from tests.whole import await_whole

pytestmark = pytest.mark.core

THREE = topology_catalogue.load("three_nodes_three_zones")
PROVEN = ["injecting", "injected", "proven", "healing", "healed", "heal_proven"]


@pytest.fixture(scope="module")
def formed() -> Iterator[LocalCluster]:
    with LocalCluster.form(THREE) as cluster:
        declare(cluster, Workload(queues=3), vhost="operators")
        yield cluster


@pytest.fixture
def play(formed: LocalCluster) -> Iterator[Callable[..., Mapping[int, list[dict[str, Any]]]]]:
    """Plays steps without load; what was journalled of each."""
    await_whole(formed)
    unused: Any = SimpleNamespace(vhost="operators")
    with Observer(formed, "operators", lambda *_, **__: None) as observer:

        def played(*steps: AnyFault) -> Mapping[int, list[dict[str, Any]]]:
            journal: dict[int, list[dict[str, Any]]] = {i: [] for i in range(len(steps))}
            observer.fresh_queues(timeout_s=60)
            patience_s = 240 if any(step.when for step in steps) else 0
            Nemesis(
                steps,
                FaultContext(formed, observer, unused),
                lambda _, **e: journal[e["step"]].append(e),
                seed=1,
                chaos_s=patience_s,
            ).play(lambda: None)
            return journal

        yield played


def states(journal: list[dict[str, Any]]) -> list[str]:
    return [event["state"] for event in journal]


def memory_limit(cluster: LocalCluster, node: str) -> int:
    """As the node tells it, which it does only some seconds after it was formed."""
    rows = wait_until(
        lambda: {row["name"]: row for row in cluster.api(node).nodes()},
        timeout_s=60,
        what=f"{node} to tell its limit of memory",
        until=lambda rows: "mem_limit" in rows.get(cluster.broker_name(node), {}),
    )
    return int(rows[cluster.broker_name(node)]["mem_limit"])


def test_a_node_that_lost_its_disk_joins_again(formed: LocalCluster, play: Any) -> None:
    [journal] = play(LoseDisk(at_s=0, for_s=1, node="follower:q1")).values()
    assert states(journal) == PROVEN, journal
    await_whole(formed)


@pytest.mark.brokers
def test_a_disk_that_is_not_lost_is_not_proven_so(
    formed: LocalCluster, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formed, "lose_data", lambda _: None)
    [journal] = play(LoseDisk(at_s=0, for_s=1, node="c1")).values()
    assert "unproven" in states(journal)


@pytest.mark.parametrize("resource", ["memory", pytest.param("disk", marks=pytest.mark.brokers)])
def test_an_alarm_is_raised_and_cleared(formed: LocalCluster, play: Any, resource: Any) -> None:
    before = memory_limit(formed, "b1")
    [journal] = play(Alarm(at_s=0, for_s=20, node="b1", resource=resource)).values()
    assert states(journal) == PROVEN, journal
    assert journal[0]["effect"].nodes_alarmed == ("b1",)
    assert memory_limit(formed, "b1") == before


@pytest.mark.brokers
def test_an_alarm_that_is_not_raised_is_not_proven(
    formed: LocalCluster, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formed, "run_tool", lambda *_, **__: "")
    [journal] = play(Alarm(at_s=0, for_s=3, node="b1", resource="memory")).values()
    assert "unproven" in states(journal)


def await_ready(cluster: LocalCluster, queue: str, count: int) -> None:
    wait_until(
        lambda: {row["name"]: row.get("messages_ready") for row in cluster.api("a1").queue_states("operators")},
        timeout_s=60,
        what=f"{count} messages in {queue}",
        until=lambda ready: ready[queue] == count,
    )


def test_a_purge_is_proven_by_what_the_queue_held(formed: LocalCluster, play: Any) -> None:
    message = {"properties": {}, "routing_key": "q2", "payload": "one of seven", "payload_encoding": "string"}
    for _ in range(7):
        formed.api("a1").post("exchanges/operators/amq.default/publish", message)
    await_ready(formed, "q2", 7)
    [journal] = play(PurgeQueue(at_s=0, for_s=15, queue="q2")).values()
    assert states(journal) == PROVEN, journal
    assert "7 messages" in journal[2]["detail"]
    assert "q2" in journal[2]["detail"]
    await_ready(formed, "q2", 0)


@pytest.mark.brokers
def test_a_purge_of_nothing_is_not_proven(play: Any) -> None:
    [journal] = play(PurgeQueue(at_s=0, for_s=2, queue="q3")).values()
    assert "unproven" in states(journal)
    assert "nothing to purge" in next(e["detail"] for e in journal if e["state"] == "unproven")


def test_a_deleted_queue_is_declared_again_as_it_was(formed: LocalCluster, play: Any) -> None:
    def declared() -> Any:
        return {queue["name"]: queue for queue in formed.api("b1").definitions("operators")["queues"]}

    before = declared()
    [journal] = play(DeleteQueue(at_s=0, for_s=5, queue="q3")).values()
    assert states(journal) == PROVEN, journal
    assert declared() == before


@pytest.mark.brokers
def test_a_queue_that_is_not_deleted_is_not_proven_so(
    formed: LocalCluster, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ManagementApi, "delete_queue", lambda *_, **__: None)
    [journal] = play(DeleteQueue(at_s=0, for_s=2, queue="q3")).values()
    assert "unproven" in states(journal)
    assert "q3" in {queue["name"] for queue in formed.api("a1").definitions("operators")["queues"]}


@pytest.mark.brokers
def test_a_rolling_restart_with_new_settings(formed: LocalCluster, play: Any) -> None:
    """Each node goes when the one before is back and no queue depends on it; then leaders are spread."""
    before = {node: memory_limit(formed, node) for node in THREE.node_names}
    settings = {"vm_memory_high_watermark.relative": "0.2"}
    a1, b1, c1 = THREE.node_names
    stop: dict[str, Any] = {"for_s": 1, "drain": True, "configure": settings}
    steps = [Stop(at_s=0, node=a1, **stop)]
    for i, (last, node) in enumerate(((a1, b1), (b1, c1))):
        back = {"node_is": NodeIs(node=last, state="up"), "not_critical": NotCritical(node=node)}
        steps.append(Stop(when=When(after_step=AfterStep(step=i), **back), node=node, **stop))
    all_back = When(after_step=AfterStep(step=2), node_is=NodeIs(node=c1, state="up"))
    journals = play(*steps, Rebalance(when=all_back, for_s=10))

    assert [states(journal) for journal in journals.values()] == [PROVEN] * 4, journals
    await_whole(formed)
    assert all(memory_limit(formed, node) < before[node] for node in THREE.node_names)
    assert formed.reconfigured


def policies(cluster: LocalCluster) -> dict[str, str | None]:
    return {row["name"]: row.get("policy") for row in cluster.api("b1").queue_states("operators")}


def policies_while_set(formed: LocalCluster, play: Any, **fields: Any) -> dict[str, str | None]:
    """Return the policy of each queue during a step that is proven, and is gone after it."""
    seen: list[dict[str, str | None]] = []
    proven = PolicyInjection.prove

    def prove(self: PolicyInjection, *, timeout_s: float) -> Proof:
        found = proven(self, timeout_s=timeout_s)
        seen.append(policies(formed))
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PolicyInjection, "prove", prove)
        step = SetPolicy(**{"at_s": 0, "for_s": 2, "definition": {"delivery-limit": 5}, **fields})
        [journal] = play(step).values()
    assert states(journal) == PROVEN, journal
    assert PolicyInjection.name not in policies(formed).values()
    return seen[0]


def test_a_policy_is_set_on_its_queue_and_removed_again(formed: LocalCluster, play: Any) -> None:
    seen = policies_while_set(formed, play, queue="q2")
    assert [name for name, policy in seen.items() if policy == PolicyInjection.name] == ["q2"]


def test_a_policy_is_set_on_the_queues_of_types_that_have_its_keys(formed: LocalCluster, play: Any) -> None:
    """A queue's name may have characters that mean something in a pattern."""
    api, classic = formed.api("b1"), "q.1+"
    api.declare_queue("operators", classic, arguments={"x-queue-type": "classic"})
    try:
        for_quorum = policies_while_set(formed, play)
        assert (for_quorum["q1"], for_quorum[classic]) == (PolicyInjection.name, None)
        for_one = policies_while_set(formed, play, queue=classic, definition={"max-length": 1000})
        assert (for_one["q1"], for_one[classic]) == (None, PolicyInjection.name)
    finally:
        api.delete_queue("operators", classic)


@pytest.mark.brokers
def test_a_policy_that_the_broker_refuses_is_no_step(play: Any) -> None:
    [journal] = play(SetPolicy(at_s=0, for_s=2, definition={"delivery-limit": "many"})).values()
    assert "did not take the policy" in str(journal)


@pytest.mark.brokers
def test_a_feature_flag_is_enabled_on_all_nodes_for_good() -> None:
    """On 4.0, whose new clusters have their metadata in Mnesia."""
    if not TRIXIE.is_there():
        pytest.skip("the home of 4.0 is not there")
    flag, unused = "khepri_db", SimpleNamespace(vhost="operators")
    with LocalCluster.form(THREE, broker=find_broker(TRIXIE.place())) as cluster:
        assert not any(cluster.api(node).has_feature(flag) for node in THREE.node_names)
        journal: list[dict[str, Any]] = []
        with Observer(cluster, "/", lambda *_, **__: None) as observer:
            step = EnableFeatureFlag(at_s=0, for_s=60, flag=flag)
            context = FaultContext(cluster, observer, cast(Any, unused))
            Nemesis([step], context, lambda _, **e: journal.append(e), seed=1, chaos_s=0).play(lambda: None)
        assert states(journal) == PROVEN, journal
        assert all(cluster.api(node).has_feature(flag) for node in THREE.node_names)
        assert unfit_reason(cluster)


@pytest.mark.brokers
def test_a_topology_may_have_feature_flags_enabled(tmp_path: Path) -> None:
    if not TRIXIE.is_there():
        pytest.skip("the home of 4.0 is not there")
    topology = topology_catalogue.load("one_node").model_copy(update={"enable_feature_flags": ("khepri_db",)})
    with LocalCluster.form(topology, broker=find_broker(TRIXIE.place())) as cluster:
        assert cluster.api("a1").has_feature("khepri_db")
        assert not unfit_reason(cluster)
    unknown = topology.model_copy(update={"enable_feature_flags": ("no_such_flag",)})
    with pytest.raises(ClusterError, match="no_such_flag could not be enabled"):
        LocalCluster.form(unknown, broker=find_broker(TRIXIE.place()), root=tmp_path)
