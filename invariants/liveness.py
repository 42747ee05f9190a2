"""When a queue is promised to take messages: the one model of it, which all checkers share.

A node talks to another if both run and no link between them is cut in either direction (a connection needs
both). Where the cluster pauses minorities, only a component of more than half of *all* nodes goes on. Within
what goes on, a quorum queue needs more than half of its members and a mirrored queue one mirror; which of the
mirrors are synchronised is not modelled, so availability suits mirrored queues that synchronise by themselves.
A component in which not everybody sees everybody is promised nothing.

Sources: RabbitMQ "Clustering and Network Partitions", "Quorum Queues", "Classic Queue Mirroring".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from invariants.facts import ClusterFacts, Facts, Pair, QueueFacts, Step

Period = tuple[float, float]


@dataclass(frozen=True)
class Situation:
    """A time in which nothing changed: who ran, and which pairs of nodes were cut apart."""

    start_us: float
    end_us: float
    up: frozenset[str]
    cut: frozenset[Pair]

    @property
    def components(self) -> tuple[frozenset[str], ...]:
        """The running nodes, grouped by whom they reach, if need be by way of others."""
        left, groups = set(self.up), []
        while left:
            group, border = set(), {left.pop()}
            while border:
                node = border.pop()
                group.add(node)
                reached = {other for other in left if frozenset((node, other)) not in self.cut}
                border |= reached
                left -= reached
            groups.append(frozenset(group))
        return tuple(sorted(groups, key=sorted))

    def component_of(self, node: str) -> frozenset[str]:
        return next((group for group in self.components if node in group), frozenset())

    def is_partial(self, component: Collection[str]) -> bool:
        """Whether two of the component are cut apart that still reach each other by way of a third."""
        return any(pair <= frozenset(component) for pair in self.cut)


def situations(
    nodes: Collection[str], steps: Iterable[Step], window_us: Callable[[Step, str | None], Period], span_us: Period
) -> list[Situation]:
    """``span_us`` split wherever something changes. ``window_us`` tells when a step acts on a node (None: on links)."""
    downs = [(node, window_us(step, node)) for step in steps for node in step.down]
    cuts = [(step.cut, window_us(step, None)) for step in steps if step.cut]
    inside = {t for _, period in [*downs, *cuts] for t in period if span_us[0] < t < span_us[1]}
    edges = [span_us[0], *sorted(inside), span_us[1]]
    return [
        Situation(
            start,
            end,
            up=frozenset(nodes) - {node for node, period in downs if _covers(period, start)},
            cut=frozenset().union(*(pairs for pairs, period in cuts if _covers(period, start))),
        )
        for start, end in itertools.pairwise(edges)
    ]


def _covers(period: Period, t_us: float) -> bool:
    return period[0] <= t_us < period[1]


def possible_window(facts: Facts) -> Callable[[Step, str | None], Period]:
    """The longest time that a step may act: a node that was down is so until it was seen up again."""

    def window(step: Step, node: str | None) -> Period:
        start, end = step.possible_us
        return (start, end) if node is None else (start, facts.first_up_us(node, after_us=end))

    return window


def is_promised(queue: QueueFacts, cluster: ClusterFacts, situation: Situation) -> bool:
    for component in situation.components:
        if situation.is_partial(component) or (cluster.pauses_minorities and 2 * len(component) <= len(cluster.nodes)):
            continue
        members = queue.members & component
        needed = len(queue.members) // 2 + 1 if queue.kind == "quorum" else 1
        if len(members) >= needed:
            return True
    return False


def unpromised(
    facts: Facts, cluster: ClusterFacts, queue: QueueFacts, span_us: Period, *, grace_s: float
) -> list[Period]:
    """When ``queue`` may stand still: whenever it is not promised, and ``grace_s`` from the end of that."""
    periods = situations(cluster.nodes, facts.steps, possible_window(facts), span_us)
    bad = [(s.start_us, s.end_us + grace_s * 1e6) for s in periods if not is_promised(queue, cluster, s)]
    return merged(bad)


def unsettled(facts: Facts, cluster: ClusterFacts, span_us: Period, *, grace_s: float) -> list[Period]:
    """The ``grace_s`` after each change of nodes or links."""
    periods = situations(cluster.nodes, facts.steps, possible_window(facts), span_us)
    return merged((s.start_us, s.start_us + grace_s * 1e6) for s in periods[1:])


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
