"""How brokers ended and began again: what their own logs and those of their peers tell of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from faults.evidence.broker_logs import NodeLog, Sighting
from faults.evidence.happening import Happening
from faults.evidence.outages import Outage, Report

#: Between the start of a broker's process and the moment when its peers, or the readers of its log, see it first. Medians
#: of the suite's own runs on two busy cores; it may be half of that elsewhere.
SEEN_BY_PEERS_S = 1.5
SEEN_IN_LOG_S = 4.5
#: What a boot writes, it has written by then.
BOOT_S = 30.0
UNSEEN = "no other broker told when it ended: the last line that was written is taken for that"
#: A broker that stops itself says why just before or after.
SAME_MOMENT_S = 2.0
#: An orderly stop tells the peers that the broker is gone before its process ends.
ORDERLY_S = 0.2


@dataclass
class _Life:
    """What is known of the end of a life, until the next begins."""

    stop: float | None = None
    drained: bool = False
    #: The broker begins again in the process that it had.
    restarting: bool = False
    #: The first line of the next process.
    process: float | None = None


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
    return tuple(_ended_together(happenings))


def _ended_together(happenings: Sequence[Happening]) -> list[Happening]:
    """Brokers whose end nobody told of ended together, else one of them would have: not before any of their last lines."""
    unseen = [h for h in happenings if UNSEEN in h.notes]
    last = {h: max(o.begin for o in unseen if h.begin <= (o.end or o.begin) and o.begin <= (h.end or h.begin)) for h in unseen}
    return [replace(h, begin=last[h]) if h in last else h for h in happenings]


def _own_story(log: NodeLog, reports: Sequence[Report], *, net_ticktime_s: float) -> list[Happening]:
    found: list[Happening] = []
    life, booted = _Life(), 0.0
    for sighting in log.sightings:
        match sighting.what:
            case "drain":
                life.stop, life.drained = life.stop or sighting.at, True
            case "signal":
                life.stop = life.stop or sighting.at
            case "app_stops" if not _of_its_own_accord(log, sighting):
                life.stop = life.stop or sighting.at
            case "app_starts":
                if life.stop is not None:
                    found.append(_stopped(log.node, life, sighting.at))
                life = _Life(restarting=True)
            case "process" if sighting.at > booted + BOOT_S:
                life.process = life.process or sighting.at
            case "boot":
                if not life.restarting:
                    found += _booted(log, life, sighting.at, reports, net_ticktime_s=net_ticktime_s)
                life, booted = _Life(), sighting.at
            case "empty" if found and found[-1].fault == "kill" and sighting.at < booted + BOOT_S:
                found[-1] = replace(found[-1], fault="lose_disk")
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
    process = life.process or boot
    told = [r for r in reports if r.first < boot and (r.end is None or r.end > (life.stop or log.times[0]))]
    if life.stop is not None:
        gone = max((r.first for r in told if r.first >= life.stop), default=life.stop)
        return [_stopped(log.node, life, _started(gone, process, told))]
    lines = bisect_left(log.times, process)
    if not lines:  # the log begins with this boot: nothing is known of a life before
        return []
    last_line, notes = log.times[lines - 1], ()
    begin = gone = last_line
    if told := [r for r in told if r.first > last_line - SAME_MOMENT_S]:
        gone = told[0].first
        begin = max(last_line, min(r.first - (net_ticktime_s if r.is_unheard else 0) for r in told))
    else:
        notes = (UNSEEN,)
    return [Happening("kill", (frozenset({log.node}),), begin, _started(gone, process, told), notes=notes)]


def _started(gone: float, process: float, reports: Sequence[Report]) -> float:
    """When the process was started, of which the log's first line is known, and when peers had it back."""
    ends = [r.end for r in reports if r.end is not None and gone < r.end]
    if not ends:
        return max(gone, process - SEEN_IN_LOG_S)
    return max(gone, min(process, *ends) - SEEN_BY_PEERS_S)


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
            end = max(together[0].first, min(ends) - SEEN_BY_PEERS_S) if ends else None
            note = f"there is no log of {node}: whether it was stopped, killed or cut off is a guess"
            begin = min(r.app_gone for r in together)
            found.append(Happening("stop" if orderly else "kill", (frozenset({node}),), begin, end, notes=(note,)))
    return found
