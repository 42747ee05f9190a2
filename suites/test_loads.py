"""Loads of the case studies by name (``presets/``), each in good conditions and with a fault that fits it.

Any machine that can carry the load at all keeps the bounds. The numbers of a verdict show what the load reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from rabbitmq_resilience.checkers.flow import SteadyFlow
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.latency import Latency
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.guarantees import (
    ELECTED_AFTER_S,
    Demanded,
    promised,
    promising,
    throughput_kept,
    versions,
)
from rabbitmq_resilience.scenario.model import Phases, Scenario
from rabbitmq_resilience.workload import presets
from rabbitmq_resilience.workload.queue_settings import Mirroring
from rabbitmq_resilience.workload.workload_model import Workload
from suites.case_study import AWAY_S, FIRST_STEP_S, PHASES, RECOVERED_WITHIN_S
from suites.partitions import long_cut_s, shape

pytestmark = [pytest.mark.loads, pytest.mark.slow]

Play = Callable[[Scenario], Result]

THREE = "three_nodes_three_zones"
FAR = "three_nodes_far_zones"
TWO_BALANCERS = "three_nodes_two_balancers"
BEHIND_BALANCERS = "four_nodes_for_a_million"
#: How long the load is observed without a fault.
QUIET_S = 20.0
SETTLED_S = 5.0
SLOW_S = 10.0
#: Shorter than any client's heartbeat and patience.
BALANCER_AWAY_S = 3.0


LEADER_DIES = Kill(at_s=FIRST_STEP_S, for_s=AWAY_S, node="leader:q1")
ONE_MIRROR = Mirroring(ha_mode="exactly", ha_params=2)
#: Demanded of a load that two cores can carry.
HELD: Demanded = {
    "throughput": throughput_kept(),
    "latency": {"bounds": [{"of": "end_to_end", "percentile": 99, "within_ms": 5000, "when": "steady"}]},
}
#: Demanded of a load for low latency.
QUICK: Demanded = {
    **HELD,
    "latency": {
        "bounds": [
            {"of": of, "percentile": 99, "within_ms": 1000, "when": "steady"} for of in ("confirm", "end_to_end")
        ]
    },
}
#: Demanded of a load that may be more than the machine can carry.
FLOW: Demanded = {"flow": {"grace_s": ELECTED_AFTER_S}}
#: Long enough for flow to be judged after the fault too.
FLOWS_S = SteadyFlow(grace_s=ELECTED_AFTER_S).settled_s


@dataclass(frozen=True)
class Case:
    """A preset with its ``queue_types``, and ``fields`` for some of these types. ``breaks`` and ``fault`` are what
    happens to it. ``demanded`` is demanded beyond what every cluster promises, and ``with_fault`` changes that if the
    fault is played."""

    preset: str
    queue_types: Sequence[str]
    breaks: str
    fault: Callable[[Topology], AnyFault]
    demanded: Demanded
    with_fault: Demanded = field(default_factory=dict)
    topology: str = THREE
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def workload(self, queue_type: str) -> Workload:
        """Return the preset's workload, on its own type of queue or on another."""
        other: dict[str, Any] = {}
        if presets.load(self.preset).published["queue_type"] != queue_type:
            other = {"queue_type": queue_type, "group_size": None}
        if queue_type == "mirrored":
            other["mirroring"] = ONE_MIRROR
        return presets.load(self.preset).workload(**other, **self.fields.get(queue_type, {}))


def kill(_topology: Topology) -> AnyFault:
    return LEADER_DIES


def kill_leader_of_a_service(_topology: Topology) -> AnyFault:
    return Kill(at_s=FIRST_STEP_S, for_s=AWAY_S, node="leader:desk-1")


def cut(topology: Topology) -> AnyFault:
    return Partition(at_s=FIRST_STEP_S, for_s=long_cut_s(topology), between=("zone:c", "rest"))


def slow_link(_topology: Topology) -> AnyFault:
    """Slow the link of two brokers that do not lead: no message to a single queue or a majority has to cross it."""
    return Latency(at_s=FIRST_STEP_S, for_s=SLOW_S, links="b1 <-> c1", latency_ms=50)


def balancer_dies(_topology: Topology) -> AnyFault:
    return Kill(at_s=FIRST_STEP_S, for_s=BALANCER_AWAY_S, node="balancer:0")


QUORUM_OR_MIRRORED = ("quorum", "mirrored")
ON_A1: Mapping[str, Any] = {"leaders_on": ("a1",)}

CASES = {
    case.preset: case
    for case in (
        *(
            Case(
                f"low_latency_{pairs}",
                ("classic", *QUORUM_OR_MIRRORED),
                "a link gets slow",
                slow_link,
                QUICK,
                fields=dict.fromkeys(("classic", *QUORUM_OR_MIRRORED), ON_A1),
            )
            for pairs in (1, 5, 20)
        ),
        Case("durable", ("classic", *QUORUM_OR_MIRRORED), "a far zone is cut off", cut, HELD, topology=FAR),
        # Queues of a node that pauses are gone, and an automatic acknowledgement comes before its message is processed.
        Case(
            "not_durable",
            ("classic",),
            "a far zone is cut off",
            cut,
            HELD,
            with_fault={"no_loss": None, "order": None},
            topology=FAR,
            fields={"classic": {"leaders_on": ("a1", "b1")}},
        ),
        Case("lazy", ("classic", "mirrored"), "a far zone is cut off", cut, HELD, topology=FAR),
        # Each replicated queue is a process and a log on three nodes, of which two cores can carry fewer.
        Case(
            "many_queues",
            ("classic", *QUORUM_OR_MIRRORED),
            "a broker dies",
            kill,
            HELD,
            fields={kind: {"queues": 200} for kind in QUORUM_OR_MIRRORED},
        ),
        *(Case(f"flow_control_{i}", QUORUM_OR_MIRRORED, "a broker dies", kill, {**HELD, **FLOW}) for i in (1, 3)),
        *(Case(f"flow_control_{i}", QUORUM_OR_MIRRORED, "a broker dies", kill, FLOW) for i in (2, 4, 5)),
        # Rush hour leaves less time for messages than their services need, which is not the balancer's effect.
        Case(
            "telemetry",
            ("classic",),
            "one of two balancers dies",
            balancer_dies,
            HELD,
            topology=TWO_BALANCERS,
        ),
        Case("fan_out", QUORUM_OR_MIRRORED, "a broker dies", kill_leader_of_a_service, HELD),
        Case("sizing", QUORUM_OR_MIRRORED, "a broker dies", kill, HELD),
        Case("million", ("classic",), "a balancer dies", balancer_dies, HELD, topology=BEHIND_BALANCERS),
    )
}


def scenario(case: Case, queue_type: str, net_ticktime_s: int, *, breaks: bool) -> Scenario:
    topology, load = shape(case.topology, net_ticktime_s), case.workload(queue_type)
    demanded: dict[str, Mapping[str, Any] | None] = {
        **promised(topology, recovered_within_s=RECOVERED_WITHIN_S),
        **({} if load.consumers <= load.queues else {"order": None}),
        **case.demanded,
        **(case.with_fault if breaks else {}),
    }
    return promising(
        f"{case.preset}, {case.breaks if breaks else 'in good conditions'}",
        topology,
        load,
        [case.fault(topology)] if breaks else [],
        demanded=demanded,
        phases=Phases.model_validate({**PHASES, **_phases(case, breaks=breaks)}),
        broker=versions(load, topology),
        about=f"{topology.partition_handling}{', lazy' if load.lazy else ''}",
    )


def _phases(case: Case, *, breaks: bool) -> dict[str, float]:
    if not breaks:
        return {"chaos_s": QUIET_S, "settled_s": SETTLED_S}
    return {"settled_s": FLOWS_S} if "flow" in case.demanded else {}


EVERY = pytest.mark.parametrize(
    ("load", "queue_type"), [(name, kind) for name, case in CASES.items() for kind in case.queue_types]
)


@EVERY
def test_good_conditions(load: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    play(scenario(CASES[load], queue_type, net_ticktime_s, breaks=False))


@EVERY
def test_during_a_fault(load: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    play(scenario(CASES[load], queue_type, net_ticktime_s, breaks=True))
