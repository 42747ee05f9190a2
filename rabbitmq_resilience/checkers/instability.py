"""Find when brokers may have taken each other for gone, so that their views of clients may have differed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from rabbitmq_resilience.checkers.columns import Array
from rabbitmq_resilience.checkers.facts import Facts, QueueFacts
from rabbitmq_resilience.checkers.observed_faults import NEVER_US, ObservedFault
from rabbitmq_resilience.checkers.times import NEVER, Period, Times, periods, times
from rabbitmq_resilience.history.events import Effect, FaultEvent, NodesEvent, SampleEvent
from rabbitmq_resilience.model.durations import TICKS_MAX, TICKS_MIN

#: How long brokers go on with what a disturbance began, after the time in which they notice it.
SETTLED_WITHIN_S = 10.0
#: Operations of these kinds leave leaders where they are.
_MOVES_NO_LEADER = frozenset({"enable_feature_flag", "purge_queue", "delete_queue", "alarm"})


def disturbances(facts: Facts, queue: str) -> Times:
    """Return when the brokers of ``queue`` were disturbed, or may have been.

    Disturbances are steps that act on brokers or on links between them, nodes that were not up, partitions that a node
    reported, and changes of the queue's leader. Each lasts until it must have been noticed and mended.
    """
    everywhere = facts.once(_of_all_queues)
    moves = times(_moves(facts, queue))
    return everywhere if moves.empty else everywhere | moves


def _of_all_queues(facts: Facts) -> Times:
    steps = _steps(facts, lambda _, effect: acts_on_brokers(effect))
    return times([*steps, *_absences(facts), *_partitions(facts)])


def of_copies(facts: Facts, queue: QueueFacts) -> Times:
    """Return when the brokers that have ``queue``, or may come to have it, may have forgotten what they had delivered.

    The causes are steps that take them away, starve them, cut or slow links to them, or move leaders; a broker that was
    not up or reported a partition; and a change of the queue's leader. Each lasts until it must have been noticed and
    mended.
    """
    return times(
        [
            *_steps(facts, lambda step, effect: _acts_on(step, effect, queue, queue.holders)),
            *_absences(facts, queue.holders),
            *_partitions(facts, queue.holders),
            *_moves(facts, queue.name),
        ]
    )


def lost_each_other(facts: Facts, queue: QueueFacts, clients: frozenset[str]) -> Times:
    """Return when brokers that have ``queue``, or have ``clients`` of it, may have taken each other for gone.

    The causes are those of ``of_copies``, except links that are slower by less than it takes to miss a tick.
    """
    mine = queue.holders | clients
    return times(
        [
            *_steps(facts, lambda step, effect: _acts_on(step, _felt(facts, effect), queue, mine)),
            *_absences(facts, mine),
            *_partitions(facts, mine),
            *_moves(facts, queue.name),
        ]
    )


def _felt(facts: Facts, effect: Effect | None) -> Effect | None:
    missed_s = TICKS_MIN * facts.cluster.net_ticktime_s if facts.cluster else 0.0
    if effect is None or not 0 < effect.slow_s < missed_s:  # how late lost packets come is not known
        return effect
    return replace(effect, links_slow=frozenset())


def acts_on_copies(facts: Facts, step: ObservedFault, queue: QueueFacts) -> bool:
    """Return whether a step acts on brokers that may have ``queue``, or on links to them, or may move its leader."""
    effects = facts.once(_effects)
    return _acts_on(step, effects.get(step.number), queue, queue.holders)


def _effects(facts: Facts) -> dict[int, Effect]:
    return {event.step: event.effect for event in facts.of_kind(FaultEvent) if event.effect is not None}


def _acts_on(step: ObservedFault, effect: Effect | None, queue: QueueFacts, mine: frozenset[str]) -> bool:
    """Return whether the step acts on the nodes in ``mine``, or may move the leader of the queue.

    A step whose effect was not recorded may do both.
    """
    if effect is None:
        return True
    if effect.operation:
        return len(queue.holders) > 1 and step.fault not in _MOVES_NO_LEADER and not step.effect.becomes
    if mine & {*effect.nodes_down, *effect.nodes_starved}:
        return True
    links = (*effect.links_cut, *effect.links_slow)
    return any(link.client is None and mine & {*link} for link in links)


def _after_us(facts: Facts) -> float:
    ticks_s = TICKS_MAX * facts.cluster.net_ticktime_s if facts.cluster else 0.0
    return (ticks_s + SETTLED_WITHIN_S) * 1e6


def _steps(facts: Facts, counts: Callable[[ObservedFault, Effect | None], bool]) -> Iterator[Period]:
    effects = facts.once(_effects)
    for step in facts.steps:
        if step.injected and counts(step, effects.get(step.number)):
            start_us, end_us = step.possible_us
            yield start_us, end_us + _after_us(facts)


def acts_on_brokers(effect: Effect | None) -> bool:
    """Return whether an effect acts on anything except clients and their links; True if the effect was not recorded.

    An alarm blocks publishers, and changes nothing between brokers.
    """
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
    """Yield a period for each finding: from the last look before it until ``after_us`` after the next clear look."""
    clear_us = -NEVER_US
    for (t_us, found), (next_us, _) in itertools.pairwise([*looks, (NEVER_US, False)]):
        if found:
            yield clear_us, next_us + after_us
        else:
            clear_us = t_us


def _moves(facts: Facts, queue: str) -> Iterator[Period]:
    """Yield a period for each change of the queue's leader: from the last look at the old one until it is settled."""
    looks = leaders(facts).get(queue, [])
    for (t_us, leader), (next_us, other) in itertools.pairwise(looks):
        if leader != other:
            yield t_us, next_us + _after_us(facts)


def leaders(facts: Facts) -> dict[str, list[tuple[int, str]]]:
    """Return (moment, leader) of each queue for each look that found a leader; computed once."""
    return facts.once(_leaders)


def _leaders(facts: Facts) -> dict[str, list[tuple[int, str]]]:
    """Read all queues in one pass, as there may be thousands."""
    looks: dict[str, list[tuple[int, str]]] = {}
    for event in facts.of_kind(SampleEvent):
        for queue, row in event.queues.items():
            if row.get("leader"):
                looks.setdefault(queue, []).append((event.t_us, row["leader"]))
    return looks


class Calm:
    """The times in which nothing disturbed the brokers of a queue."""

    def __init__(self, disturbed: Times) -> None:
        found = list(periods(disturbed))
        self._starts = np.array([float(start) for start, _ in found])
        self._ends = np.array([-np.inf, *(float(end) for _, end in found)])

    @property
    def at_last_us(self) -> float:
        """Return the moment from which nothing disturbed them any more; infinite if there is none."""
        return float(self._ends[-1])

    def within(self, start_us: Array, end_us: Array) -> Array:
        """Return a flag for each period from ``start_us`` to ``end_us``, both included: whether it was calm."""
        calm: Array = self._ends[np.searchsorted(self._starts, end_us, "right")] <= start_us
        return calm


def calm_of(facts: Facts, queue: int) -> Calm:
    """Return when brokers with the queue of that index, or with its consumers, did not lose each other; computed
    once."""
    return facts.once(_calm, queue)


def _calm(facts: Facts, queue: int) -> Calm:
    if queue >= len(facts.queues):
        return Calm(disturbances(facts, facts.queue_name(queue)))
    return Calm(lost_each_other(facts, facts.queues[queue], facts.once(_nodes_of_consumers)))


def _nodes_of_consumers(facts: Facts) -> frozenset[str]:
    """Return the nodes to which consumers were connected; all nodes if one is not recorded."""
    found = {event.node for _, event in facts.of_clients("consumer") if event.event == "connected"}
    return frozenset(found) if "" not in found else frozenset(facts.cluster.nodes if facts.cluster else ())


def calm_of_copies(facts: Facts, queue: int) -> Calm:
    """Return when nothing disturbed the brokers that may have the queue of that index; computed once."""
    return facts.once(_calm_of_copies, queue)


def _calm_of_copies(facts: Facts, queue: int) -> Calm:
    return Calm(of_copies(facts, facts.queues[queue]) if queue < len(facts.queues) else NEVER)
