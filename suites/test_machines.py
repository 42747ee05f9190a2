"""The machine of a broker fails, and not the broker itself: its disk, its clock, its network, or what it has to give.

The brokers promise the same: nothing that was confirmed is lost, the order is kept, and the cluster is whole again once
the machine is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from rabbitmq_resilience.nemesis.clock import Clock
from rabbitmq_resilience.nemesis.conditions import AfterStep, When
from rabbitmq_resilience.nemesis.disk_full import DiskFull
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.limit import Limit
from rabbitmq_resilience.nemesis.netem import Netem
from rabbitmq_resilience.nemesis.stop import Stop
from rabbitmq_resilience.nemesis.stress import Stress
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.guarantees import promised, promising, versions
from rabbitmq_resilience.scenario.model import Phases, Scenario
from rabbitmq_resilience.tools.distributions import ToolMissingError
from suites.case_study import AWAY_S, FIRST_STEP_S, PHASES, RECOVERED_WITHIN_S
from suites.partitions import QUEUE_TYPES, shape, workload

pytestmark = [
    pytest.mark.machines,
    pytest.mark.slow,
    pytest.mark.usefixtures("containers"),
    pytest.mark.parametrize("queue_type", QUEUE_TYPES),
]

Play = Callable[[Scenario], Result]

THREE = "three_nodes_three_zones"
#: Long enough for a broker to look at its disk, which it does every 10 s if the disk was not short of space.
FULL_S = 25.0
#: How long the operator waits after there is space again.
OPERATOR_WAITS_S = 5.0
HOUR_S = 3600.0
#: Longer than messages, heartbeats and leases live.
JUMPED_S = 20.0
DISK_BYTES = 300_000_000
#: How long packets are disturbed, or a broker gets less of its machine.
DISTURBED_S = 20.0
#: What happens to packets, by the fields of ``netem``. Each needs ``sch_netem`` in the kernel. Another loss, which does
#: not, is in ``faults/platforms/packet_loss.fault.yaml``.
PACKETS: Mapping[str, Mapping[str, float]] = {
    "lost": {"loss_percent": 5},
    "late": {"delay_ms": 100, "jitter_ms": 20},
    "slow": {"rate_kbit_per_s": 1000},
    "damaged": {"corrupt_percent": 2},
    "repeated": {"duplicate_percent": 10},
}


def failed(
    play: Play, title: str, queue_type: str, tick_s: int, *schedule: AnyFault, without: Sequence[str] = ()
) -> Result:
    """Play the steps on three nodes. Skip, before anything starts, if the machine lacks what a step needs."""
    load, topology = workload(queue_type), shape(THREE, tick_s)
    scenario = promising(
        title,
        topology,
        load,
        schedule,
        demanded={**promised(topology, recovered_within_s=RECOVERED_WITHIN_S), **dict.fromkeys(without)},
        phases=Phases.model_validate(PHASES),
        broker=versions(load),
    )
    try:
        return play(scenario)
    except ToolMissingError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("node", ["b1", "all"])
def test_disk_full(node: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """An alarm may come in time, or a write may fail before; confirmed messages are there in any case.

    A broker whose Raft log found no space stays alive and does not write that log any more (``ra_log_wal``, ``enospc``,
    seen on 3.10.8). The operator who frees the disk has to start the broker again.
    """
    title = "The disk of a node is full" if node != "all" else "Every disk is full"
    full = DiskFull(at_s=FIRST_STEP_S, for_s=FULL_S, node=node, disk_bytes=DISK_BYTES)
    restart = Stop(when=When(after_step=AfterStep(step=0, wait_s=OPERATOR_WAITS_S)), for_s=AWAY_S, node=node)
    without = ["availability"] if node == "all" else []  # no broker can write anything for that long
    failed(play, title, queue_type, net_ticktime_s, full, restart, without=without)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["forwards", "backwards"])
def test_clock_jumps(jump_s: float, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """The clock of a leader's node jumps: no promise may depend on the time there."""
    jump = Clock(at_s=FIRST_STEP_S, for_s=JUMPED_S, node="leader:q1", jump_s=jump_s)
    title = f"The clock of a leader's node jumps {'forwards' if jump_s > 0 else 'backwards'}"
    failed(play, title, queue_type, net_ticktime_s, jump)


def test_clocks_jump_apart(queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """One node's clock is an hour ahead and another's an hour behind, for a while at the same time."""
    schedule = (
        Clock(at_s=FIRST_STEP_S, for_s=JUMPED_S, node="a1", jump_s=HOUR_S),
        Clock(at_s=FIRST_STEP_S + AWAY_S, for_s=JUMPED_S, node="b1", jump_s=-HOUR_S),
    )
    failed(play, "Two clocks jump apart", queue_type, net_ticktime_s, *schedule)


@pytest.mark.parametrize("how", PACKETS)
def test_packets_are_disturbed(how: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """Two zones are joined by a bad network, which TCP has to make up for."""
    links = {"links": "zone:a <-> zone:b", "at_s": FIRST_STEP_S, "for_s": DISTURBED_S}
    failed(play, f"Packets are {how}", queue_type, net_ticktime_s, Netem.model_validate({**links, **PACKETS[how]}))


def test_other_programs_take_the_machine(queue_type: str, net_ticktime_s: int, play: Play) -> None:
    taken = Stress(
        at_s=FIRST_STEP_S, for_s=DISTURBED_S, node="b1", cpu_workers=1, memory_bytes=64 * 2**20, io_workers=1
    )
    failed(play, "Other programs take a broker's machine", queue_type, net_ticktime_s, taken)


#: A broker takes 0.2 to 0.3 CPUs for this load, and about 150 MB.
LIMITS: Sequence[Mapping[str, float]] = ({"cpus": 0.1}, {"memory_bytes": 600 * 2**20})


@pytest.mark.parametrize("limit", LIMITS, ids=["cpus", "memory"])
def test_a_broker_gets_less(limit: Mapping[str, float], queue_type: str, net_ticktime_s: int, play: Play) -> None:
    less = Limit.model_validate({"at_s": FIRST_STEP_S, "for_s": DISTURBED_S, "node": "b1", **limit})
    failed(play, f"A broker gets less: {next(iter(limit))}", queue_type, net_ticktime_s, less)
