"""When brokers may have taken each other for gone, so that what each of them knows of clients may have differed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from rabbitmq_resilience.invariants.columns import Array
from rabbitmq_resilience.invariants.facts import Facts, QueueFacts
from rabbitmq_resilience.invariants.steps import NEVER_US
from rabbitmq_resilience.invariants.times import NEVER, Period, Times, periods, times
from rabbitmq_resilience.invariants.worlds import TICKS_MAX
from rabbitmq_resilience.record.events import Effect, FaultEvent, NodesEvent, SampleEvent

#: How long brokers go on with what a disturbance began, beside the time in which they notice it.
SETTLED_WITHIN_S = 10.0
#: Operations of these kinds leave leaders where they are.
_MOVES_NO_LEADER = frozenset({"enable_feature_flag", "purge_queue", "delete_queue", "alarm"})


def disturbances(facts: Facts, queue: str) -> Times:
    """The times in which the brokers of ``queue`` were disturbed, or may have been: steps that act on brokers or on the
    links between them, nodes that were not up, partitions that a node told of, and changes of the queue's leader; each
    until it must have been noticed and mended."""
    everywhere = facts.once(_of_all_queues)
    moves = times(_moves(facts, queue))
    return everywhere if moves.empty else everywhere | moves


def _of_all_queues(facts: Facts) -> Times:
    return times([*_steps(facts), *_absences(facts), *_partitions(facts)])


def of_copies(facts: Facts, queue: QueueFacts) -> Times:
    """Return when the brokers that have ``queue``, or may come to have it, may have forgotten what they had delivered.

    By steps that take them away, starve them, cut or slow links to them, or move leaders; while one was not up or said
    that it was partitioned; and while the queue got another leader. Each until it must have been noticed and mended.
    """
    mine = queue.holders
    effects = {event.step: event.effect for event in facts.of_kind(FaultEvent) if event.effect is not None}
    steps = [
        (step.possible_us[0], step.possible_us[1] + _after_us(facts))
        for step in facts.steps
        if step.injected and step.fault not in _MOVES_NO_LEADER and _acts_on_copies(effects.get(step.number), mine)
    ]
    return times([*steps, *_absences(facts, mine), *_partitions(facts, mine), *_moves(facts, queue.name)])


def _acts_on_copies(effect: Effect | None, mine: frozenset[str]) -> bool:
    """Whether it acts on the nodes in ``mine``; it may where the record does not say what it does."""
    if effect is None or effect.operation or mine & {*effect.nodes_down, *effect.nodes_starved}:
        return True
    links = (*effect.links_cut, *effect.links_slow)
    return any(link.client is None and mine & {*link} for link in links)


def _after_us(facts: Facts) -> float:
    ticks_s = TICKS_MAX * facts.cluster.net_ticktime_s if facts.cluster else 0.0
    return (ticks_s + SETTLED_WITHIN_S) * 1e6


def _steps(facts: Facts) -> Iterator[Period]:
    effects = {event.step: event.effect for event in facts.of_kind(FaultEvent) if event.effect is not None}
    for step in facts.steps:
        if step.injected and acts_on_brokers(effects.get(step.number)):
            start_us, end_us = step.possible_us
            yield start_us, end_us + _after_us(facts)


def acts_on_brokers(effect: Effect | None) -> bool:
    """Return whether it acts on anything but clients and what they are connected by; it may where the record does not
    say. An alarm blocks publishers, and changes nothing between brokers."""
    if effect is None:
        return True
    if effect.nodes_down or effect.nodes_starved or effect.operation:
        return True
    return any(link.client is None for link in (*effect.links_cut, *effect.links_slow))


def _absences(facts: Facts, mine: frozenset[str] | None = None) -> Iterator[Period]:
    looks = [
        (event.t_us, any(state != "up" for node, state in event.states.items() if mine is None or node in mine))
        for event in facts.of_kind(NodesEvent)
    ]
    return _around(looks, _after_us(facts))


def _partitions(facts: Facts, mine: frozenset[str] | None = None) -> Iterator[Period]:
    looks = [
        (event.t_us, any(others for node, others in event.partitions.items() if mine is None or mine & {node, *others}))
        for event in facts.of_kind(SampleEvent)
    ]
    return _around(looks, _after_us(facts))


def _around(looks: Sequence[tuple[int, bool]], after_us: float) -> Iterator[Period]:
    """From the look before each that found something until it is mended after the next one that did not."""
    clear_us = -NEVER_US
    for (t_us, found), (next_us, _) in itertools.pairwise([*looks, (NEVER_US, False)]):
        if found:
            yield clear_us, next_us + after_us
        else:
            clear_us = t_us


def _moves(facts: Facts, queue: str) -> Iterator[Period]:
    """From the last look that found one leader of the queue to the first that found another one."""
    looks = leaders(facts).get(queue, [])
    for (t_us, leader), (next_us, other) in itertools.pairwise(looks):
        if leader != other:
            yield t_us, next_us + _after_us(facts)


def leaders(facts: Facts) -> dict[str, list[tuple[int, str]]]:
    """Return of each queue its leader at each look that found one; made once."""
    return facts.once(_leaders)


def _leaders(facts: Facts) -> dict[str, list[tuple[int, str]]]:
    """All queues in one pass, as they may be thousands."""
    looks: dict[str, list[tuple[int, str]]] = {}
    for event in facts.of_kind(SampleEvent):
        for queue, row in event.queues.items():
            if row.get("leader"):
                looks.setdefault(queue, []).append((event.t_us, row["leader"]))
    return looks


class Calm:
    """When nothing disturbed the brokers of a queue."""

    def __init__(self, disturbed: Times) -> None:
        told = list(periods(disturbed))
        self._starts = np.array([float(start) for start, _ in told])
        self._ends = np.array([-np.inf, *(float(end) for _, end in told)])

    @property
    def at_last_us(self) -> float:
        """From when on nothing disturbed them any more; infinite if there is no such moment."""
        return float(self._ends[-1])

    def within(self, start_us: Array, end_us: Array) -> Array:
        """Of each period from ``start_us`` to ``end_us``, both included, whether it was calm."""
        calm: Array = self._ends[np.searchsorted(self._starts, end_us, "right")] <= start_us
        return calm


def calm_of(facts: Facts, queue: int) -> Calm:
    """Of the queue of that index; made once."""
    return facts.once(_calm, queue)


def _calm(facts: Facts, queue: int) -> Calm:
    return Calm(disturbances(facts, facts.queue_name(queue)))


def calm_of_copies(facts: Facts, queue: int) -> Calm:
    """Return when nothing disturbed the brokers that may have the queue of that index; made once."""
    return facts.once(_calm_of_copies, queue)


def _calm_of_copies(facts: Facts, queue: int) -> Calm:
    return Calm(of_copies(facts, facts.queues[queue]) if queue < len(facts.queues) else NEVER)
