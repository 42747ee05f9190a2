"""Who ran, and who was cut from whom, at each time of a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
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

    def component_of(self, node: str) -> Side:
        return next((group for group in self.components if node in group), frozenset())

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
    return [
        Situation(
            start,
            end,
            up=frozenset(nodes) - {node for node, period in downs if _covers(period, start)},
            cut=_union(step.cut for step, period in cuts if _covers(period, start)),
            closed=_union(step.cut for step, period in cuts if step.sudden and _covers(period, start)),
        )
        for start, end in itertools.pairwise(edges)
    ]


def _covers(period: Period, t_us: float) -> bool:
    return period[0] <= t_us < period[1]


def _union(sets: Iterable[frozenset[Pair]]) -> frozenset[Pair]:
    return frozenset().union(*sets)


def possible_window(facts: Facts) -> Callable[[Step, str | None], Period]:
    """The longest time that a step may act: a node that was down is so until it was seen up again."""

    def window(step: Step, node: str | None) -> Period:
        start, end = step.possible_us
        return (start, end) if node is None else (start, facts.first_up_us(node, after_us=end))

    return window
