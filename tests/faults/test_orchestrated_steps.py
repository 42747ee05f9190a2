"""Machines that are drained, and restarts in turn, as steps: refusals, what they would do, and what proves them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.nemesis import drain_node, processes, rolling_restart
from rabbitmq_resilience.nemesis.drain_node import DrainNode, DrainNodeInjection
from rabbitmq_resilience.nemesis.rolling_restart import RollingRestart, RollingRestartInjection
from rabbitmq_resilience.sut.node_protocol import ProcessState
from tests.faults.written_steps import parsed, refused
from tests.messages import Messages

THREE = topology_catalogue.load("three_nodes_three_zones")
DRAINED = {"fault": "drain_node", "at_s": 1, "for_s": 30}


@dataclass
class KeptProcesses:
    """Brokers, each with a process, and what the orchestrator says of them: both are up to the tests."""

    lives: dict[str, str | None] = field(default_factory=lambda: {"a1": "1", "b1": "1", "c1": "1"})
    reported: dict[str, list[str]] = field(default_factory=dict)
    done: list[tuple[str, Any]] = field(default_factory=list)
    restarts_brokers: bool = True

    def process(self, node: str) -> ProcessState:
        return "gone" if self.lives[node] is None else "running"

    def life(self, node: str) -> str | None:
        return self.lives[node]

    def exit_status(self, node: str) -> int | None:  # noqa: ARG002 - it is unknown
        return None


class DrainedMachines(KeptProcesses):
    """Brokers on machines that can be drained."""

    def drain_machines(self, nodes: Collection[str], *, whole_zones: bool) -> None:
        self.done.append(("drain", (tuple(nodes), whole_zones)))

    def undrain_machines(self, nodes: Collection[str]) -> None:
        self.done.append(("undrain", tuple(nodes)))

    def open_machines(self, nodes: Collection[str]) -> Sequence[str]:  # noqa: ARG002 - for all nodes
        return self.reported.get("open", [])

    def misplaced(self, nodes: Collection[str]) -> Sequence[str]:  # noqa: ARG002 - for all nodes
        return self.reported.get("misplaced", [])


class RestartedInTurn(KeptProcesses):
    """Brokers that can be restarted one after another."""

    def restart_all(self) -> None:
        self.done.append(("restart", ()))

    def not_restarted(self) -> Sequence[str]:
        return self.reported.get("not restarted", [])


def context_of(kept: KeptProcesses) -> Any:
    return SimpleNamespace(cluster=kept, refuse_if_taken=lambda _: None)


@pytest.mark.parametrize(
    ("step", "names"),
    [
        ({"node": "x9"}, "'x9'"),
        ({"node": "b1", "whole_zones": True}, "zone:b"),
        ({"node": "leader:q1", "whole_zones": True}, "leader:q1"),
    ],
)
def test_what_makes_no_sense_is_refused(step: dict[str, Any], names: str, message: Messages) -> None:
    told = refused({**DRAINED, **step}, driver="attached")
    assert names in told
    message(told)


@pytest.mark.parametrize("driver", ["local", "docker"])
def test_where_nothing_keeps_brokers_it_is_shown_where_something_does(driver: str, message: Messages) -> None:
    message(refused({**DRAINED, "node": "b1"}, driver=driver))


def test_what_they_would_do_is_reported_before() -> None:
    drained, restarted = parsed(
        {**DRAINED, "node": "zone:b", "whole_zones": True},
        {"fault": "rolling_restart", "at_s": 60, "for_s": 300},
        driver="attached",
    ).schedule
    assert drained.footprint(THREE).acts == {"drain_node": 1}
    assert drained.footprint(THREE).processes == {"b1"}
    assert restarted.footprint(THREE).acts == {"restart_all": 1}
    assert restarted.footprint(THREE).processes == {"a1", "b1", "c1"}
    assert isinstance(drained, DrainNode)
    assert isinstance(restarted, RollingRestart)


def drained(kept: DrainedMachines) -> DrainNodeInjection:
    step = DrainNode(node="b1", at_s=1, for_s=30)
    resolver: Any = SimpleNamespace(nodes=lambda _: ("b1",))
    return step.prepare(context_of(kept), resolver, for_s=30)


@pytest.mark.parametrize(
    ("life", "still", "proven"), [("1", [], False), (None, ["node2 takes pods"], False), (None, [], True)]
)
def test_a_drained_machine_is_proven_by_its_broker_and_by_what_it_takes(
    life: str | None, still: list[str], proven: bool
) -> None:
    kept = DrainedMachines()
    injection = drained(kept)
    injection.inject()
    assert kept.done == [("drain", (("b1",), False))]
    kept.lives["b1"], kept.reported["open"] = life, still
    assert injection.prove(timeout_s=0).proven == proven


@pytest.mark.parametrize(
    ("life", "still", "proven"), [("2", [], True), ("2", ["b1 runs elsewhere"], False), (None, [], False)]
)
def test_its_healing_is_proven_by_where_the_broker_runs_again(
    monkeypatch: pytest.MonkeyPatch, life: str | None, still: list[str], proven: bool
) -> None:
    monkeypatch.setattr(processes, "BACK_WITHIN_S", 0)
    monkeypatch.setattr(drain_node, "PLACED_WITHIN_S", 0)
    kept = DrainedMachines()
    injection = drained(kept)
    injection.inject()
    kept.lives["b1"], kept.reported["misplaced"] = life, still
    injection.heal()
    assert kept.done[-1] == ("undrain", ("b1",))
    assert injection.prove_healed().proven == proven


def test_who_has_drained_nothing_opens_nothing(message: Messages) -> None:
    kept = DrainedMachines(lives={"a1": "1", "b1": None, "c1": "1"})
    injection = drained(kept)
    with message.of(ClusterError):
        injection.inject()
    injection.heal()
    assert kept.done == [("undrain", ())]


def test_a_restart_is_proven_by_each_process_and_by_each_pod(
    monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setattr(rolling_restart, "EACH_WITHIN_S", 0)
    kept = RestartedInTurn(reported={"not restarted": ["pod rabbit-0 is not ready"]})
    injection = RollingRestartInjection(context_of(kept), ("a1", "b1", "c1"))
    injection.heal()  # nothing was begun
    injection.inject()
    kept.lives = {"a1": "1", "b1": None, "c1": "2"}
    told = injection.prove(timeout_s=0)
    assert not told.proven
    message(told.detail)
    with message.of(ClusterError):
        injection.heal()
    assert not injection.prove_healed().proven
    kept.lives = {"a1": "2", "b1": "2", "c1": "2"}
    assert not injection.prove(timeout_s=0).proven, "a pod is not ready"
    kept.reported.clear()
    proof = injection.prove(timeout_s=0)
    assert proof.proven
    assert "c1" in proof.detail
    injection.heal()
    assert injection.prove_healed().proven
    assert kept.done == [("restart", ())]
    assert injection.effect.intermittent, "each may be away, and none surely is"
