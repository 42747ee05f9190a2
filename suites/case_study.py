"""What the suites of kills, restarts and backlogs share: the load of the sizing case study, scaled, and its promises.

RabbitMQ's sizing case study (quorum queues, part 2) puts 100 queues under 10 000 to 40 000 messages/s of 1 KB, with 200
to 400 consumers that take 10 to 30 ms for each message. ``--scale 1`` is that load; by default a twenty-fifth of it is
played, which two cores hold beside the brokers. Quorum and mirrored queues get the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faults.catalogue import AnyFault
from faults.scenario import Invariants, Phases, Scenario
from suites.known_defects import COUNTED_AS_UNACKED
from suites.partitions import ELECTED_AFTER_S, WINDOW_S, known_hangs, stall_s_max
from topologies.spec import Topology
from workloads.spec import Mirroring, Workload

DEFAULT_SCALE = 0.04
#: At scale 1.
QUEUES = 100
RATE_PER_S = 10_000
FIRST_STEP_S = 2.0
#: Longer than a broker takes to boot and to be in step again.
RECOVERED_WITHIN_S = 60.0
#: How long a broker that is killed stays away.
AWAY_S = 6.0


def load(queue_type: str, scale: float, **fields: Any) -> Workload:
    """The case study's load at 10 000 messages/s. ``fields`` are those of the workload at scale 1, scaled as well."""
    whole: dict[str, Any] = {
        "queue_type": queue_type,
        "mirroring": Mirroring() if queue_type == "mirrored" else None,
        "queues": QUEUES,
        "publishers": QUEUES,
        "consumers": QUEUES,
        "rate_per_s": RATE_PER_S,
        "in_flight": 1000,
        "prefetch": 1000,
        "message_bytes": 1024,
        **fields,
    }
    return Workload.model_validate(whole).scaled(scale)


def adverse_scenario(
    title: str,
    topology: Topology,
    workload: Workload,
    *schedule: AnyFault,
    phases: Mapping[str, float] | None = None,
    demanded: Mapping[str, Mapping[str, Any] | None] | None = None,
) -> Scenario:
    """A measured scenario with every promise demanded that its cluster gives. ``demanded`` adds invariants with their
    bounds, or changes those of them; None leaves one out."""
    stall_s = stall_s_max(topology.net_ticktime_s)
    bounds: dict[str, Mapping[str, Any] | None] = {
        "no_loss": {},
        "order": {} if workload.consumers <= workload.queues else None,
        "availability": {"stall_s_max": stall_s},
        "recovery": {"within_s": RECOVERED_WITHIN_S},
        "throughput": {"ratio_min": 0.5, "window_s": WINDOW_S, "grace_s": ELECTED_AFTER_S},
        "partition_mode": {},
        "backlog": {},
        "memory": {},
        "alarms": {},
        "followers": {},
        "unacked": {},
        **(demanded or {}),
    }
    chosen = {name: value for name, value in bounds.items() if value is not None}
    counted = [COUNTED_AS_UNACKED] if workload.queue_type == "mirrored" and "unacked" in chosen else []
    lasting = {
        "steady_s": 6,
        "recovery_s": 90,
        "settled_s": ELECTED_AFTER_S + 2 * WINDOW_S,
        "drain_s": 120,
        **(phases or {}),
    }
    return Scenario(
        title=f"{title}, {topology.name}, {topology.partition_handling}, {workload.queue_type}",
        # Only from 3.10 on do brokers tell of each queue's Raft log.
        broker=">=3.10,<4" if workload.queue_type == "mirrored" else ">=3.10",
        seed=4711,
        topology=topology,
        workload=workload,
        phases=Phases.model_validate(lasting),
        metrics=True,
        schedule=tuple(schedule),
        invariants=Invariants.model_validate(chosen),
        expect=(*counted, *known_hangs(workload, demanded=list(chosen))),
    )
