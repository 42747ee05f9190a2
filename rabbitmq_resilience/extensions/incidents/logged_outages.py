"""Find when pairs of nodes had no connection to each other, from what the nodes logged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.extensions.incidents.broker_logs import NodeLog

#: The reason that the node monitor logs if a peer was not heard for ``net_ticktime``; other losses are logged at once.
UNHEARD = "net_tick_timeout"
#: A connection that was just made again may end once or twice more before it stays.
UNSETTLED_S = 3.0

#: Brokers of 4.0 that miss a peer's broker try to reach it again, for ``net_setuptime``, before they miss its node too.
LOOKED_FOR_AGAIN_S = 8.0
#: How long a broker that was paused takes to serve again.
RESTARTED_WITHIN_S = 12.0


@dataclass(frozen=True)
class Report:
    """``by`` lost its connection to ``about`` at ``first``, and had it back at ``end`` (None: not in its log)."""

    by: str
    about: str
    first: float
    end: float | None
    reason: str
    #: When ``by`` learned that the peer's broker was gone; the same as ``first`` unless the broker was stopped cleanly.
    app_gone: float

    @property
    def pair(self) -> frozenset[str]:
        return frozenset({self.by, self.about})

    @property
    def is_unheard(self) -> bool:
        return self.reason == UNHEARD


@dataclass(frozen=True)
class Outage:
    """One period in which a pair had no connection, with the reports of both nodes."""

    pair: frozenset[str]
    reports: tuple[Report, ...]

    @property
    def first(self) -> float:
        return min(report.first for report in self.reports)

    @property
    def end(self) -> float | None:
        """Return the first time that either node had the other back, as the link must have been there then."""
        return min((report.end for report in self.reports if report.end is not None), default=None)

    @property
    def is_unheard(self) -> bool:
        return any(report.is_unheard for report in self.reports)

    def begin(self, *, net_ticktime_s: float) -> float:
        return lost_at(self.reports, net_ticktime_s=net_ticktime_s)


def lost_at(reports: Sequence[Report], *, net_ticktime_s: float) -> float:
    """Return when links were lost, from reports with one common cause.

    A node gives a peer up at the fourth tick after the tick that last heard it, and ``net_ticktime`` has four ticks. So
    it does so up to a quarter of ``net_ticktime`` later than ``net_ticktime`` after the cut. Every node ticks at its
    own times, so the best estimate is the middle of the nodes' first reports, less 9/8 of ``net_ticktime``.
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
    """Return all outages of all pairs, in the order in which nodes noticed them."""
    by_pair: dict[frozenset[str], list[Report]] = {}
    for report in sorted((r for log in logs for r in _reports(log)), key=lambda report: report.first):
        by_pair.setdefault(report.pair, []).append(report)
    found = [outage for pair in by_pair.values() for outage in _merged(pair, net_ticktime_s=net_ticktime_s)]
    return tuple(sorted(found, key=lambda outage: outage.first))


def _reports(log: NodeLog) -> Iterable[Report]:
    lost: dict[str, tuple[float, str]] = {}
    app_gone: dict[str, float] = {}
    restarted = 0.0
    found: list[Report] = []

    def back(about: str, at: float | None) -> None:
        first, reason = lost.pop(about)
        found.append(Report(log.node, about, first, at, reason, min(first, app_gone.pop(about, first))))

    for sighting in log.sightings:
        about, at = sighting.about, sighting.at
        if sighting.what == "gone":
            missed = app_gone.get(about, at)
            unheard_before = sighting.detail == UNHEARD and at - missed < LOOKED_FOR_AGAIN_S
            lost.setdefault(about, (missed if unheard_before else at, sighting.detail))
        elif sighting.what == "app_gone":
            app_gone[about] = at
        elif sighting.what in ("back", "app_back"):
            # A paused broker starts when it reaches the others again, and logs them only once it has started.
            seen = restarted if sighting.what == "app_back" and at - restarted < RESTARTED_WITHIN_S else at
            app_gone.pop(about, None) if about not in lost else back(about, max(seen, lost[about][0]))
        elif sighting.what == "app_starts":
            restarted = at
        elif (
            sighting.what == "boot" and at - restarted > RESTARTED_WITHIN_S
        ):  # a new process knows nothing of its peers
            for peer in tuple(lost):
                back(peer, None)
    for peer in tuple(lost):
        back(peer, None)
    return found


def _merged(reports: Sequence[Report], *, net_ticktime_s: float) -> Iterable[Outage]:
    """Merge overlapping reports of one pair into outages, and leave out reports of an unsettled connection."""
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
