"""Find lost links from the reports of nodes about their peers: partitions, dead connections, frozen nodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from rabbitmq_resilience.extensions.incidents.broker_logs import NodeLog
from rabbitmq_resilience.extensions.incidents.logged_outages import Outage, lost_at
from rabbitmq_resilience.extensions.incidents.occurrences import Occurrence

#: Connections that die of one cause do so within this time.
AT_ONCE_S = 1.5
#: How long a link is back before its nodes notice: they look for lost peers once a second (median of own runs).
FOUND_AGAIN_S = 0.3
#: Links that are back further apart may not have been cut by one cut alone.
BACK_TOGETHER_S = 10.0
#: A node's own end explains outages that begin within this time of it.
EXPLAINED_WITHIN_S = 3.0

Side = frozenset[str]


@dataclass(frozen=True)
class _Cut:
    """Outages that began together."""

    outages: tuple[Outage, ...]
    net_ticktime_s: float

    @property
    def pairs(self) -> frozenset[frozenset[str]]:
        return frozenset(outage.pair for outage in self.outages)

    @property
    def is_unheard(self) -> bool:
        """Return whether a node reported a peer that it no longer heard."""
        return any(outage.is_unheard for outage in self.outages)

    @property
    def begin(self) -> float:
        reports = [report for outage in self.outages for report in outage.reports]
        return lost_at(reports, net_ticktime_s=self.net_ticktime_s)

    @property
    def end(self) -> float | None:
        """Return when the first link was back; None if none came back."""
        return min(self._ends) - FOUND_AGAIN_S if self._ends else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a note if its links were back at different times, or some of them never."""
        if not self._ends or max(self._ends) - min(self._ends) <= BACK_TOGETHER_S:
            return ()
        later_s = max(self._ends) - min(self._ends)
        return (f"its last link was back {later_s:.0f} s after its first: there may have been several cuts",)

    @property
    def _ends(self) -> list[float]:
        return [outage.end for outage in self.outages if outage.end is not None]


def cuts(
    logs: Sequence[NodeLog],
    outages: Sequence[Outage],
    lives: Iterable[Occurrence],
    nodes: Collection[str],
    *,
    net_ticktime_s: float,
) -> tuple[Occurrence, ...]:
    """Return the cuts and freezes that explain the outages.

    Outages that a node's own stop or start (``lives``) explains are left out, as peers also miss an ended process.
    """
    lives = tuple(lives)
    left = [outage for outage in outages if not any(_explains(life, outage, net_ticktime_s) for life in lives)]
    writers = {log.node: log for log in logs}
    found = [h for cut in _grouped(left, net_ticktime_s=net_ticktime_s) for h in _occurrences(cut, writers, nodes)]
    frozen = [occurrence for occurrence in found if occurrence.fault == "pause"]
    return tuple(occurrence for occurrence in found if not any(_wakes(one, occurrence) for one in frozen))


def _wakes(frozen: Occurrence, occurrence: Occurrence) -> bool:
    """Return whether ``occurrence`` only shows that a node woke from a freeze and found its connections closed."""
    if occurrence.fault != "disconnect" or frozen.end is None or not frozen.nodes & occurrence.nodes:
        return False
    return abs(occurrence.begin - frozen.end) < EXPLAINED_WITHIN_S


def _explains(life: Occurrence, outage: Outage, net_ticktime_s: float) -> bool:
    if not life.nodes & outage.pair:
        return False
    slack_s = EXPLAINED_WITHIN_S + (net_ticktime_s / 2 if outage.is_unheard else 0)
    return life.covers(outage.begin(net_ticktime_s=net_ticktime_s), slack_s=slack_s)


def _grouped(outages: Sequence[Outage], *, net_ticktime_s: float) -> list[_Cut]:
    """Group outages of the same kind whose beginnings are close enough for one cut."""
    groups: list[list[Outage]] = []
    for outage in sorted(outages, key=lambda outage: outage.begin(net_ticktime_s=net_ticktime_s)):
        within_s = net_ticktime_s / 2 + AT_ONCE_S if outage.is_unheard else AT_ONCE_S
        begin = outage.begin(net_ticktime_s=net_ticktime_s)
        for group in groups:
            one = group[0]
            near = begin - one.begin(net_ticktime_s=net_ticktime_s) <= within_s
            if near and one.is_unheard == outage.is_unheard and outage.pair not in {o.pair for o in group}:
                group.append(outage)
                break
        else:
            groups.append([outage])
    return [_Cut(tuple(group), net_ticktime_s) for group in groups]


def _occurrences(cut: _Cut, writers: Mapping[str, NodeLog], nodes: Collection[str]) -> Iterable[Occurrence]:
    suspects = sorted({node for pair in cut.pairs for node in pair}) if cut.is_unheard else []
    woken = {node: at for node in suspects if (at := _woken(node, cut, writers)) is not None}
    if all(pair & woken.keys() for pair in cut.pairs):
        for node, at in woken.items():
            yield Occurrence("pause", (frozenset({node}),), cut.begin, at if cut.end is None else min(at, cut.end))
        return
    sides = _sides(cut.pairs, writers, nodes)
    if len(sides) == 1:
        for pair_of_sides in _partial(cut.pairs):
            yield _parted(cut, pair_of_sides, cut.notes)
        return
    silent = sorted(set().union(*sides) - set(writers))
    notes = cut.notes
    if silent:
        frozen = ", and a frozen node looks the same" if cut.is_unheard else ""
        notes += (f"no log of {', '.join(silent)}: which side they were on is a guess{frozen}",)
    yield _parted(cut, sides, notes)


def _parted(cut: _Cut, sides: Sequence[Side], notes: tuple[str, ...]) -> Occurrence:
    if not cut.is_unheard:
        return Occurrence("disconnect", tuple(sides), cut.begin, cut.end, notes=notes)
    unheard = _unheard_side(cut, sides)
    if unheard is None:
        return Occurrence("partition", tuple(sides), cut.begin, cut.end, notes=notes)
    ordered = (unheard, next(side for side in sides if side != unheard))
    return Occurrence("partition", ordered, cut.begin, cut.end, {"one_way": True}, notes)


def _unheard_side(cut: _Cut, sides: Sequence[Side]) -> Side | None:
    """Return the side that still heard the other, while the other did not hear it; None if there is none."""
    reports = [report for outage in cut.outages for report in outage.reports]
    if len(sides) != 2:
        return None
    for side in sides:
        own = [r for r in reports if r.by in side and r.about not in side]
        of_others = [r for r in reports if r.by not in side and r.about in side]
        if own and of_others and all(r.is_unheard for r in of_others) and not any(r.is_unheard for r in own):
            closed = max(r.first for r in of_others)
            if min(r.app_gone for r in own) < closed + AT_ONCE_S:
                return side
    return None


def _woken(node: str, cut: _Cut, writers: Mapping[str, NodeLog]) -> float | None:
    """Return when a frozen node wrote again; None if it was not frozen.

    A frozen node wrote nothing while the others missed it; a running one would have missed the others, too.
    """
    if node not in writers:
        return None
    times, noticed = writers[node].times, min(outage.first for outage in cut.outages)
    silent_from = bisect_right(times, (cut.begin + noticed) / 2)
    silent = silent_from < len(times) and times[silent_from] > noticed + cut.net_ticktime_s / 2
    return times[silent_from] if silent else None


def _sides(pairs: Collection[frozenset[str]], writers: Collection[str], nodes: Collection[str]) -> tuple[Side, ...]:
    """Return the nodes in groups that stayed connected, the largest first.

    Two nodes without logs are taken to be connected if no report contradicts that.
    """

    def known(one: str, other: str) -> bool:
        return (one in writers or other in writers) and frozenset({one, other}) not in pairs

    groups = _joined([frozenset({node}) for node in nodes], known)

    def may_join(one: str, other: str) -> bool:
        mine, theirs = (next(group for group in groups if node in group) for node in (one, other))
        cut_apart = any(frozenset({a, b}) in pairs for a in mine for b in theirs)
        return not cut_apart and one not in writers and other not in writers

    return tuple(sorted(_joined(groups, may_join), key=lambda side: (-len(side), sorted(side))))


def _joined(groups: Sequence[Side], linked: Callable[[str, str], bool]) -> list[Side]:
    left = list(groups)
    joined = True
    while joined:
        joined = False
        for one, other in combinations(left, 2):
            if any(linked(a, b) for a in one for b in other):
                left = [group for group in left if group not in (one, other)] + [one | other]
                joined = True
                break
    return left


def _partial(pairs: Collection[frozenset[str]]) -> list[tuple[Side, ...]]:
    """Return the partial cuts: one of all sides if each lost each other, else one for each pair of sides.

    Nodes that lost the same peers are on one side.
    """
    lost = {
        node: frozenset(o for pair in pairs if node in pair for o in pair - {node}) for pair in pairs for node in pair
    }
    alike: dict[frozenset[str], set[str]] = {}
    for node, others in lost.items():
        alike.setdefault(others, set()).add(node)
    sides = [frozenset(nodes) for nodes in alike.values()]
    apart = [
        (one, other)
        for one, other in combinations(sorted(sides, key=sorted), 2)
        if all(frozenset({a, b}) in pairs for a in one for b in other)
    ]
    if len(apart) == len(sides) * (len(sides) - 1) / 2 and len(sides) > 2:
        return [tuple(sorted(sides, key=sorted))]
    return list(apart)
