"""Real runs through a broker that lies about one message of many: the verdict must name that message."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Verdict
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.node_options import NodeOptions
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.runner import run as playing
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.queue_settings import QueueLimits
from rabbitmq_resilience.workload.running_workload import RunningWorkload
from rabbitmq_resilience.workload.workload_model import Workload
from tests.play.lying_broker import LIES
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.plays

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = topology_catalogue.load("three_nodes_three_zones")
#: What is lost is looked for among so many; the other lies show the same among fewer.
MESSAGES, FEWER = 100_000, 10_000
PUBLISHED_WITHIN_S = 400.0

LOAD = Workload(queue_type="classic", rate_per_s=None, in_flight=300, message_bytes=64, prefetch=500, ack_every=100)
#: A queue that is always full refuses most of what it is sent.
FULL = Workload.model_validate(
    dict(LOAD)
    | {"limits": QueueLimits(max_length=20, overflow="reject-publish"), "processing_ms": 5}
    | {"prefetch": 10, "ack_every": 1}
)


@dataclass(frozen=True)
class LyingCluster:
    """The cluster as it is, but for where clients find its brokers. Serves as what a testbed gets its clusters from."""

    cluster: Any
    ports: dict[str, int]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    def amqp_endpoint(self, node: str, *, client: str | None = None) -> Endpoint:  # noqa: ARG002 - the protocol's
        return Endpoint(LOOPBACK, self.ports[node])

    def acquire(
        self,
        topology: Topology,
        proxied: frozenset[Link],
        equipment: NodeOptions,
        *,
        logs_of_failure: Path,  # noqa: ARG002 - the protocol's
    ) -> Any:
        assert (topology, proxied, equipment) == (self.cluster.topology, frozenset(), NodeOptions())
        return self


@contextmanager
def lying(cluster: Any, *arguments: str) -> Iterator[LyingCluster]:
    """The proxy in its own process stands before every broker."""
    names = cluster.topology.node_names
    ports = [str(cluster.amqp_endpoint(name).port) for name in names]
    command = [sys.executable, "-m", "tests.play.lying_broker", *arguments, *ports]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            yield LyingCluster(cluster, dict(zip(names, map(int, proxy.stdout.readline().split()), strict=True)))
            assert proxy.poll() is None, "the proxy ended by itself"
        finally:
            proxy.kill()


@pytest.fixture
def lied_to(
    own_testbed: RunContext, pool: ClusterPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Result, list[dict[str, Any]]]]:
    """Plays a load of so many messages through the proxy; the result, and what the proxy tells of its lies."""

    def played(lie: str, workload: Workload, *when: str, messages: int) -> tuple[Result, list[dict[str, Any]]]:
        def many(load: RunningWorkload, *, seconds_s: float) -> None:  # noqa: ARG001 - as many seconds as it takes
            def published() -> bool:
                load.check()
                return load.progress().published >= messages

            wait_until(published, timeout_s=PUBLISHED_WITHIN_S, what=f"{messages} messages", poll_s=0.2)

        monkeypatch.setattr(playing, "_spend", many)
        told = tmp_path / "told.jsonl"
        told.touch()
        scenario = Scenario(
            title=f"A broker lies: {lie}",
            topology=TOPOLOGY,
            workload=workload,
            phases=Phases(recovery_s=30, drain_s=120),
            invariants=Invariants.model_validate({"no_loss": {}, "order": {}}),
        )
        with lying(pool.acquire(TOPOLOGY), lie, *when, "--told", str(told)) as cluster:
            result = run_validated(scenario, replace(own_testbed, clusters=cluster))
        return result, [json.loads(line) for line in told.read_text().splitlines()]

    return played


def finding(result: Result, name: str) -> dict[str, Any]:
    found: dict[str, Any] = result.document["invariants"][name]
    return found


#: A broker refuses many messages at once, and the lie is counted by those times.
REFUSALS = (50, 200)

#: By which invariant each lie is found, the number that tells it, and the first words of the line.
FOUND = {
    "drop": ("no_loss", "lost", "lost: "),
    "duplicate": ("no_loss", "duplicates_unmarked", "duplicate: "),
    "reorder": ("order", "overtaken", ""),
    "corrupt": ("no_loss", "lost", "lost: "),
    "confirm_what_is_refused": ("no_loss", "lost", "lost: "),
    "confirm_what_is_not_forwarded": ("no_loss", "lost", "lost: "),
}


@pytest.mark.parametrize("lie", LIES)
def test_one_lie_among_many_messages_is_found_and_named(lie: str, lied_to: Any) -> None:
    workload = FULL if lie == "confirm_what_is_refused" else LOAD
    messages = MESSAGES if lie == "drop" else FEWER
    late = REFUSALS if lie == "confirm_what_is_refused" else (messages // 2, messages * 4 // 5)
    at = random.Random(lie).randrange(*late)  # noqa: S311 - fixed
    result, told = lied_to(lie, workload, "--at", str(at), messages=messages)
    (message,) = told
    invariant, number, words = FOUND[lie]
    assert result.verdict is Verdict.INVALID
    found = {name: finding(result, name) for name in ("no_loss", "order")}
    assert [name for name, f in found.items() if f["verdict"] == Verdict.INVALID] == [invariant]
    assert found["no_loss"]["numbers"]["attempted"] >= messages
    assert found[invariant]["numbers"][number] == 1
    named = f"{words}publisher {message['publisher']} sequence {message['sequence']} "
    assert sum(line.startswith(named) for line in found[invariant]["examples"]) == 1, found[invariant]["examples"]
    assert found["no_loss"]["numbers"]["broken"] == (lie == "corrupt")


def test_a_broker_that_does_not_lie_is_believed(lied_to: Any) -> None:
    result, told = lied_to("none", LOAD, messages=FEWER)
    assert (result.verdict, told) == (Verdict.VALID, []), result.story()


def test_lies_by_chance_are_all_found(lied_to: Any) -> None:
    """One in two thousand, drawn by the seed."""
    result, told = lied_to("drop", LOAD, "--one-in", "2000", "--seed", "3", messages=FEWER)
    lost = finding(result, "no_loss")
    assert len(told) > 1
    assert lost["numbers"]["lost"] == len(told)
    examples = "\n".join(lost["examples"])
    named = [m for m in told if f"publisher {m['publisher']} sequence {m['sequence']} " in examples]
    assert len(named) == min(len(told), EXAMPLES_MAX)
