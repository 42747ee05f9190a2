"""Queues grow long: consumers slow down, publishers peak, nothing is consumed, brokers run out of memory or disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rabbitmq_resilience.history.events import WorkerEvent
from rabbitmq_resilience.nemesis.alarm import Alarm, Resource
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.stop import Stop
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.workload.parts import RateStep
from rabbitmq_resilience.workload.services import ProcessingStep
from suites.case_study import AWAY_S, FIRST_STEP_S, RATE_PER_S, adverse_scenario, load
from suites.partitions import QUEUE_TYPES, shape

pytestmark = [pytest.mark.backlogs, pytest.mark.slow, pytest.mark.parametrize("queue_type", QUEUE_TYPES)]

Play = Callable[[Scenario], Result]

THREE = "three_nodes_three_zones"
#: The case study's S: from 10 ms for a message up to 30 and back, in steps.
S_SHAPE_MS = (10, 15, 20, 25, 30, 25, 20, 15, 10)
STEP_S = 6.0
#: 200 consumers keep up with 10 000 messages/s at 10 ms for each, but not at 30.
CONSUMERS = 200
PEAK = 4

MILLION = 1_000_000
SMALL_BYTES = 64
#: While the backlog is built, a consumer takes this long for a message, with its prefetch full.
IDLE_MS = 30_000.0
RESTARTS: Mapping[str, type[Stop] | type[Kill]] = {"restart": Stop, "kill": Kill}
#: A node that comes back reads its log of all these before it serves clients, and then fetches what it missed.
MILLION_RECOVERED_WITHIN_S = 180.0
MILLION_CAUGHT_UP_WITHIN_S = 240.0
#: The same number on any machine that keeps up with the rate, and over a million before the node goes. Two cores keep
#: up with three times that with quorum queues.
MILLION_BUILT = {
    "quorum": RateStep(rate_per_s=8_000, for_s=210),
    "mirrored": RateStep(rate_per_s=4_000, for_s=390),
}
#: A mirrored queue stands still while a mirror synchronises, which takes long for this many messages (RabbitMQ 3.13,
#: "Classic Queue Mirroring", on ha-sync-mode).
SYNCHRONISING = {"availability": {"stall_s_max": MILLION_RECOVERED_WITHIN_S}}


def backlog_played(
    play: Play,
    title: str,
    queue_type: str,
    scale: float,
    tick_s: int,
    *schedule: AnyFault,
    **fields: Any,
) -> Result:
    workload = load(queue_type, scale, consumers=CONSUMERS, **fields)
    return play(adverse_scenario(title, shape(THREE, tick_s), workload, *schedule))


def slowdown() -> list[ProcessingStep]:
    return [ProcessingStep(processing_ms=ms, for_s=STEP_S) for ms in S_SHAPE_MS]


def test_consumers_slow_down(queue_type: str, scale: float, net_ticktime_s: int, play: Play) -> None:
    title = "Consumers slow down and speed up again"
    backlog_played(play, title, queue_type, scale, net_ticktime_s, processing_ms=10, variable_processing=slowdown())


def test_consumers_slow_down_while_a_node_dies(queue_type: str, scale: float, net_ticktime_s: int, play: Play) -> None:
    """The node dies with the backlog at its longest."""
    title = "A node dies while consumers are slow"
    kill = Kill(at_s=STEP_S * len(S_SHAPE_MS) / 2, for_s=AWAY_S, node="leader:q1")
    backlog_played(
        play, title, queue_type, scale, net_ticktime_s, kill, processing_ms=10, variable_processing=slowdown()
    )


def test_publishers_peak(queue_type: str, scale: float, net_ticktime_s: int, play: Play) -> None:
    title = "Publishers peak above what consumers take"
    peak = [RateStep(rate_per_s=RATE_PER_S * PEAK, for_s=2 * STEP_S), RateStep(rate_per_s=RATE_PER_S, for_s=3 * STEP_S)]
    backlog_played(play, title, queue_type, scale, net_ticktime_s, processing_ms=10, variable_rate=peak)


def test_kept_out_of_memory(queue_type: str, scale: float, net_ticktime_s: int, play: Play) -> None:
    """Lazy queues, and the quorum queue's limit of messages in memory, which 3.10 ignores as it keeps none there."""
    field: dict[str, Any] = {"lazy": True} if queue_type == "mirrored" else {"max_in_memory_length": 100}
    title = "Consumers slow down, and queues keep little in memory"
    backlog_played(
        play, title, queue_type, scale, net_ticktime_s, processing_ms=10, variable_processing=slowdown(), **field
    )


@pytest.mark.parametrize("resource", ["memory", "disk"])
def test_alarm(resource: Resource, queue_type: str, scale: float, net_ticktime_s: int, play: Play) -> None:
    """One node's alarm blocks publishers everywhere. Nothing is lost, and publishers go on when it clears."""
    alarm = Alarm(at_s=FIRST_STEP_S, for_s=20, node="b1", resource=resource)
    title = f"A node runs out of {resource}"
    result = backlog_played(play, title, queue_type, scale, net_ticktime_s, alarm)
    blocked = [e for e in result.run.events() if isinstance(e, WorkerEvent) and e.event == "blocked"]
    assert blocked, "no publisher was blocked"


@pytest.mark.parametrize("restart", RESTARTS)
def test_million(restart: str, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """A million messages are published without being consumed; then a node goes, and the queues are drained.

    This load is not scaled, as the number matters.
    """
    built = MILLION_BUILT[queue_type]
    idle = ProcessingStep(processing_ms=IDLE_MS, for_s=built.for_s)
    workload = load(queue_type, 0.03, message_bytes=SMALL_BYTES, prefetch=200)
    step = RESTARTS[restart](at_s=built.for_s - 60, for_s=AWAY_S, node="leader:q1")
    scenario = adverse_scenario(
        f"A million messages wait, {restart}",
        shape(THREE, net_ticktime_s),
        workload.model_copy(update={"variable_rate": (built,), "variable_processing": (idle,)}),
        step,
        phases={"drain_s": 900, "recovery_s": MILLION_RECOVERED_WITHIN_S},
        demanded={
            "backlog": {"peak_min": MILLION},
            "recovery": {"within_s": MILLION_RECOVERED_WITHIN_S},
            "followers": {"within_s": MILLION_CAUGHT_UP_WITHIN_S},
            "throughput": None,
            **(SYNCHRONISING if queue_type == "mirrored" else {}),
        },
    )
    play(scenario)
