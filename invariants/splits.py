"""Splits that a mode let happen, and which side gave way when they were healed: who lost, and what that permits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from invariants.facts import ClusterFacts, Facts
from invariants.oracle import foresee, permitted_loss
from invariants.pauses import RESTARTED_WITHIN_S
from invariants.situations import Period, Situation, possible_window, situations


@dataclass(frozen=True)
class Split:
    """``situation``: the cut, at its longest. ``gave_way_us``: the nodes that restarted because of it, and when each
    was first seen to be away."""

    situation: Situation
    gave_way_us: Mapping[str, float]


def splits(facts: Facts, cluster: ClusterFacts, span_us: Period) -> Iterator[Split]:
    """The cuts after which something must be undone, as far as nodes can have noticed them."""
    for situation in situations(cluster.nodes, facts.steps, possible_window(facts), span_us):
        if not situation.may_be_noticed(cluster.net_ticktime_s):
            continue
        aftermath = foresee(cluster, situation).aftermath
        if aftermath == "restarts":
            yield Split(situation, _restarted(facts, situation))
        elif aftermath == "split":
            yield Split(situation, _restarted_by_hand(facts, cluster, situation))


def _restarted(facts: Facts, situation: Situation) -> dict[str, float]:
    """The nodes that were away soon after the healing though no step had taken them away."""
    away: dict[str, float] = {}
    until_us = situation.end_us + RESTARTED_WITHIN_S * 1e6
    for t_us, states in facts.sightings(situation.end_us, until_us):
        if t_us < until_us:
            taken = {node for step in facts.steps if step.possible_us[0] <= t_us for node in step.down}
            for node in (n for n, state in states.items() if state != "up" and n not in taken):
                away.setdefault(node, t_us)
    return away


def _restarted_by_hand(facts: Facts, cluster: ClusterFacts, situation: Situation) -> dict[str, float]:
    """The side that an operator trusted less: the first that a step took away whole."""
    sides = foresee(cluster, situation).sides
    later = sorted((s for s in facts.steps if s.possible_us[0] >= situation.start_us), key=lambda s: s.possible_us)
    for step in later:
        if any(side <= step.down for side in sides):
            return dict.fromkeys(step.down, step.sure_us[0])
    return {}


@dataclass(frozen=True)
class LossPermit:
    """Messages of the queue of this index may be lost if that node confirmed them in that time."""

    queue: int
    node: int
    confirmed_us: Period
    reason: str


def loss_permits(facts: Facts) -> tuple[LossPermit, ...]:
    """What the partition handling permits to be lost; no permit is needed for what was not confirmed."""
    cluster, span_us = facts.cluster, facts.publishing_us
    if cluster is None or span_us is None:
        return ()
    return tuple(
        LossPermit(index, cluster.nodes.index(node), (split.situation.start_us, away_us), reason)
        for split in splits(facts, cluster, span_us)
        for index, queue in enumerate(facts.queues)
        if (reason := permitted_loss(queue, cluster, split.situation))
        for node, away_us in split.gave_way_us.items()
    )
