"""Splits that a mode let happen, and which side gave way when they were healed: who lost, and what that permits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from invariants.facts import NEVER_US, ClusterFacts, Facts
from invariants.oracle import foresee, permitted_loss
from invariants.situations import Period, Side, Situation, possible_window, situations


@dataclass(frozen=True)
class Split:
    """``situation``: the cut, at its longest. ``restarted``: the nodes that went away after it was healed, by
    themselves or by an operator's hand, and ``until_us`` when the last of them was back."""

    situation: Situation
    restarted: Side
    until_us: float


def splits(facts: Facts, cluster: ClusterFacts, span_us: Period) -> Iterator[Split]:
    """The cuts after which something must be undone, as far as nodes can have noticed them."""
    for situation in situations(cluster.nodes, facts.steps, possible_window(facts), span_us):
        if foresee(cluster, situation).aftermath != "whole" and situation.may_be_noticed(cluster.net_ticktime_s):
            away = _went_away_us(facts, after_us=situation.end_us)
            back = [facts.first_up_us(node, after_us=t_us) for node, t_us in away.items()]
            until_us = min(max(back, default=NEVER_US), span_us[1])
            yield Split(situation, frozenset(away), until_us)


def _went_away_us(facts: Facts, *, after_us: float) -> dict[str, int]:
    """When each node was first seen not to serve after that moment; nodes that always did are left out."""
    away: dict[str, int] = {}
    for t_us, states in facts.node_states:
        for node, state in states.items():
            if t_us >= after_us and state != "up":
                away.setdefault(node, t_us)
    return away


@dataclass(frozen=True)
class LossPermit:
    """Messages of the queue of this index may be lost if they were confirmed in that time by one of ``nodes``."""

    queue: int
    nodes: frozenset[int]
    confirmed_us: Period
    reason: str


def loss_permits(facts: Facts) -> tuple[LossPermit, ...]:
    """What the partition handling permits to be lost; no permit is needed for what was not confirmed."""
    cluster, span_us = facts.cluster, facts.publishing_us
    if cluster is None or span_us is None:
        return ()
    permits = []
    for split in splits(facts, cluster, span_us):
        losers = split.restarted or frozenset(cluster.nodes)
        numbers = frozenset(i for i, node in enumerate(cluster.nodes) if node in losers)
        confirmed_us = (split.situation.start_us, split.until_us)
        permits += [
            LossPermit(i, numbers, confirmed_us, reason)
            for i, queue in enumerate(facts.queues)
            if (reason := permitted_loss(queue, cluster, split.situation))
        ]
    return tuple(permits)
