"""Find how brokers ended and started again, from their own logs and those of their peers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rabbitmq_resilience.extensions.incidents.broker_logs import NodeLog, Sighting
from rabbitmq_resilience.extensions.incidents.logged_outages import UNSETTLED_S, Outage, Report
from rabbitmq_resilience.extensions.incidents.occurrences import Occurrence

#: The time from the start of a broker's process until its peers see it, and until its log shows it. Medians of the
#: suite's own runs on two busy cores; elsewhere, it may be half of that.
SEEN_BY_PEERS_S = 1.8
SEEN_IN_LOG_S = 4.5
#: A boot has logged all its lines by then.
BOOT_S = 30.0
#: A broker that restarts within its process opens its log by then; used if lines do not name Erlang's processes.
RESTART_S = 5.0
UNSEEN = "no other broker reported when it ended: the time of its last line is taken for that"
#: A broker that stops itself logs the cause at most this long before or after.
SAME_MOMENT_S = 2.0
#: In an orderly stop, peers hear at least this long before the end of the process that the broker is gone.
ORDERLY_S = 0.2


@dataclass
class _Life:
    """What is known of the end of a broker's life, until its next life begins."""

    stop: float | None = None
    drained: bool = False
    #: Whether it was asked to end, and not only to drain.
    ends: bool = False
    #: The line by which a broker restarts within its process.
    restarted: Sighting | None = None
    #: The first line of the next process.
    process: float | None = None

    def opens(self, sighting: Sighting, booted: float) -> None:
        """Take note that a process opens its log.

        From 3.9 on, a line says so (``detail``). The other line that counts as this one comes again during a boot, at
        ``booted`` or soon after, and is ignored then.
        """
        if not sighting.detail and (self.process is not None or sighting.at < booted + BOOT_S):
            return
        self.process = sighting.at
        if self.restarted is not None and _of_another_process(self.restarted, sighting):
            self.restarted = None  # it died while it restarted


def _of_another_process(restarted: Sighting, opened: Sighting) -> bool:
    """Return whether ``opened`` is of another process of the operating system than ``restarted``.

    Erlang's own pids go on rising when the broker restarts in its VM, and start again with a new VM.
    """
    if restarted.pid is None or opened.pid is None:
        return opened.at > restarted.at + RESTART_S
    return opened.pid < restarted.pid


def lives(logs: Sequence[NodeLog], outages: Sequence[Outage], *, net_ticktime_s: float) -> tuple[Occurrence, ...]:
    """Return the kills, stops and lost disks of all nodes, also of nodes that only the logs of others name."""
    reports: dict[str, list[Report]] = {}
    for outage in outages:
        for report in outage.reports:
            reports.setdefault(report.about, []).append(report)
    occurrences: list[Occurrence] = []
    for log in logs:
        occurrences += _own_story(log, reports.get(log.node, ()), net_ticktime_s=net_ticktime_s)
    unwritten = {node: found for node, found in reports.items() if node not in {log.node for log in logs}}
    occurrences += _others_story(unwritten, {log.node for log in logs})
    return tuple(_ended_together(occurrences))


def _ended_together(occurrences: Sequence[Occurrence]) -> list[Occurrence]:
    """Move the ends of brokers that no other broker reported to the latest of their last lines.

    Such brokers ended together, as one that was still running would have reported the others.
    """
    unseen = [occurrence for occurrence in occurrences if UNSEEN in occurrence.notes]

    def latest(one: Occurrence) -> float:
        until = one.end if one.end is not None else one.begin
        return max(
            other.begin for other in unseen if other.begin <= until and (other.end is None or one.begin <= other.end)
        )

    return [replace(one, begin=latest(one)) if UNSEEN in one.notes else one for one in occurrences]


def _own_story(log: NodeLog, reports: Sequence[Report], *, net_ticktime_s: float) -> list[Occurrence]:
    found: list[Occurrence] = []
    life, booted = _Life(), 0.0
    for sighting in log.sightings:
        if sighting.what == "app_starts":
            found += [_stopped(log.node, life, sighting.at)] if life.stop is not None else []
            life = _Life(restarted=sighting)
        elif sighting.what == "boot":
            if life.restarted is None:
                found += _booted(log, life, sighting.at, reports, net_ticktime_s=net_ticktime_s)
            life, booted = _Life(), sighting.at
        elif sighting.what == "process":
            life.opens(sighting, booted)
        elif sighting.what in ("drain", "signal") or (
            sighting.what == "app_stops" and not _of_its_own_accord(log, sighting)
        ):
            life.stop = life.stop or sighting.at
            life.drained = life.drained or sighting.what == "drain"
            life.ends = life.ends or sighting.what != "drain"
        elif sighting.what == "revive" and not life.ends:
            life.stop, life.drained = None, False
    if life.stop is not None:
        found.append(_stopped(log.node, life, None))
    elif gone := [r for r in reports if r.first > log.times[-1] and r.end is None and not r.is_unheard]:
        found.append(Occurrence("kill", (frozenset({log.node}),), min(r.first for r in gone), None))
    return found


def _of_its_own_accord(log: NodeLog, stops: Sighting) -> bool:
    """Return whether the broker paused or restarted itself because of a partition."""
    causes = ("self_paused", "autoheal", "partial")
    return any(s.what in causes and abs(s.at - stops.at) < SAME_MOMENT_S for s in log.sightings)


def _booted(
    log: NodeLog, life: _Life, boot: float, reports: Sequence[Report], *, net_ticktime_s: float
) -> list[Occurrence]:
    """Return how the process before this boot ended: one occurrence, or none if the log begins with the boot."""
    process = life.process or boot
    of_it = [r for r in reports if r.first < boot and (r.end is None or r.end > (life.stop or log.times[0]))]
    if life.stop is not None:
        gone = max((r.first for r in of_it if r.first >= life.stop), default=life.stop)
        return [_stopped(log.node, life, _started(gone, process, of_it))]
    lines = bisect_left(log.times, process)
    if not lines:  # the log begins with this boot: nothing is known of an earlier life
        return []
    last_line = log.times[lines - 1]
    notes: tuple[str, ...] = ()
    begin = gone = last_line
    if of_it := _last_time_missed(r for r in of_it if r.first > last_line - SAME_MOMENT_S):
        gone = of_it[0].first
        begin = max(last_line, min(r.first - (net_ticktime_s if r.is_unheard else 0) for r in of_it))
    else:
        notes = (UNSEEN,)
    emptied = any(s.what == "empty" and process - SAME_MOMENT_S < s.at < boot + BOOT_S for s in log.sightings)
    fault = "lose_disk" if emptied else "kill"
    return [Occurrence(fault, (frozenset({log.node}),), begin, _started(gone, process, of_it), notes=notes)]


def _last_time_missed(reports: Iterable[Report]) -> list[Report]:
    """Return the reports of the last time that a node was missed.

    If its peers had the node back for longer than a connection takes to settle, earlier reports are not about its end.
    """
    last: list[Report] = []
    for report in sorted(reports, key=lambda report: report.first):
        ends = [one.end for one in last]
        if None not in ends and all(report.first > end + UNSETTLED_S for end in ends if end is not None):
            last = []
        last.append(report)
    return last


def _started(gone: float, process: float, reports: Sequence[Report]) -> float:
    """Return when a process was started, from the first line of its log and from when its peers had it back."""
    ends = [r.end for r in reports if r.end is not None and gone < r.end]
    if not ends:
        return max(gone, process - SEEN_IN_LOG_S)
    return max(gone, min(process, *ends) - SEEN_BY_PEERS_S)


def _stopped(node: str, life: _Life, end: float | None) -> Occurrence:
    assert life.stop is not None
    return Occurrence("stop", (frozenset({node}),), life.stop, end, {"drain": True} if life.drained else {})


def _others_story(unwritten: Mapping[str, Sequence[Report]], writers: set[str]) -> list[Occurrence]:
    """Return the ends of nodes without a log.

    If all nodes with a log lost their connection to it at once, the node itself is taken to have ended.
    """
    found: list[Occurrence] = []
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
            found.append(Occurrence("stop" if orderly else "kill", (frozenset({node}),), begin, end, notes=(note,)))
    return found
