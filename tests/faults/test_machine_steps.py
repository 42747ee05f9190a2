"""A full disk and a clock that jumps: what nodes get for them, what is refused, and when they count."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rabbitmq_resilience.clusters.containers.clocks import Clock
from rabbitmq_resilience.clusters.equipment import NONE, Equipment
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.clusters.protocol import Cluster
from rabbitmq_resilience.faults import clock, disk_full
from rabbitmq_resilience.faults.clock import ClockInjection, ahead
from rabbitmq_resilience.faults.disk_full import DiskFullInjection
from rabbitmq_resilience.faults.fault import FaultContext, Proof
from tests.faults.written_steps import parsed, refused

FULL = {"at_s": 2, "for_s": 9, "fault": "disk_full", "node": "b1"}
JUMP = {"at_s": 2, "for_s": 9, "fault": "clock", "node": "zone:a", "jump_s": 3600}
MIB = 2**20


def test_only_nodes_that_a_step_may_mean_are_fitted() -> None:
    assert parsed(FULL).equipment == Equipment(disks={"b1": 256 * MIB})
    assert parsed(JUMP).equipment == Equipment(clocks=frozenset({"a1"}))
    assert parsed({**FULL, "node": "leader:q1"}).equipment.disks.keys() == {"a1", "b1", "c1"}
    kill = {"at_s": 2, "for_s": 9, "fault": "kill", "node": "a1"}
    assert parsed(kill).equipment == NONE


def test_of_two_disks_of_a_node_it_gets_the_larger() -> None:
    large = {**FULL, "at_s": 30, "disk_bytes": 512 * MIB}
    assert parsed(FULL, large, JUMP).equipment == Equipment(disks={"b1": 512 * MIB}, clocks=frozenset({"a1"}))


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ({**FULL, "disk_bytes": MIB}, "schedule[0].disk_bytes: got 1048576"),
        ({**FULL, "node": "z1"}, "schedule[0].node"),
        ({**JUMP, "jump_s": -2}, "jump_s: -2 is less than 5 s either way"),
        ({**JUMP, "jump_s": 10**10}, "schedule[0].jump_s: got 10000000000"),
    ],
)
def test_refused_before_anything_starts(step: dict[str, Any], told: str) -> None:
    assert told in refused(step)


def test_they_act_on_containers_and_a_clock_needs_its_library() -> None:
    assert "disk_full acts on disks" in refused(FULL, driver="local")
    assert "clock acts on containers" in refused(JUMP, driver="local")
    assert parsed(FULL).needs == frozenset()
    assert parsed(FULL).acts == {"act fill_disk"}
    assert parsed(JUMP).needs == {"libfaketime"}


def test_nobody_else_takes_a_node_whose_disk_is_full() -> None:
    kill = {"at_s": 5, "for_s": 2, "fault": "kill", "node": "b1"}
    assert "step 0 has taken b1 away at that time already" in refused(FULL, kill)


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
class LiteralCluster:
    state: str = "running"
    own: LiteralDisk = field(default_factory=LiteralDisk)
    started: list[str] = field(default_factory=list)
    system_s: float = 0.0
    answer: str | None = None

    def disk(self, node: str) -> LiteralDisk:
        assert node == "b1"
        return self.own

    def process(self, node: str) -> str:  # noqa: ARG002
        return self.state

    def start(self, node: str) -> None:
        self.started.append(node)
        self.state = "running"

    def turn_clock(self, node: str, *, by_s: float) -> None:
        assert node == "b1"
        self.system_s += by_s

    def run_tool(self, *_command: str) -> str:
        now_ms = round((time.time() + self.system_s) * 1000)
        return self.answer or f"{{{now_ms}, {round(time.time() * 1000)}}}\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_full, "ROOM_WITHIN_S", 0.1)
    monkeypatch.setattr(clock, "BACK_WITHIN_S", 0.1)
    monkeypatch.setattr(clock, "in_containers", lambda cluster: cluster)


def context(cluster: LiteralCluster) -> FaultContext:
    return cast(FaultContext, SimpleNamespace(cluster=cluster))


def test_a_disk_is_full_when_it_takes_nothing_and_a_broker_that_died_is_started() -> None:
    cluster = LiteralCluster()
    injection = DiskFullInjection(context(cluster), ("b1",))
    injection.inject()
    assert injection.prove(timeout_s=0.1).detail == "the disk of b1 takes nothing more"

    cluster.state = "gone"
    assert "b1 is gone" in injection.prove_healed().detail
    injection.heal()
    assert cluster.started == ["b1"]
    assert injection.prove_healed().detail == "10 bytes of b1 are free"


def test_a_disk_with_a_block_left_is_not_full() -> None:
    injection = DiskFullInjection(context(LiteralCluster(own=LiteralDisk(holds_back=4096))), ("b1",))
    injection.inject()
    proof = injection.prove(timeout_s=0.1)
    assert not proof.proven
    assert proof.detail == "b1 has 4,096 bytes free"


def test_a_disk_of_which_the_broker_still_tells_room_is_another() -> None:
    injection = DiskFullInjection(context(LiteralCluster(own=LiteralDisk(told="b1 tells of 9 bytes free"))), ("b1",))
    injection.inject()
    assert injection.prove(timeout_s=0.1) == Proof(False, "b1 tells of 9 bytes free")


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_clock_has_jumped_when_the_broker_tells_so_and_jumps_back(jump_s: float) -> None:
    cluster = LiteralCluster()
    injection = ClockInjection(context(cluster), ("b1",), jump_s)
    injection.inject()
    proof = injection.prove(timeout_s=0.1)
    assert proof.proven
    assert proof.detail.startswith(f"the clock of b1 is {jump_s:+.0f}")
    assert not injection.prove_healed().proven

    injection.heal()
    assert injection.prove_healed().proven


def test_a_clock_that_did_not_follow_is_no_jump() -> None:
    cluster = LiteralCluster()
    injection = ClockInjection(context(cluster), ("b1",), 3600.0)
    injection.inject()
    cluster.system_s = 0.0
    assert not injection.prove(timeout_s=0.1).proven


def test_a_step_jumps_from_where_another_one_left_the_clock() -> None:
    cluster = LiteralCluster(system_s=-600.0)
    injection = ClockInjection(context(cluster), ("b1",), 60.0)
    injection.inject()
    assert injection.prove(timeout_s=0.1).proven
    assert cluster.system_s == -540.0


def test_a_broker_that_tells_no_time_is_an_error() -> None:
    with pytest.raises(ClusterError, match="b1 does not tell its time: Error"):
        ahead(cast(Cluster, LiteralCluster(answer="Error")), "b1")


def test_turning_a_clock_adds_up(tmp_path: Path) -> None:
    turned = Clock(tmp_path / "a1.clock")
    assert turned.environ["FAKETIME_TIMESTAMP_FILE"] == str(tmp_path / "a1.clock")
    for by_s, told in ((3600.0, "+3600.000"), (-60.5, "+3539.500"), (-3600.0, "-60.500"), (60.5, "+0.000")):
        turned.turn(by_s=by_s)
        assert (tmp_path / "a1.clock").read_text() == f"{told}\n"
