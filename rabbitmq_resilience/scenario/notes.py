"""Notes on a scenario's times before it is played: no errors, but worth a second look."""

from __future__ import annotations

from collections.abc import Iterator

from rabbitmq_resilience.checkers.pauses import pause_margin_s
from rabbitmq_resilience.model.durations import TICKS_MAX, TICKS_MIN
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.settled_time import without_settled_window

PAUSING = ("pause_minority", "pause_if_all_down")


def noted(scenario: Scenario, *, unless: bool = False) -> list[str]:
    """Return the notes as lines for the terminal; none if ``unless`` holds."""
    return [] if unless else [f"{'NOTE':<8} {text}" for text in notes(scenario)]


def notes(scenario: Scenario) -> Iterator[str]:
    """Yield what is worth a second look, a sentence each: a throughput that may not be judged, and cuts that end about
    when nodes notice them."""
    if undecided := without_settled_window(scenario):
        yield undecided
    yield from _cuts_that_end_as_they_are_noticed(scenario)


def _cuts_that_end_as_they_are_noticed(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for each cut that ends about when nodes notice it. Then one node may pause, or stay separated,
    as the other comes back."""
    topology = scenario.topology
    tick_s, pauses = topology.net_ticktime_s, topology.partition_handling in PAUSING
    first_s = TICKS_MIN * tick_s
    last_s = TICKS_MAX * tick_s + (pause_margin_s(len(topology.nodes), (4,)) if pauses else 0)
    acted = "have noticed it and paused" if pauses else "have noticed it"
    for number, step in enumerate(scenario.schedule):
        if isinstance(step, Partition) and step.footprint(topology).unsettles and first_s <= step.for_s <= last_s:
            yield (
                f"step {number} ({step.fault}) lasts for {step.for_s:g} s. With net_ticktime {tick_s:g} s nodes notice "
                f"it after {first_s:g} s at the earliest, and {acted} after {last_s:g} s at the latest, so it may end "
                f"just then; let it last for more than {last_s:g} s, or for less than {first_s:g} s"
            )
