"""Estimate how long the runs of a sweep take."""

from __future__ import annotations

from collections.abc import Collection

from rabbitmq_resilience.extensions.sweeps import perf_test_runs
from rabbitmq_resilience.extensions.sweeps.cells import Cell, cluster_of
from rabbitmq_resilience.runner.load_kinds import NUMBERS_SETTLE_S
from rabbitmq_resilience.runner.run import DRAIN_IDLE_S
from rabbitmq_resilience.scenario.model import Scenario

#: What a run takes in addition to its phases: to drain and to judge, and for metrics to begin and to settle.
OVERHEAD_S, METRICS_S = 8.0, 5.0 + NUMBERS_SETTLE_S
#: What each queue (with its clients), binding and idle connection takes to set up and to close, on two cores.
QUEUE_S, BINDING_S, IDLE_CONNECTION_S = 0.03, 0.003, 0.0095
#: How many round trips a queue and its clients take to be set up and closed. Measured with three queues and 1 to 50 ms
#: between zones; mirrored queues take most.
QUEUE_TRIPS = 90
#: What a cluster takes to form, and what each of its nodes adds.
FORMING_S, FORMING_NODE_S = 2.0, 3.0


def expected_s(scenario: Scenario) -> float:
    """Return about how long a run takes on a cluster that is formed, in seconds."""
    load, interval_s = scenario.generated, scenario.topology.statistics_interval_s or 0
    delay_of = scenario.topology.delay_of
    bindings = len(load.routing.bound(load.queue_names)) if load.routing is not None else 0
    trip_s = max((delay.round_trip_s for link in scenario.topology.links if (delay := delay_of(link))), default=0.0)
    queue_s = QUEUE_S + QUEUE_TRIPS * trip_s
    set_up_s = queue_s * load.queues + BINDING_S * bindings + IDLE_CONNECTION_S * load.idle_connections
    before_s = NUMBERS_SETTLE_S * bool(load.idle_connections)
    phases_s = scenario.phases.steady_s + scenario.chaos_s + scenario.settled_s
    return (
        before_s
        + set_up_s
        + phases_s
        + OVERHEAD_S
        + max(0.0, interval_s + 1 - DRAIN_IDLE_S)
        + METRICS_S * scenario.metrics
    )


def round_s(cells: Collection[Cell]) -> float:
    """Return about how long it takes to play each cell once, in seconds.

    If there are several clusters, the time to form each of them again counts too."""
    clusters = {cluster_of(cell): len(cell.scenario.topology.nodes) for cell in cells}
    forming_s = sum(FORMING_S + FORMING_NODE_S * nodes for nodes in clusters.values()) if len(clusters) > 1 else 0.0
    perf_test_s = sum(perf_test_runs.takes_s(cell.scenario) for cell in cells if cell.perf_test)
    return forming_s + perf_test_s + sum(expected_s(cell.scenario) for cell in cells)
