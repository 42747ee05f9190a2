"""A full disk and a clock that jumps: what nodes get for them, what is refused, and when they count."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.node_options import NONE, NodeOptions
from rabbitmq_resilience.nemesis import clock, disk_full
from rabbitmq_resilience.nemesis.clock import ClockInjection, ahead
from rabbitmq_resilience.nemesis.disk_full import DiskFullInjection
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof
from rabbitmq_resilience.sut.containers.clocks import NodeClock
from tests.faults.written_steps import parsed, refused
from tests.messages import Messages

pytestmark = pytest.mark.usefixtures("clock")

FULL = {"at_s": 2, "for_s": 9, "fault": "disk_full", "node": "b1"}
JUMP = {"at_s": 2, "for_s": 9, "fault": "clock", "node": "zone:a", "jump_s": 3600}
MIB = 2**20


def test_only_nodes_that_a_step_may_mean_are_fitted() -> None:
    assert parsed(FULL).equipment == NodeOptions(disks={"b1": 256 * MIB})
    assert parsed(JUMP).equipment == NodeOptions(clocks=frozenset({"a1"}))
    assert parsed({**FULL, "node": "leader:q1"}).equipment.disks.keys() == {"a1", "b1", "c1"}
    kill = {"at_s": 2, "for_s": 9, "fault": "kill", "node": "a1"}
    assert parsed(kill).equipment == NONE


def test_of_two_disks_of_a_node_it_gets_the_larger() -> None:
    large = {**FULL, "at_s": 30, "disk_bytes": 512 * MIB}
    assert parsed(FULL, large, JUMP).equipment == NodeOptions(disks={"b1": 512 * MIB}, clocks=frozenset({"a1"}))


@pytest.mark.parametrize(
    ("step", "field"),
    [
        ({**FULL, "disk_bytes": MIB}, "disk_bytes"),
        ({**FULL, "node": "z1"}, "node"),
        ({**JUMP, "jump_s": -2}, "jump_s"),
        ({**JUMP, "jump_s": 10**10}, "jump_s"),
    ],
)
def test_refused_before_anything_starts(step: dict[str, Any], field: str, message: Messages) -> None:
    told = refused(step)
    assert "schedule[0]" in told
    assert field in told
    message(told)


def test_they_act_on_containers_and_a_clock_needs_its_library(message: Messages) -> None:
    message(refused(FULL, driver="local"))
    message(refused(JUMP, driver="local"))
    assert parsed(FULL).needs == frozenset()
    assert parsed(FULL).acts == {"act fill_disk"}
    assert parsed(JUMP).needs == {"libfaketime"}


def test_no_one_else_takes_a_node_whose_disk_is_full(message: Messages) -> None:
    kill = {"at_s": 5, "for_s": 2, "fault": "kill", "node": "b1"}
    message(refused(FULL, kill))


@dataclass
class LiteralDisk:
    """``holds_back``: what the filling leaves free."""

    room_bytes: int = 10
    holds_back: int = 0
    full: bool = False
    told: str = ""

    def fill(self) -> None:
        self.full = True

    def empty(self) -> None:
        self.full = False

    def free_bytes(self) -> int:
        return self.holds_back if self.full else self.room_bytes

    def takes(self) -> bool:
        return self.free_bytes() > 0

    def room_seen(self) -> str:
        return self.told


@dataclass
class LiteralBroker:
    """One broker with a disk of its own."""

    state: str = "running"
    own: LiteralDisk = field(default_factory=LiteralDisk)
    started: list[str] = field(default_factory=list)

    def disk(self, node: str) -> LiteralDisk:
        assert node == "b1"
        return self.own

    def process(self, node: str) -> str:  # noqa: ARG002
        return self.state

    def start(self, node: str) -> None:
        self.started.append(node)
        self.state = "running"


@dataclass
class LiteralClock:
    """One broker with a clock of its own, which is ahead by ``system_s``."""

    system_s: float = 0.0
    answer: str | None = None

    def turn_clock(self, node: str, *, by_s: float) -> None:
        assert node == "b1"
        self.system_s += by_s

    def run_tool(self, node: str, tool: str, *arguments: str, timeout_s: float = 60.0) -> str:  # noqa: ARG002
        now_ms = round((time.time() + self.system_s) * 1000)
        return self.answer or f"{{{now_ms}, {round(time.time() * 1000)}}}\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_full, "ROOM_WITHIN_S", 0.1)
    monkeypatch.setattr(clock, "BACK_WITHIN_S", 0.1)


def context(cluster: LiteralBroker | LiteralClock) -> FaultContext:
    return cast(FaultContext, SimpleNamespace(cluster=cluster))


def test_a_disk_is_full_when_it_takes_nothing_and_a_broker_that_died_is_started(message: Messages) -> None:
    cluster = LiteralBroker()
    injection = DiskFullInjection(context(cluster), ("b1",))
    injection.inject()
    proof = injection.prove(timeout_s=0.1)
    assert proof.proven
    message(proof.detail)

    cluster.state = "gone"
    gone = injection.prove_healed()
    assert not gone.proven
    message(gone.detail)
    injection.heal()
    assert cluster.started == ["b1"]
    healed = injection.prove_healed()
    assert healed.proven
    message(healed.detail)


def test_a_disk_with_a_block_left_is_not_full(message: Messages) -> None:
    injection = DiskFullInjection(context(LiteralBroker(own=LiteralDisk(holds_back=4096))), ("b1",))
    injection.inject()
    proof = injection.prove(timeout_s=0.1)
    assert not proof.proven
    message(proof.detail)


def test_a_disk_of_which_the_broker_still_shows_room_is_another() -> None:
    injection = DiskFullInjection(context(LiteralBroker(own=LiteralDisk(told="b1 tells of 9 bytes free"))), ("b1",))
    injection.inject()
    assert injection.prove(timeout_s=0.1) == Proof(False, "b1 tells of 9 bytes free")


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_has_jumped_when_the_broker_says_so_and_jumps_back(jump_s: float) -> None:
    cluster = LiteralClock()
    injection = ClockInjection(context(cluster), ("b1",), jump_s)
    injection.inject()
    proof = injection.prove(timeout_s=0.1)
    assert proof.proven
    assert f"{jump_s:+.0f}" in proof.detail
    assert not injection.prove_healed().proven

    injection.heal()
    assert injection.prove_healed().proven


def test_a_clock_that_did_not_follow_is_no_jump() -> None:
    cluster = LiteralClock()
    injection = ClockInjection(context(cluster), ("b1",), 3600.0)
    injection.inject()
    cluster.system_s = 0.0
    assert not injection.prove(timeout_s=0.1).proven


def test_a_step_jumps_from_where_another_one_left_the_clock() -> None:
    cluster = LiteralClock(system_s=-600.0)
    injection = ClockInjection(context(cluster), ("b1",), 60.0)
    injection.inject()
    assert injection.prove(timeout_s=0.1).proven
    assert cluster.system_s == -540.0


def test_a_broker_that_shows_no_time_is_an_error(message: Messages) -> None:
    with message.of(ClusterError):
        ahead(LiteralClock(answer="Error"), "b1")


def test_turning_a_clock_adds_up(tmp_path: Path) -> None:
    turned = NodeClock(tmp_path / "a1.clock")
    assert turned.environ["FAKETIME_TIMESTAMP_FILE"] == str(tmp_path / "a1.clock")
    for by_s, told in ((3600.0, "+3600.000"), (-60.5, "+3539.500"), (-3600.0, "-60.500"), (60.5, "+0.000")):
        turned.turn(by_s=by_s)
        assert (tmp_path / "a1.clock").read_text() == f"{told}\n"
