"""Compute the truth: when links were cut and nodes away, surely and possibly, whichever steps overlap.

Injecting and healing take time. So a step surely acts from the end of its injection to the beginning of its healing. It
possibly acts from the beginning of its injection to the end of its healing. A link that is cut and whole in turns is
never surely cut. A node that a step took away is possibly away until it was seen up again. For a step that takes nodes
away in turns, such as a rolling restart, sightings decide which of them was away, and when.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.cluster_states import ClusterSide, ClusterState
from rabbitmq_resilience.checkers.cut_pairs import Pair
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import UNWATCHED_S_MAX
from rabbitmq_resilience.checkers.observed_faults import ObservedFault
from rabbitmq_resilience.checkers.times import NEVER, Period, Times, left, periods, times, union
from rabbitmq_resilience.model.durations import TICKS_MIN

#: Up to this number of cuts that may or may not act are combined in all ways.
COMBINED_MAX = 6


@dataclass(frozen=True)
class Bounds:
    """When a state surely held, and when it possibly held."""

    surely: Times = NEVER
    possibly: Times = NEVER

    def __or__(self, other: Bounds) -> Bounds:
        return Bounds(self.surely | other.surely, self.possibly | other.possibly)


@dataclass(frozen=True)
class Moment:
    """A period without a known change. ``worlds``: the possible states of the cluster in it.

    Nodes that may be away are all up or all away in each; of many links that may be cut, only the extremes are there.
    """

    start_us: float
    end_us: float
    worlds: frozenset[ClusterState]

    @property
    def worst(self) -> ClusterState:
        """Return the world in which everything is away and cut that may be."""
        return ClusterState(
            frozenset.intersection(*(world.up for world in self.worlds)),
            frozenset().union(*(world.cut for world in self.worlds)),
        )


@dataclass(frozen=True, eq=False)
class FaultTimeline:
    """What happened to nodes and links. ``steps``: those of the schedule and, if need be, other absences of nodes."""

    facts: Facts
    cluster: ClusterFacts
    steps: Sequence[ObservedFault]

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        return tuple(frozenset(pair) for pair in itertools.combinations(self.cluster.nodes, 2))

    @cached_property
    def cut(self) -> Mapping[Pair, Bounds]:
        """Return when each pair of nodes was cut apart."""
        return {pair: _bounds([step for step in self.steps if pair in step.cut]) for pair in self.pairs}

    @cached_property
    def away(self) -> Mapping[str, Bounds]:
        """Return when each node was taken away."""
        return {
            node: Bounds(
                union(times([self._surely_away(step, node)]) for step in self.steps if node in step.down),
                times(self.absences(node)),
            )
            for node in self.cluster.nodes
        }

    def absences(self, node: str, *, surely: bool = False) -> list[Period]:
        """Return when steps may have kept ``node`` away, at most: until it was seen up again. ``surely``: without steps
        whose nodes may serve all the same."""
        steps = [step for step in self.steps if not (surely and step.effect.nodes_may_serve)]
        return [absence for step in steps for absence in self.absences_by(step, node)]

    def absences_by(self, step: ObservedFault, node: str) -> list[Period]:
        """Return when the step may have taken ``node`` away.

        A step that takes its nodes away in turns did so only if that was seen, or if the node was not observed. Nodes
        that may serve all the same may be away at any time in it. If any other node is up again before the step begins
        to heal, as after another step has started it, only the healing may still act on it.
        """
        if node not in step.down or not step.injected:
            return []
        if step.effect.intermittent:
            return self._seen_away(step, node)
        start_us, end_us = self._absence(step, node)
        if step.effect.nodes_may_serve:
            return [(start_us, end_us)]
        _, up_us = self._up_within(step, node)
        return [(start_us, end_us)] if up_us is None else [(start_us, up_us), (step.sure_us[1], end_us)]

    def _surely_away(self, step: ObservedFault, node: str) -> Period:
        """Return when the step surely kept ``node`` away: if nodes may serve all the same, between sightings of it
        down."""
        if step.effect.nodes_may_serve:
            return self._seen_down(step, node)
        away_us, up_us = self._up_within(step, node)
        return step.sure_us if up_us is None else (step.sure_us[0], away_us)

    def _seen_down(self, step: ObservedFault, node: str) -> Period:
        """Return the time from the first to the last sighting of ``node`` down, before it was seen otherwise, while the
        step surely acted."""
        looks = [(t_us, states[node]) for t_us, states in self.facts.sightings(*step.sure_us) if node in states]
        from_first = itertools.dropwhile(lambda look: look[1] != "down", looks)
        down_us = [t_us for t_us, _ in itertools.takewhile(lambda look: look[1] == "down", from_first)]
        return (down_us[0], down_us[-1]) if down_us else (step.sure_us[0], step.sure_us[0])

    def _up_within(self, step: ObservedFault, node: str) -> tuple[float, float | None]:
        """Return the last sighting of ``node`` away before it was seen up again, and that next sighting, if both are
        within the time in which the step surely acted; else 0 and None.

        A step of several nodes may still be taking the others away while one is already back. Such a node was seen away
        before the step surely acted, and then only up, at least twice.
        """
        start_us, end_us = step.sure_us
        away_us: float | None = None
        up_us: list[float] = []
        for t_us, states in self.facts.sightings(start_us, end_us):
            if states.get(node, "up") != "up":
                away_us = t_us
            elif node in states and t_us < end_us:
                if away_us is not None:
                    return away_us, t_us
                up_us.append(t_us)
        if away_us is None and len(up_us) > 1 and self.seen(node, (step.possible_us[0], start_us)) - {"up"}:
            return start_us, up_us[0]
        return 0.0, None

    def _seen_away(self, step: ObservedFault, node: str) -> list[Period]:
        """Return when ``node`` may have been away: each from the sighting before until it was seen up.

        Such a time may end after the step. Time without sightings counts.

        A step takes the process of each node away once. Absences after that was seen are not of this step.
        """
        start_us, end_us = step.possible_us
        looks = [(t_us, states[node]) for t_us, states in self.facts.sightings(start_us, end_us) if node in states]
        found, up_us, seen = [], start_us, set[str]()
        for t_us, state in [*looks, (self.facts.first_up_us(node, after_us=end_us), "up")]:
            if state != "up":
                seen.add(state)
                continue
            if seen or t_us - up_us > UNWATCHED_S_MAX * 1e6:
                found.append((up_us, t_us))
            if "down" in seen:
                break
            up_us, seen = t_us, set()
        return found

    def _absence(self, step: ObservedFault, node: str) -> Period:
        start_us, end_us = step.possible_us
        return start_us, self.facts.first_up_us(node, after_us=end_us)

    @cached_property
    def as_apart(self) -> FaultTimeline:
        """Return the same truth with suspended nodes as cut off instead. They come back as they were, and the others
        have continued without them (RabbitMQ, "Clustering and Network Partitions", suspend and resume). Nodes that one
        step suspended together missed nothing of each other."""
        return FaultTimeline(self.facts, self.cluster, [self._cut_off(step) for step in self.steps])

    def suspended_at(self, t_us: float) -> ClusterSide:
        """Return the nodes that steps may have suspended then."""
        acting = (step for step in self.steps if step.possible_us[0] <= t_us < step.possible_us[1])
        return frozenset().union(*map(self._suspended_by, acting))

    def _suspended_by(self, step: ObservedFault) -> ClusterSide:
        return frozenset(node for node in step.down if self._was_suspended(step, node))

    def _cut_off(self, step: ObservedFault) -> ObservedFault:
        """Return the step with a cut of the nodes that it suspended, instead of their absence."""
        suspended = self._suspended_by(step)
        cut = frozenset(pair for pair in self.pairs if len(pair & suspended) == 1)
        away = tuple(node for node in step.effect.nodes_down if node not in suspended)
        return step.with_cut(cut, nodes_down=away) if suspended else step

    def _was_suspended(self, step: ObservedFault, node: str) -> bool:
        """Return whether ``node`` was seen suspended, and never down before the step began to heal.

        What another step does to the node as it wakes up does not count.
        """
        if step.effect.nodes_may_serve or not step.injected:
            return False
        if "suspended" not in self.seen(node, self._absence(step, node)):
            return False
        return "down" not in self.seen(node, (step.possible_us[0], step.sure_us[1] - 1))

    def seen(self, node: str, period: Period) -> frozenset[str]:
        """Return the states in which ``node`` was seen in that period."""
        return frozenset(states[node] for _, states in self.facts.sightings(*period) if node in states)

    @cached_property
    def broken(self) -> Times:
        """Return when it is not sure that all nodes were there and saw each other."""
        return union(bounds.possibly for bounds in (*self.cut.values(), *self.away.values()))

    def calm(self, span_us: Period, *, lasts_s: float) -> list[Period]:
        """Return the periods of at least ``lasts_s`` in which all nodes were there and saw each other."""
        return [(start, end) for start, end in left(span_us, self.broken) if end - start >= lasts_s * 1e6]

    @cached_property
    def sudden(self) -> Times:
        """Return when connections may be closed, so that both ends learn of a cut at once."""
        return times(step.possible_us for step in self.steps if step.cut and step.effect.sudden)

    def noticeable(self, of: Times, *, sudden: Times) -> Iterator[tuple[Period, float]]:
        """Yield the periods of ``of`` that brokers may notice, and from when: at once if a part of the period is
        ``sudden``, else when the ticks are missed, if the period lasts until then."""
        ticks_us = TICKS_MIN * self.cluster.net_ticktime_s * 1e6
        for start, end in periods(of):
            if not (times([(start, end)]) & sudden).empty:
                yield (start, end), start
            elif end - start >= ticks_us:
                yield (start, end), start + ticks_us

    @property
    def suspended_edges_us(self) -> Sequence[float]:
        """Return when steps may have begun or ceased to suspend nodes."""
        return [t for step in self.steps if self._suspended_by(step) for t in step.possible_us]

    def moments(self, span_us: Period, *, also_us: Sequence[float] = ()) -> Iterator[Moment]:
        """Yield the moments of ``span_us`` in order. It is split at each change, and at the moments ``also_us``."""
        cuts = [(step, step.sure_us, step.possible_us) for step in self.steps if step.cut and step.injected]
        edges = {t for _, *acts in cuts for period in acts for t in period} | {*also_us}
        edges |= {
            t for both in self.away.values() for one in (both.surely, both.possibly) for p in periods(one) for t in p
        }
        inside = [span_us[0], *sorted(t for t in edges if span_us[0] < t < span_us[1]), span_us[1]]
        for start, end in itertools.pairwise(inside):
            middle = (start + end) / 2
            sure = [step.cut for step, surely, _ in cuts if surely[0] <= middle < surely[1]]
            open_ = [
                step.cut
                for step, surely, possibly in cuts
                if possibly[0] <= middle < possibly[1] and not surely[0] <= middle < surely[1]
            ]
            up = [self._up(middle, surely=False), self._up(middle, surely=True)]
            worlds = {ClusterState(side, cut) for cut in _combined(sure, open_) for side in up}
            yield Moment(start, end, frozenset(worlds))

    def _up(self, t_us: float, *, surely: bool) -> ClusterSide:
        """Return the nodes that were surely up, or those that possibly were."""
        away = {node: both.possibly if surely else both.surely for node, both in self.away.items()}
        return frozenset(node for node in self.cluster.nodes if t_us not in away[node])


def truth_of(facts: Facts, cluster: ClusterFacts) -> FaultTimeline:
    """Return the truth of the schedule."""
    return facts.once(_truth, cluster)


def _truth(facts: Facts, cluster: ClusterFacts) -> FaultTimeline:
    return FaultTimeline(facts, cluster, [_feared(step, cluster) for step in facts.steps])


def _feared(step: ObservedFault, cluster: ClusterFacts) -> ObservedFault:
    """Return the step with additional cuts that brokers may see in it, and which are never sure.

    A peer is taken for dead now and then if its ticks come later than brokers wait for them. So is a starved peer,
    which the kernel may also end.
    """
    patience_s = TICKS_MIN * cluster.net_ticktime_s
    late = {pair for pair, slow_s in step.slow_s.items() if slow_s >= patience_s}
    starved = {frozenset((node, peer)) for node in step.starved for peer in cluster.nodes if peer != node}
    if not late | starved:
        return step
    return step.with_cut(late | starved, sudden=step.effect.sudden or bool(starved), intermittent=True)


def _bounds(steps: Sequence[ObservedFault]) -> Bounds:
    return Bounds(times(step.sure_us for step in steps), times(step.possible_us for step in steps))


def _combined(sure: Sequence[frozenset[Pair]], open_: Sequence[frozenset[Pair]]) -> Iterator[frozenset[Pair]]:
    """Yield what may be cut: everything that surely is, with any combination of ``open_``. If there are too many
    combinations, only none and all of it."""
    known: frozenset[Pair] = frozenset().union(*sure)
    chosen = range(len(open_) + 1) if len(open_) <= COMBINED_MAX else (0, len(open_))
    for count in chosen:
        for some in itertools.combinations(open_, count):
            yield known.union(*some)
