"""The load of the sizing case study, scaled, and its promises: shared by the suites of kills, restarts and backlogs.

RabbitMQ's sizing case study (quorum queues, part 2) puts 100 queues under 10 000 to 40 000 messages/s of 1 KB, with 200
to 400 consumers that take 10 to 30 ms for each message. ``--scale 1`` is that load. By default a twenty-fifth of it is
played, which two cores can carry in addition to the brokers. Quorum and mirrored queues get the same load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.scenario.guarantees import (
    ELECTED_AFTER_S,
    WINDOW_S,
    Demanded,
    promised,
    promising,
    throughput_kept,
    versions,
)
from rabbitmq_resilience.scenario.known_defects import COUNTED_AS_UNACKED
from rabbitmq_resilience.scenario.model import Phases, Scenario
from rabbitmq_resilience.workload.queue_settings import Mirroring
from rabbitmq_resilience.workload.workload_model import Workload

DEFAULT_SCALE = 0.04
#: The load at scale 1.
QUEUES = 100
RATE_PER_S = 10_000
FIRST_STEP_S = 2.0
#: Longer than a broker takes to boot and to be in step again.
RECOVERED_WITHIN_S = 60.0
#: How long a killed broker stays away.
AWAY_S = 6.0
#: The phases of a scenario in which brokers restart: the load goes on for two windows after leaders are elected.
PHASES = {"steady_s": 6, "recovery_s": 90, "settled_s": ELECTED_AFTER_S + 2 * WINDOW_S, "drain_s": 120}


def load(queue_type: str, scale: float, **fields: Any) -> Workload:
    """Return the case study's load at 10 000 messages/s. ``fields`` are workload fields at scale 1, which are scaled as
    well."""
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
    demanded: Demanded | None = None,
) -> Scenario:
    """Return a measured scenario that demands every promise of its cluster. ``demanded`` adds invariants with their
    bounds, or changes bounds; None leaves an invariant out."""
    chosen = {
        **promised(topology, recovered_within_s=RECOVERED_WITHIN_S),
        "order": {} if workload.consumers <= workload.queues else None,
        "throughput": throughput_kept(),
        **{name: {} for name in ("partition_mode", "backlog", "memory", "alarms", "followers", "unacked")},
        **(demanded or {}),
    }
    counted = workload.queue_type == "mirrored" and chosen["unacked"] is not None
    return promising(
        title,
        topology,
        workload,
        schedule,
        demanded=chosen,
        phases=Phases.model_validate({**PHASES, **(phases or {})}),
        broker=versions(workload, since="3.10"),  # older brokers do not report each queue's Raft log
        metrics=True,
        expect=[COUNTED_AS_UNACKED] if counted else [],
    )
