"""Build scenarios that demand what clusters promise. All suites and random schedules share this one builder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from packaging.version import Version

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.scenario.expectations import Expectation
from rabbitmq_resilience.scenario.known_defects import known_hangs
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.workload.workload_model import Workload

#: An invariant by its name, with its bounds; None if it is not demanded.
Demanded = Mapping[str, Mapping[str, Any] | None]

SEED = 4711
#: How long clients may take to connect elsewhere, and queues to elect leaders.
ELECTED_AFTER_S = 5.0
WINDOW_S = 2.5


def stall_s_max(net_ticktime_s: int) -> float:
    """Return the longest time for which a queue with a majority may stand still.

    First the cut is noticed. Then a publisher may be served by a broker that still takes the old leader for the leader.
    It gets no confirm until its patience ends, and then connects elsewhere."""
    return Availability().bound_s(net_ticktime_s)


def promised(topology: Topology, *, recovered_within_s: float) -> dict[str, Mapping[str, Any] | None]:
    """Return what every cluster promises during any fault, as long as a majority is there."""
    return {
        "no_loss": {},
        "order": {},
        "availability": {"stall_s_max": stall_s_max(topology.net_ticktime_s)},
        "recovery": {"within_s": recovered_within_s},
        "no_crash": {},
    }


def throughput_kept(*, grace_s: float = ELECTED_AFTER_S) -> Mapping[str, Any]:
    """Return bounds that demand half of the steady rate from ``grace_s`` after each change on."""
    return {"ratio_min": 0.5, "window_s": WINDOW_S, "grace_s": grace_s}


def promising(
    name: str,
    topology: Topology,
    workload: Workload,
    schedule: Sequence[AnyFault],
    *,
    demanded: Demanded,
    phases: Phases,
    broker: str,
    about: str = "",
    metrics: bool = False,
    expect: Sequence[Expectation] = (),
    seed: int = SEED,
) -> Scenario:
    """Return a scenario that demands ``demanded``, and expects the known hangs that may keep any node away. Its title
    ends with topology, partition handling (or ``about`` instead) and queue type."""
    chosen = {name: bounds for name, bounds in demanded.items() if bounds is not None}
    return Scenario(
        title=f"{name}, {topology.name}, {about or topology.partition_handling}, {workload.queue_type}",
        name=name,
        broker=broker,
        seed=seed,
        topology=topology,
        workload=workload,
        phases=phases,
        metrics=metrics,
        schedule=tuple(schedule),
        invariants=Invariants.model_validate(chosen),
        expect=(*expect, *known_hangs(workload, demanded=list(chosen))),
    )


#: The version from which on brokers do not have the feature.
_GONE_FROM = {"RAM nodes": "4.2", "queues that are not durable": "4.3"}


def versions(workload: Workload, topology: Topology | None = None, *, since: str = "3.8", until: str = "") -> str:
    """Return the broker versions, as a scenario states them, that have such queues and such a cluster."""
    needs = workload.needs | (topology.needs if topology else frozenset())
    ends = [until] if until else []
    ends += [end for is_so, end in ((workload.lazy, "3.12"), (workload.queue_type == "mirrored", "4")) if is_so]
    ends += [end for need, end in _GONE_FROM.items() if need in needs]
    return f">={since},<{min(ends, key=Version)}" if ends else f">={since}"
