"""Who ran, and who was cut from whom, at each time of a run."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from invariants.facts import Facts, Pair, Step

Period = tuple[float, float]

#: A silent peer is noticed after 0.75 to 1.25 times ``net_ticktime`` (Erlang, kernel application), a closed connection
#: and a dead process at once.
TICKS_MIN = 0.75
TICKS_MAX = 1.25
Side = frozenset[str]


@dataclass(frozen=True)
class Situation:
    """A time in which nothing changed: who ran, and which pairs of nodes were cut apart. ``closed`` are those of
    them whose connections were closed, so that both ends know at once."""

    start_us: float
    end_us: float
    up: Side
    cut: frozenset[Pair]
    closed: frozenset[Pair] = frozenset()

    @property
    def components(self) -> tuple[Side, ...]:
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

    def reach_of(self, node: str) -> Side:
        """The running nodes with which ``node`` talks itself, and ``node``."""
        return frozenset(other for other in self.up if frozenset((node, other)) not in self.cut)

    @property
    def lasts_us(self) -> float:
        return self.end_us - self.start_us

    def lost_since(self, before: Situation) -> bool:
        """Whether a node or a link is missing that was there before."""
        return bool(before.up - self.up or self.cut - before.cut)

    def may_be_noticed(self, net_ticktime_s: float) -> bool:
        return bool(self.closed) or self.lasts_us >= TICKS_MIN * net_ticktime_s * 1e6

    def cut_within(self, component: Collection[str]) -> frozenset[Pair]:
        """Pairs of the component that are cut apart and still reach each other by way of a third."""
        members = frozenset(component)
        return frozenset(pair for pair in self.cut if pair <= members)


def situations(
    nodes: Collection[str], steps: Iterable[Step], window_us: Callable[[Step, str | None], Period], span_us: Period
) -> list[Situation]:
    """``span_us`` split wherever something changes. ``window_us`` tells when a step acts on a node (None: on links)."""
    downs = [(node, window_us(step, node)) for step in steps for node in step.down]
    cuts = [(step, window_us(step, None)) for step in steps if step.cut]
    inside = {t for _, period in [*downs, *cuts] for t in period if span_us[0] < t < span_us[1]}
    edges = [span_us[0], *sorted(inside), span_us[1]]
    starts, everybody = edges[:-1], frozenset(nodes)
    down: list[set[str]] = [set() for _ in starts]
    cut: list[set[Pair]] = [set() for _ in starts]
    closed: list[set[Pair]] = [set() for _ in starts]
    for node, period in downs:
        for i in _covered(starts, period):
            down[i].add(node)
    for step, period in cuts:
        for i in _covered(starts, period):
            cut[i] |= step.cut
            closed[i] |= step.cut if step.sudden else frozenset()
    return [
        Situation(start, end, everybody - down[i], frozenset(cut[i]), frozenset(closed[i]))
        for i, (start, end) in enumerate(itertools.pairwise(edges))
    ]


def _covered(starts: Sequence[float], period: Period) -> range:
    """Which of the moments, in their order, the period covers."""
    return range(bisect_left(starts, period[0]), bisect_left(starts, period[1]))


def possible_window(facts: Facts) -> Callable[[Step, str | None], Period]:
    """The longest time that a step may act: a node that was down is so until it was seen up again."""

    def window(step: Step, node: str | None) -> Period:
        start, end = step.possible_us
        return (start, end) if node is None else (start, facts.first_up_us(node, after_us=end))

    return window
