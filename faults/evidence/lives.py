"""How brokers ended and began again: what their own logs and those of their peers tell of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faults.evidence.broker_logs import NodeLog, Sighting
from faults.evidence.happening import Happening
from faults.evidence.outages import Outage, Report

#: Between the start of a broker's process and the first that its peers or its log show of it (median of the suite's
#: own runs on two cores).
START_S = 2.2
#: A broker that stops itself says why just before or after.
SAME_MOMENT_S = 2.0
#: An orderly stop tells the peers that the broker is gone before its process ends.
ORDERLY_S = 0.2


@dataclass
class _Life:
    """What is known of the end of a life, until the next begins."""

    stop: float | None = None
    drained: bool = False
    paused: bool = False
    emptied: bool = False


def lives(logs: Sequence[NodeLog], outages: Sequence[Outage], *, net_ticktime_s: float) -> tuple[Happening, ...]:
    """Kills, stops and lost disks, of nodes with a log and of those that only others speak of."""
    reports: dict[str, list[Report]] = {}
    for outage in outages:
        for report in outage.reports:
            reports.setdefault(report.about, []).append(report)
    happenings: list[Happening] = []
    for log in logs:
        happenings += _own_story(log, reports.get(log.node, ()), net_ticktime_s=net_ticktime_s)
    unwritten = {node: told for node, told in reports.items() if node not in {log.node for log in logs}}
    happenings += _others_story(unwritten, {log.node for log in logs})
    return tuple(happenings)


def _own_story(log: NodeLog, reports: Sequence[Report], *, net_ticktime_s: float) -> list[Happening]:
    found: list[Happening] = []
    life = _Life()
    for sighting in log.sightings:
        match sighting.what:
            case "drain":
                life.stop, life.drained = life.stop or sighting.at, True
            case "signal":
                life.stop = life.stop or sighting.at
            case "app_stops":
                life.paused = _of_its_own_accord(log, sighting)
                life.stop = life.stop if life.paused else life.stop or sighting.at
            case "app_starts":
                if life.stop is not None:
                    found.append(_stopped(log.node, life, sighting.at))
                life = _Life(paused=True)
            case "empty":
                life.emptied = True
            case "boot":
                if not life.paused:  # else the banner of a broker whose process never ended
                    found += _booted(log, life, sighting.at, reports, net_ticktime_s=net_ticktime_s)
                life = _Life()
    if life.stop is not None:
        found.append(_stopped(log.node, life, None))
    elif gone := [r for r in reports if r.first > log.times[-1] and r.end is None and not r.is_unheard]:
        found.append(Happening("kill", (frozenset({log.node}),), min(r.first for r in gone), None))
    return found


def _of_its_own_accord(log: NodeLog, stops: Sighting) -> bool:
    """Whether the broker paused or restarted itself because of a partition."""
    causes = ("self_paused", "autoheal", "partial")
    return any(s.what in causes and abs(s.at - stops.at) < SAME_MOMENT_S for s in log.sightings)


def _booted(
    log: NodeLog, life: _Life, boot: float, reports: Sequence[Report], *, net_ticktime_s: float
) -> list[Happening]:
    """The boot of a process; how the one before ended."""
    before = life.stop if life.stop is not None else None
    told = [r for r in reports if r.first < boot and (r.end is None or r.end > (before or log.times[0]))]
    if before is not None:
        gone = max((r.first for r in told if r.first >= before), default=before)
        return [_stopped(log.node, life, _started(log, gone, boot, told))]
    if not told:  # the first line of a log, or a broker that had no peer to miss it
        return []
    last = told[-1]
    together = [r for r in told if r.first > last.first - SAME_MOMENT_S - net_ticktime_s / 2]
    begin = min(r.first - (net_ticktime_s if r.is_unheard else 0) for r in together)
    heard = bisect_right(log.times, last.first)
    begin = max(begin, log.times[heard - 1]) if heard else begin
    fault = "lose_disk" if life.emptied else "kill"
    return [Happening(fault, (frozenset({log.node}),), begin, _started(log, last.first, boot, together))]


def _started(log: NodeLog, gone: float, boot: float, reports: Sequence[Report]) -> float:
    """When the process was started: just before it was seen first."""
    lines = bisect_right(log.times, gone + SAME_MOMENT_S / 4)
    seen = [boot, *([log.times[lines]] if lines < len(log.times) else [])]
    seen += [r.end for r in reports if r.end is not None and gone < r.end < boot]
    return max(gone, min(seen) - START_S)


def _stopped(node: str, life: _Life, end: float | None) -> Happening:
    assert life.stop is not None
    return Happening("stop", (frozenset({node}),), life.stop, end, {"drain": True} if life.drained else {})


def _others_story(unwritten: Mapping[str, Sequence[Report]], writers: set[str]) -> list[Happening]:
    """Nodes without a log: a connection that ended at once, to all who write, is taken for the node's own end."""
    found: list[Happening] = []
    for node, reports in unwritten.items():
        sudden = [r for r in reports if not r.is_unheard]
        while sudden:
            together = [r for r in sudden if r.first < sudden[0].first + SAME_MOMENT_S]
            sudden = sudden[len(together) :]
            if {r.by for r in together} < writers:
                continue
            orderly = any(r.first - r.app_gone > ORDERLY_S for r in together)
            ends = [r.end for r in together if r.end is not None]
            end = max(together[0].first, min(ends) - START_S) if ends else None
            note = f"there is no log of {node}: whether it was stopped, killed or cut off is a guess"
            begin = min(r.app_gone for r in together)
            found.append(Happening("stop" if orderly else "kill", (frozenset({node}),), begin, end, notes=(note,)))
    return found
