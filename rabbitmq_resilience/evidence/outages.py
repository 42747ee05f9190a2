"""When nodes had no connection to each other, as they reported it, pair by pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.evidence.broker_logs import NodeLog

#: What the node monitor says where a peer was not heard for ``net_ticktime``; anything else is told at once.
UNHEARD = "net_tick_timeout"
#: A connection that was just made again may end once or twice more before it stays.
UNSETTLED_S = 3.0

#: Brokers of 4.0 that miss a peer's broker look for it once more, for ``net_setuptime``, before they miss the node too.
LOOKED_FOR_AGAIN_S = 8.0
#: How long a broker that was paused takes to serve again.
RESTARTED_WITHIN_S = 12.0


@dataclass(frozen=True)
class Report:
    """``by`` lost its connection to ``about`` at ``first``, and had it back at ``end`` (None: not while it wrote)."""

    by: str
    about: str
    first: float
    end: float | None
    reason: str
    #: Until then ``by`` knew the peer's broker to serve; the same as ``first`` unless it was stopped in good order.
    app_gone: float

    @property
    def pair(self) -> frozenset[str]:
        return frozenset({self.by, self.about})

    @property
    def is_unheard(self) -> bool:
        return self.reason == UNHEARD


@dataclass(frozen=True)
class Outage:
    """One time that a pair had no connection: what both said of it."""

    pair: frozenset[str]
    reports: tuple[Report, ...]

    @property
    def first(self) -> float:
        return min(report.first for report in self.reports)

    @property
    def end(self) -> float | None:
        """The first to have the other back is right: the link must have been there."""
        return min((report.end for report in self.reports if report.end is not None), default=None)

    @property
    def is_unheard(self) -> bool:
        return any(report.is_unheard for report in self.reports)

    def begin(self, *, net_ticktime_s: float) -> float:
        return lost_at(self.reports, net_ticktime_s=net_ticktime_s)


def lost_at(reports: Sequence[Report], *, net_ticktime_s: float) -> float:
    """When the links were lost of which these are the reports, all of one cause.

    A peer is given up at the fourth tick after the one that heard it last, and there are four in ``net_ticktime``: so
    up to a quarter of that later than ``net_ticktime`` after the cut. Every node has a rhythm of its own, and the
    middle of their first reports, less 9/8 of ``net_ticktime``, is closest.
    """
    by_node: dict[str, float] = {}
    for report in sorted(reports, key=lambda report: report.first):
        if report.is_unheard:
            by_node.setdefault(report.by, report.first)
    if not by_node:
        return min(report.first for report in reports)
    first = min(by_node.values())
    last = max(at for at in by_node.values() if at <= first + net_ticktime_s / 4)
    return (first + last) / 2 - 1.125 * net_ticktime_s


def outages(logs: Sequence[NodeLog], *, net_ticktime_s: float) -> tuple[Outage, ...]:
    """All outages of all pairs, in the order in which they were noticed."""
    by_pair: dict[frozenset[str], list[Report]] = {}
    for report in sorted((r for log in logs for r in _reports(log)), key=lambda report: report.first):
        by_pair.setdefault(report.pair, []).append(report)
    found = [outage for pair in by_pair.values() for outage in _merged(pair, net_ticktime_s=net_ticktime_s)]
    return tuple(sorted(found, key=lambda outage: outage.first))


def _reports(log: NodeLog) -> Iterable[Report]:
    lost: dict[str, tuple[float, str]] = {}
    app_gone: dict[str, float] = {}
    restarted = 0.0
    told: list[Report] = []

    def back(about: str, at: float | None) -> None:
        first, reason = lost.pop(about)
        told.append(Report(log.node, about, first, at, reason, min(first, app_gone.pop(about, first))))

    for sighting in log.sightings:
        about, at = sighting.about, sighting.at
        if sighting.what == "gone":
            missed = app_gone.get(about, at)
            unheard_before = sighting.detail == UNHEARD and at - missed < LOOKED_FOR_AGAIN_S
            lost.setdefault(about, (missed if unheard_before else at, sighting.detail))
        elif sighting.what == "app_gone":
            app_gone[about] = at
        elif sighting.what in ("back", "app_back"):
            # one that was paused starts when it reaches the others again, and tells of them only when it has
            found = restarted if sighting.what == "app_back" and at - restarted < RESTARTED_WITHIN_S else at
            app_gone.pop(about, None) if about not in lost else back(about, max(found, lost[about][0]))
        elif sighting.what == "app_starts":
            restarted = at
        elif sighting.what == "boot" and at - restarted > RESTARTED_WITHIN_S:  # what it knew is gone with its process
            for peer in tuple(lost):
                back(peer, None)
    for peer in tuple(lost):
        back(peer, None)
    return told


def _merged(reports: Sequence[Report], *, net_ticktime_s: float) -> Iterable[Outage]:
    """Reports of one pair that overlap are of one outage; those of an unsettled connection are of none."""
    groups: list[list[Report]] = []
    settled: float | None = None
    for report in reports:
        begin = report.first - (0.75 * net_ticktime_s if report.is_unheard else 0)
        if settled is not None and report.first > settled:
            brief = report.end is not None and report.end - report.first < UNSETTLED_S
            if begin < settled if report.is_unheard else brief and begin < settled + UNSETTLED_S:
                continue
        if groups and (settled is None or report.first <= settled):
            groups[-1].append(report)
        else:
            groups.append([report])
        settled = Outage(report.pair, tuple(groups[-1])).end
    return [Outage(group[0].pair, tuple(group)) for group in groups]
