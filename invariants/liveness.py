"""When a queue is promised to take messages: the one model of it, which all checkers share.

A queue is promised to take them while it is writable from some side (``invariants.oracle``), and its cluster is not
being put together again after a split that its mode let happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from invariants.facts import ClusterFacts, Facts, QueueFacts
from invariants.oracle import foresee, writable_from
from invariants.situations import Period, Side, Situation, possible_window, situations

#: How long the sides that lost may take to stop and to start again once a split is healed.
RESTARTED_WITHIN_S = 30.0


def _mended(cluster: ClusterFacts, periods: Sequence[Situation]) -> Iterable[Period]:
    """The times after a split in which its sides are put together again: by the brokers themselves, or by an operator
    who takes all nodes of a side down."""
    split: tuple[Side, ...] = ()
    for before, period in zip((None, *periods), periods, strict=False):
        forecast = foresee(cluster, period)
        noticed = before is not None and before.may_be_noticed(cluster.net_ticktime_s)
        if before is not None and noticed and foresee(cluster, before).aftermath == "restarts":
            yield period.start_us, period.start_us + RESTARTED_WITHIN_S * 1e6
        if forecast.aftermath == "split" and period.may_be_noticed(cluster.net_ticktime_s):
            split = forecast.sides or (frozenset(cluster.nodes),)
        elif split and any(not side & period.up for side in split):
            split = ()
        elif split:
            yield period.start_us, period.end_us


def unpromised(
    facts: Facts, cluster: ClusterFacts, queue: QueueFacts, span_us: Period, *, grace_s: float
) -> list[Period]:
    """When ``queue`` may stand still: whenever it is not promised, and ``grace_s`` from the end of that."""
    periods = situations(cluster.nodes, facts.steps, possible_window(facts), span_us)
    bad = [(s.start_us, s.end_us) for s in periods if not writable_from(queue, cluster, s)]
    return merged((start, end + grace_s * 1e6) for start, end in [*bad, *_mended(cluster, periods)])


def unsettled(facts: Facts, cluster: ClusterFacts, span_us: Period, *, grace_s: float) -> list[Period]:
    """The ``grace_s`` after each change of nodes or links, which an intermittent cut makes again and again."""
    periods = situations(cluster.nodes, facts.steps, possible_window(facts), span_us)
    changing = [(s.start_us, s.start_us) for s in periods[1:]]
    changing += [step.possible_us for step in facts.steps if step.intermittent]
    return merged((start, end + grace_s * 1e6) for start, end in changing)


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
