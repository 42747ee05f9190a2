"""How long queues may stand still, by the metadata store and by what the cluster was at each moment."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants.literal import apart, cluster, fault, history, load, phases, publish, queues, sample


@pytest.mark.parametrize(
    ("of_cluster", "kind", "bound_s"),
    [
        ({"version": "3.10.8"}, "quorum", 20),
        ({"version": "3.10.8"}, "mirrored", 20),
        ({"version": "4.3.6"}, "quorum", 20),
        ({"version": "4.0.5", "net_ticktime_s": 60}, "quorum", 90),
        ({"version": "4.0.5", "net_ticktime_s": 60, "khepri": True}, "quorum", 25),
        ({"version": "4.3.6", "net_ticktime_s": 60}, "quorum", 25),
        ({"version": "4.3.6", "net_ticktime_s": 60, "detector_poll_s": 1.0}, "quorum", 17),
        ({"version": "4.3.6", "net_ticktime_s": 60}, "classic", 90),
    ],
)
def test_quorum_queues_elect_by_the_detector_of_raft(of_cluster: dict[str, Any], kind: str, bound_s: float) -> None:
    facts = Facts([cluster(**of_cluster), queues("q1", kind=kind)])
    assert facts.cluster is not None
    assert Availability().bound_of_s(facts, facts.cluster) == bound_s
    assert Availability(stall_s_max=3).bound_of_s(facts, facts.cluster) == 3


@pytest.mark.parametrize(
    ("of_cluster", "confirm_timeout_s", "bound_s"),
    [
        ({"version": "4.3.6", "nodes": 3}, None, 20),
        ({"version": "4.3.6", "nodes": 5}, None, 30),
        ({"version": "4.3.6", "nodes": 7}, None, 40),
        ({"version": "4.3.6", "nodes": 7}, 5.0, 25),
        ({"version": "4.3.6", "nodes": 3}, 1.0, 20),
        ({"version": "4.3.6", "nodes": 3}, 60.0, 70),
        ({"version": "3.10.8", "nodes": 7}, 60.0, 70),
        ({"version": "4.0.5", "nodes": 7}, None, 40),
        ({"version": "3.10.8", "nodes": 7}, None, 20),
        ({"version": "4.0.5", "nodes": 7, "mode": "autoheal"}, None, 40),
        ({"version": "4.0.5", "nodes": 7, "khepri": True}, None, 40),
    ],
)
def test_publishers_may_try_each_node_of_a_minority_that_does_not_pause(
    of_cluster: dict[str, Any], confirm_timeout_s: float | None, bound_s: float
) -> None:
    """In 7 nodes a zone of three was cut off on 4.3.6: a publisher spent 10 s at each of them, 30.5 s in all."""
    nodes = [f"n{number}" for number in range(of_cluster["nodes"])]
    loaded = load(10, 10, confirm_timeout_s=confirm_timeout_s)
    facts = Facts([cluster(**{**of_cluster, "nodes": nodes}), queues("q1", members=nodes), loaded])
    assert facts.cluster is not None
    assert Availability().bound_of_s(facts, facts.cluster) == bound_s
    awaited_s = Availability(grace_s=7).last_confirms_s(
        net_ticktime_s=facts.cluster.net_ticktime_s, confirm_timeout_s=confirm_timeout_s or 10, nodes=len(nodes)
    )
    assert awaited_s >= bound_s + 7, "a queue that may still confirm is taken for a stuck one"


def test_a_cluster_that_is_upgraded_may_take_as_long_as_before() -> None:
    upgrade = fault(30, 40, name="upgrade", down=["a1"], becomes="4.3.6")
    facts = Facts([cluster(version="4.2.9", net_ticktime_s=60), queues("q1"), *phases(), *upgrade])
    assert facts.cluster is not None
    assert Availability().bound_of_s(facts, facts.cluster) == 90


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ([], Verdict.VALID),
        (fault(5, 15, step=1, operation=True, becomes="khepri_db"), Verdict.INVALID),
        (fault(5, 60, step=1, operation=True, becomes="khepri_db"), Verdict.VALID),
    ],
)
def test_a_minority_goes_on_serving_what_is_there_once_metadata_is_in_khepri(
    changed: list[Event], verdict: Verdict
) -> None:
    """The only copy of the queue is on a1, which pauses with Mnesia, and confirms nothing from 20 to 50 s."""
    events = [cluster(version="4.0.5"), queues("q1", kind="classic", members=["a1"]), phases()]
    cut = fault(20, 50, cut=apart(["a1"], ["b1", "c1"]))
    stall = [publish(n, n / 10) for n in range(900) if not 200 <= n < 505]
    found = Availability(stall_s_max=15, grace_s=5).check(history(stall, (), [*events, cut, changed]))
    assert found.verdict is verdict


FIRST_LINK = apart(["b1"], ["c1"])


@pytest.mark.parametrize(
    ("version", "members", "leads", "verdict"),
    [
        ("4.3.6", ["a1", "a2", "b2"], "", Verdict.INVALID),  # all copies are on nodes that see all others
        ("3.10.8", ["a1", "a2", "b2"], "", Verdict.VALID),  # any node may pause
        ("4.3.6", ["a1", "a2", "b1"], "", Verdict.VALID),  # b1 may lead it, and is not reached from c1
        ("4.3.6", ["a1", "a2", "b1"], "a2", Verdict.INVALID),
        ("4.3.6", ["a1", "b1", "c1"], "a1", Verdict.INVALID),
        ("4.3.6", ["a1", "b1", "c1"], "b1", Verdict.VALID),
    ],
)
def test_one_link_excuses_the_queues_that_it_concerns(
    version: str, members: list[str], leads: str, verdict: Verdict
) -> None:
    """The link between b1 and c1 is cut from 20 to 50 s, and nothing is confirmed from 22 to 48 s."""
    nodes = ("a1", "a2", "b1", "b2", "c1")
    samples = [sample(at_s, leader=leads) for at_s in range(95) if leads]
    stall = [publish(n, n / 10) for n in range(900) if not 220 <= n < 480]
    events = [cluster(nodes, version=version), queues("q1", members=members), phases(), fault(20, 50, cut=FIRST_LINK)]
    found = Availability(stall_s_max=15, grace_s=5).check(history(stall, (), [*events, samples]))
    assert found.verdict is verdict


def test_a_leader_is_not_known_between_looks_that_lie_far_apart() -> None:
    samples = [sample(at_s, leader="a1") for at_s in (1, 15, 55, 90)]
    stall = [publish(n, n / 10) for n in range(900) if not 220 <= n < 480]
    events = [cluster(version="4.3.6"), queues("q1"), phases(), fault(20, 50, cut=FIRST_LINK), samples]
    assert Availability(stall_s_max=15, grace_s=5).check(history(stall, (), events)).verdict is Verdict.VALID
