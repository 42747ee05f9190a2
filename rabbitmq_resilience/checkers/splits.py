"""Find the splits that a mode allowed, the nodes that gave way in the end, and the losses that this permits.

Source: RabbitMQ, "Clustering and Network Partitions": one side of a split is trusted in the end, and the changes of the
other sides are lost. ``autoheal`` restarts the other sides by itself; with ``ignore`` an operator does.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.cluster_forms import unhandled_from_us
from rabbitmq_resilience.checkers.cluster_states import ClusterSide, ClusterState
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.fault_timeline import FaultTimeline, truth_of
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.oracle import predict
from rabbitmq_resilience.checkers.pauses import mended_us
from rabbitmq_resilience.checkers.split_ends import seen_over_us
from rabbitmq_resilience.checkers.times import Period, Times, periods, times

#: A node that restarts is away in more than one sighting; a single failed sighting is no restart.
LOOKS_AWAY_MIN = 2


@dataclass(frozen=True)
class SplitRound:
    """A time in which at least one node was away.

    ``gave_way_us``: the nodes that went away in it, or before it within the split, and when each last went; what such a
    node alone knew is lost then. ``survivors``: the nodes of which one was trusted in it.
    """

    gave_way_us: Mapping[str, float]
    survivors: tuple[str, ...]


@dataclass(frozen=True)
class Split:
    """A time in which nodes may have continued apart from each other, until its consequences are over. The next split
    may begin before that.

    ``apart_us``: the time itself. ``over_us``: when the consequences are over. ``holders``: the nodes that have the
    item or queue in question. ``partial``: whether a node may have seen others that did not see each other. ``sides``:
    when each group of nodes may have been a side; the remaining nodes of it continue until all is over. ``absences``:
    when each node may have gone away and come back, until all was over. ``sure_absences``: the same without steps whose
    nodes may serve all the same. ``returned_us``: when each node first came back within that time; it joins one of the
    sides.
    """

    apart_us: Period
    over_us: float
    holders: ClusterSide
    partial: bool
    sides: Mapping[ClusterSide, tuple[Period, ...]]
    absences: Mapping[str, tuple[Period, ...]]
    sure_absences: Mapping[str, tuple[Period, ...]]
    returned_us: Mapping[str, float]

    @cached_property
    def rounds(self) -> tuple[SplitRound, ...]:
        """Return the rounds of the split.

        A cut that comes and goes is healed more than once, and each time another side may be trusted. If all nodes went
        away at once, any of them may have been trusted, but not all. A node that was back and goes away again begins
        another round.
        """
        all_away = times(period for absences in self.absences.values() for period in absences)
        return tuple(self._round(part) for period in periods(all_away) for part in self._parted(period))

    def _parted(self, away_us: Period) -> Iterator[Period]:
        again = {start for absences in self.absences.values() for start in _gone_again(absences, away_us)}
        yield from itertools.pairwise([away_us[0], *sorted(again), away_us[1]])

    def _round(self, away_us: Period) -> SplitRound:
        starts = {node: [start for start, _ in periods] for node, periods in self.absences.items()}
        gave_way_us = {
            node: max(t for t in mine if t < away_us[1]) for node, mine in starts.items() if mine[0] < away_us[1]
        }
        gone = {
            node
            for node, absences in self.absences.items()
            if any(start < away_us[1] and away_us[0] < back_us for start, back_us in absences)
        }
        had = sorted(frozenset().union(*self.sides) & self.holders)
        return SplitRound(gave_way_us, tuple(node for node in had if node not in gone) or tuple(had))

    @cached_property
    def may_be_ended(self) -> bool:
        """Return whether all nodes of one side may have gone away after the last parting."""
        return self._ended_us(self.absences) < NEVER_US

    @cached_property
    def ended_us(self) -> float:
        """Return the earliest time at which all nodes of one side had surely gone away after the last parting; or
        NEVER_US."""
        return self._ended_us(self.sure_absences)

    def _ended_us(self, gone: Mapping[str, Sequence[Period]]) -> float:
        """Return when the split ended if the nodes were away as ``gone`` says. For a partial split all nodes must have
        gone away."""
        sides = [frozenset().union(*self.sides)] if self.partial else list(self.sides)
        parted_us = max(start for spans in self.sides.values() for start, _ in spans)
        gone_us = {
            node: max((start for start, back_us in absences if back_us >= self.apart_us[1]), default=-1)
            for node, absences in gone.items()
        }
        ends = [[gone_us.get(node, -1) for node in side] for side in sides]
        return min((max(end) for end in ends if min(end) >= parted_us), default=NEVER_US)

    def lost_with(self, survivor: str, round_: SplitRound) -> Mapping[str, Times]:
        """Return, for each node, when it took changes that may be lost if ``survivor`` is trusted.

        Only its own side may have known them, and all holders of that side gave way afterwards.
        """
        found: dict[str, list[Period]] = defaultdict(list)
        gave_way_us = round_.gave_way_us
        for side, spans in self.sides.items():
            had = side & self.holders
            gone_us = [gave_way_us.get(node, -1) for node in had]
            for start, end in spans if survivor not in had else ():
                for node in side if min(gone_us) >= start else ():
                    until_us = gave_way_us[node] if node in had else max(gone_us)
                    found[node].append((start, min(end, until_us)))
        for node, since_us in self.returned_us.items() if found else ():
            until_us = max(
                gave_way_us.get(holder, -1) for holder in ({node} & self.holders or self.holders - {survivor})
            )
            if node != survivor and until_us > since_us:
                found[node].append((since_us, until_us))
        return {node: times(spans) for node, spans in found.items()}

    def were_apart(self, one: str, other: str, taken_us: Period) -> bool:
        """Return whether the two nodes may have taken something on two sides of the split within that time."""
        first_us, last_us = taken_us
        return (
            self.apart_us[0] <= first_us
            and last_us < self.over_us
            and any(one in side and other not in side and spans[0][0] <= last_us for side, spans in self.sides.items())
        )


def _gone_again(absences: Sequence[Period], within_us: Period) -> Iterator[float]:
    """Yield the moments at which a node went away that had gone and come back within that time."""
    back_us = NEVER_US
    for start, end in absences:
        if within_us[0] <= start < within_us[1]:
            if start > back_us:
                yield start
            back_us = end if back_us == NEVER_US else max(back_us, end)


def splits(
    facts: Facts, cluster: ClusterFacts, span_us: Period, holders: ClusterSide | None = None
) -> tuple[Split, ...]:
    """Return the splits that nodes can have noticed, in which more than one side had what ``holders`` have. None: all
    nodes are holders."""
    return facts.once(_splits, cluster, span_us, holders or frozenset(cluster.nodes)) if cluster.splits else ()


def _splits(facts: Facts, cluster: ClusterFacts, span_us: Period, holders: ClusterSide) -> tuple[Split, ...]:
    return tuple(_found(truth_of(facts, cluster), span_us, holders))


def _found(as_it_was: FaultTimeline, span_us: Period, holders: ClusterSide) -> Iterator[Split]:
    cluster, truth = as_it_was.cluster, as_it_was.as_apart
    found: dict[ClusterSide, list[Period]] = defaultdict(list)
    partial: list[Period] = []
    handled_us = span_us[0], min(span_us[1], max(span_us[0], unhandled_from_us(truth.facts)))
    moments = truth.moments(handled_us, also_us=as_it_was.suspended_edges_us)
    for moment in moments if handled_us[0] < handled_us[1] else ():
        period_us = moment.start_us, moment.end_us
        still = as_it_was.suspended_at((moment.start_us + moment.end_us) / 2)
        for side in {side for world in moment.worlds for side in sides_apart(cluster, world, holders, still)}:
            found[side].append(period_us)
        if any(world.cut_within(component) for world in moment.worlds for component in world.components):
            partial.append(period_us)
    apart = times(period for spans in found.values() for period in spans)
    for (start, healed), _ in truth.noticeable(apart, sudden=truth.sudden):
        # An operator may end the split at any time, and until then each side keeps its own changes.
        end = mended_us(as_it_was, healed) if cluster.heals_splits else NEVER_US
        here = times([(start, healed)])
        if (times(partial) & here).empty:
            apart_then = [side & holders for side, spans in found.items() if not (times(spans) & here).empty]
            end = min(end, seen_over_us(as_it_was, apart_then, dict(_absences(truth, (start, end))), healed))
        sides = {
            side: tuple((a, end) for a, _ in periods(times(spans)) if start <= a < healed)
            for side, spans in found.items()
        }
        absences = dict(_absences(truth, (start, end)))
        sure_absences = dict(_absences(truth, (start, end), surely=True))
        yield Split(
            (start, healed),
            end,
            holders,
            not (times(partial) & here).empty,
            {side: spans for side, spans in sides.items() if spans},
            absences,
            sure_absences,
            dict(_returned(truth, absences, (start, end))),
        )


def sides_apart(
    cluster: ClusterFacts, world: ClusterState, holders: ClusterSide, still: ClusterSide = frozenset()
) -> Iterator[ClusterSide]:
    """Yield the groups of nodes that may continue alone with something that ``holders`` have.

    Brokers that see each other in part break off further connections by themselves, and then any node may be alone
    (rabbit_node_monitor, "Partial partition detected"). A node that is no holder takes changes for any of the holders.
    Nodes that were suspended together, ``still``, did not pause meanwhile: they continue where they were.
    """
    forecast = predict(cluster, world)
    woken = [c for c in world.components if c <= still and c not in forecast.sides and not world.cut_within(c)]
    if forecast.aftermath == "whole" and not (woken and forecast.sides):
        return
    holders &= world.up
    partial = [component for component in world.components if world.cut_within(component)]
    alone = [(node, component) for component in partial for node in component & holders]
    sides = [*forecast.sides, *woken, *(frozenset({node}) for node, _ in alone)]
    sides += [frozenset({node, other}) for node, component in alone for other in component - holders]
    for side in sides:
        if side & holders and holders - side:
            yield side


def _absences(
    truth: FaultTimeline, period_us: Period, *, surely: bool = False
) -> Iterator[tuple[str, tuple[Period, ...]]]:
    """Yield each node with the absences that began in that time: by steps, and as seen. ``surely``: without steps whose
    nodes may serve all the same."""
    for node in truth.cluster.nodes:
        by_steps = truth.absences(node, surely=surely)
        taken = [absence for absence in by_steps if period_us[0] <= absence[0] < period_us[1]]
        own = [(t_us, truth.facts.first_up_us(node, after_us=t_us)) for t_us in _went_us(truth.facts, node, period_us)]
        if taken or own:
            yield node, tuple(sorted([*taken, *own]))


def _returned(
    truth: FaultTimeline, absences: Mapping[str, tuple[Period, ...]], period_us: Period
) -> Iterator[tuple[str, float]]:
    """Yield each node that came back in that time, and when it first did."""
    for node in truth.cluster.nodes:
        backs_us = [back_us for _, back_us in (*truth.absences(node), *absences.get(node, ()))]
        within = [t_us for t_us in backs_us if period_us[0] <= t_us < period_us[1]]
        if within:
            yield node, min(within)


def _went_us(facts: Facts, node: str, period_us: Period) -> Iterator[float]:
    """Yield when ``node`` went away, if at least two sightings in a row did not find it up.

    A suspension alone does not count.
    """
    looks, away_us = 0, 0.0
    for t_us, states in facts.sightings(*period_us):
        state = states.get(node)
        if state == "up" or (state == "suspended" and not looks):  # in these states it keeps what it had before
            looks = 0
            continue
        looks += 1
        away_us = t_us if looks == 1 else away_us
        if looks == LOOKS_AWAY_MIN:
            yield away_us
