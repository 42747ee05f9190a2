"""When a queue is promised to take messages, and is sent some: the one model of it, which all checkers share.

A queue is promised to take them while it is writable from some side (``invariants.oracle``), its cluster is not
being put together again after a split that its mode let happen, and no step keeps an alarm raised for which brokers
block publishers. It is sent none while the load pauses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from invariants.facts import NEVER_US, ClusterFacts, Facts, QueueFacts
from invariants.oracle import foresee, writable_from
from invariants.pauses import excused_pauses
from invariants.situations import Period, Side, Situation, possible_window, situations


@dataclass(frozen=True)
class Promises:
    """What a cluster promises its queues, worked out once for all of them.

    ``periods`` are its situations with each step at its longest; ``never`` are the times in which no queue is promised.
    """

    cluster: ClusterFacts
    periods: Sequence[Situation]
    never: Sequence[Period]

    def lacking(self, queue: QueueFacts, *, grace_s: float) -> list[Period]:
        """When ``queue`` may stand still: whenever it is not promised, and ``grace_s`` from the end of that."""
        bad = [(s.start_us, s.end_us) for s in self.periods if not writable_from(queue, self.cluster, s)]
        return merged((start, end + grace_s * 1e6) for start, end in [*bad, *self.never])


def promises(facts: Facts, cluster: ClusterFacts, span_us: Period) -> Promises:
    """Nodes that had a reason to pause, and did, are as good as down."""
    steps = [*facts.steps, *excused_pauses(facts, cluster, span_us)]
    periods = situations(cluster.nodes, steps, possible_window(facts), span_us)
    return Promises(cluster, periods, [*_unmended(cluster, periods), *_blocked(facts)])


def _unmended(cluster: ClusterFacts, periods: Sequence[Situation]) -> Iterable[Period]:
    """The times after a split that nobody mends, until an operator takes all nodes of a side down."""
    split: tuple[Side, ...] = ()
    for period in periods:
        forecast = foresee(cluster, period)
        if forecast.aftermath == "split" and period.may_be_noticed(cluster.net_ticktime_s):
            split = forecast.sides or (frozenset(cluster.nodes),)
        elif split and any(not side & period.up for side in split):
            split = ()
        elif split:
            yield period.start_us, period.end_us


def _blocked(facts: Facts) -> Iterable[Period]:
    """When publishers were seen to be blocked while a step blocked them, which it may until it is healed."""
    for step in facts.steps:
        for start, end in facts.blocked_us if step.blocks_publishers else ():
            common = max(start, step.possible_us[0]), min(end, step.possible_us[1])
            if common[0] < common[1]:
                yield common


def pauses(facts: Facts, span_us: Period) -> list[Period]:
    """When no queue is sent anything, by the load's own steps."""
    return merged((start, end) for start, end, rate_per_s in facts.rate.pieces(*span_us) if rate_per_s == 0)


def least_share(facts: Facts, period_us: Period, *, steady_per_s: float) -> float:
    """The part of the steady rate that can be asked for in all of that time: 1, but less while the target is below that
    of the steady phase, or, where that had none, below the rate that it reached."""
    return min(1.0, target_share(facts, period_us, steady_per_s=steady_per_s))


def target_share(facts: Facts, period_us: Period, *, steady_per_s: float) -> float:
    """The least target of that time as a part of that of the steady phase, more than 1 while the load peaks; 1 where
    there was no limit."""
    target_per_s, usual_per_s = facts.rate.least(*period_us), facts.rate.plain or steady_per_s
    return 1.0 if target_per_s is None else target_per_s / usual_per_s


def unsettled(
    facts: Facts, cluster: ClusterFacts, span_us: Period, *, grace_s: float, lost_grace_s: float
) -> list[Period]:
    """The time after each change of nodes or links, which an intermittent cut makes again and again: ``lost_grace_s``
    where a node or a link was lost and stays so, which must first be noticed, and ``grace_s`` where none was. That a
    node pauses belongs to its cut, that it comes back is a change."""
    periods = situations(cluster.nodes, facts.steps, possible_window(facts), span_us)
    changing = []
    for i, (before, now) in enumerate(itertools.pairwise(periods)):
        changing.append((now.start_us, now.start_us + grace_s * 1e6))
        if now.lost_since(before):
            found_us = next((s.start_us for s in periods[i + 2 :] if not s.lost_since(before)), NEVER_US)
            changing.append((now.start_us, min(now.start_us + lost_grace_s * 1e6, found_us)))
    back = [pause.possible_us[1] for pause in excused_pauses(facts, cluster, span_us)]
    changing += [(at_us, at_us + grace_s * 1e6) for at_us in back]
    flapping = [step.possible_us for step in facts.steps if step.intermittent]
    return merged([*changing, *((start, end + grace_s * 1e6) for start, end in flapping)])


def merged(periods: Iterable[Period]) -> list[Period]:
    """The union of the periods, in order and without overlap."""
    union: list[Period] = []
    for start, end in sorted(periods):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union


def demanded(span_us: Period, exempt: Sequence[Period]) -> list[Period]:
    """What is left of ``span_us`` without the ``exempt`` periods (in order, without overlap)."""
    left, start = [], span_us[0]
    for exempt_start, exempt_end in exempt:
        if start < exempt_start:
            left.append((start, min(exempt_start, span_us[1])))
        start = max(start, exempt_end)
    if start < span_us[1]:
        left.append((start, span_us[1]))
    return left
