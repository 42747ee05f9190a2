"""Collect the evidence of an incident from broker logs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from rabbitmq_resilience.extensions.incidents.broker_logs import NodeLog, Sighting, read_logs
from rabbitmq_resilience.extensions.incidents.cuts import cuts
from rabbitmq_resilience.extensions.incidents.lives import lives
from rabbitmq_resilience.extensions.incidents.logged_outages import outages
from rabbitmq_resilience.extensions.incidents.occurrences import Evidence, EvidenceError, Occurrence
from rabbitmq_resilience.model.durations import TICKS_MAX
from rabbitmq_resilience.model.topology import PRODUCTION_NET_TICKTIME_S

#: Every node logs alarms and the like; lines this close to each other are about the same one.
SAME_MOMENT_S = 2.0
#: Faults after which a process starts again.
PROCESSES = ("kill", "stop", "lose_disk")
#: A comment of rabbitmq.conf or of an Erlang file.
_COMMENT = re.compile(r"^\s*[#%].*$|\s%.*$", re.MULTILINE)
_TICKTIME = re.compile(r"net_ticktime\s*[,= ]\s*(\d+)")


def evidence_of(paths: Sequence[Path], *, net_ticktime_s: float | None = None) -> Evidence:
    """Read broker logs, and return their evidence. Raise EvidenceError if they have none.

    ``net_ticktime_s`` is needed to compute when a cut began, as brokers notice a cut only about that time later. If it
    is None, it is taken from the logs, else from a configuration file in their folders, else it is RabbitMQ's 60 s.
    """
    logs = read_logs(paths)
    if not any(log.sightings for log in logs):
        raise EvidenceError(
            f"{', '.join(map(str, paths))}: no line of a broker's log is about an incident; lines must begin like "
            "'2026-01-31 12:00:00.000000+00:00 [info] <0.1.0> ' or be JSON with time and msg"
        )
    known_s = net_ticktime_s or _ticked(logs) or _configured(paths)
    assumed_s = known_s or PRODUCTION_NET_TICKTIME_S
    sightings = [sighting for log in logs for sighting in log.sightings]
    nodes = sorted({log.node for log in logs} | {s.about for s in sightings if s.about} | named_by(logs))
    lost = outages(logs, net_ticktime_s=assumed_s)
    ends = lives(logs, lost, net_ticktime_s=assumed_s)
    found = [
        *ends,
        *cuts(logs, lost, ends, nodes, net_ticktime_s=assumed_s),
        *_alarms(sightings),
        *_rebalances(sightings),
    ]
    return Evidence(
        sources=tuple(f"the log of {log.node}" for log in logs),
        nodes=tuple(nodes),
        occurrences=tuple(_noted(one, assumed_s) for one in sorted(found, key=lambda occurrence: occurrence.begin)),
        versions=tuple(sorted({s.detail for s in sightings if s.what == "boot"})),
        queue_types=tuple(what for what in ("quorum", "mirrored") if any(s.what == what for s in sightings)),
        partition_handling=_handling(sightings),
        net_ticktime_s=known_s,
        seen=tuple(_seen(sightings)),
        notes=tuple(_notes(sightings, nodes, logs)),
    )


def _noted(occurrence: Occurrence, net_ticktime_s: float) -> Occurrence:
    """Return an occurrence with notes on the times that are computed, and not in the logs."""
    notes = list(occurrence.notes)
    if occurrence.fault == "partition" and not occurrence.fields.get("one_way"):
        within = f"{net_ticktime_s:g} to {TICKS_MAX * net_ticktime_s:g} s"
        notes.append(f"it began {within} before brokers noticed: that is how long they take")
    if occurrence.fault in PROCESSES and occurrence.end is not None:
        notes.append("the start of its process is computed from when it was seen, which is later on a busy machine")
    return replace(occurrence, notes=tuple(notes))


def named_by(logs: Sequence[NodeLog]) -> set[str]:
    """Return the nodes that are members of queues by these logs."""
    return {name for log in logs for name in log.named}


def _ticked(logs: Sequence[NodeLog]) -> float | None:
    """Compute ``net_ticktime`` from missed ticks, which brokers log from Erlang 29 on; None without such lines.

    The time between two missed ticks is a known part of ``net_ticktime``.
    """
    for log in logs:
        missed = [s for s in log.sightings if s.what == "tick_missed"]
        for one, other in pairwise(missed):
            (count, of), (next_count, _) = (map(int, s.detail.split("/")) for s in (one, other))
            if one.about == other.about and next_count == count + 1 and other.at - one.at > 0.2:
                return round(of * (other.at - one.at))
    return None


def _configured(paths: Sequence[Path]) -> float | None:
    """Read ``net_ticktime`` from a configuration file in the folders of the logs; None if there is none.

    It may be written as in rabbitmq.conf, in advanced.config, or as an Erlang argument.
    """
    folders = {path if path.is_dir() else path.parent for path in paths}
    for folder in sorted(folders):
        for file in sorted(folder.rglob("*.con[fi]*")):
            stated = _COMMENT.sub("", file.read_text(encoding="utf-8", errors="replace"))
            if found := _TICKTIME.findall(stated):
                return float(found[-1])
    return None


def _handling(sightings: Sequence[Sighting]) -> str | None:
    modes = Counter(s.detail for s in sightings if s.what == "mode" and s.detail)
    if modes:
        return modes.most_common(1)[0][0]
    if any(s.what == "self_paused" for s in sightings):
        return "pause_minority"
    if any(s.what == "autoheal" for s in sightings):
        return "autoheal"
    return None


def _alarms(sightings: Iterable[Sighting]) -> Iterable[Occurrence]:
    """Yield the alarms of each node: by its own log, or else by those of others, which may be late."""
    set_at: dict[tuple[str, str], float] = {}
    cleared: dict[tuple[str, str], float] = {}
    reported = [one for one in sightings if one.what in ("alarm_set", "alarm_cleared")]
    own = {one.about for one in reported if one.by == one.about}
    for sighting in sorted(reported, key=lambda sighting: sighting.at):
        if sighting.about in own and sighting.by != sighting.about:
            continue
        alarm = (sighting.about, sighting.detail)
        settled_s = 0 if sighting.about in own else SAME_MOMENT_S
        if sighting.what == "alarm_set" and sighting.at > cleared.get(alarm, 0) + settled_s:
            set_at.setdefault(alarm, sighting.at)
        elif sighting.what == "alarm_cleared" and alarm in set_at:
            cleared[alarm] = sighting.at
            yield _alarm(alarm, set_at.pop(alarm), sighting.at)
    for alarm, at in set_at.items():
        yield _alarm(alarm, at, None)


def _alarm(alarm: tuple[str, str], begin: float, end: float | None) -> Occurrence:
    node, resource = alarm
    return Occurrence("alarm", (frozenset({node}),), begin, end, {"resource": resource})


def _rebalances(sightings: Iterable[Sighting]) -> Iterable[Occurrence]:
    return (Occurrence("rebalance", (), s.at, s.at + 1) for s in sightings if s.what == "rebalance")


def _seen(sightings: Iterable[Sighting]) -> Iterable[tuple[float, str]]:
    """Yield (time, sentence) for what the faults caused, to be compared with what a replay shows."""
    last: dict[tuple[str, str], float] = {}
    sentences = {
        "self_paused": "{by} paused itself",
        "partial": "{by} reported a partial partition",
        "split": "{by} reported that its database was partitioned from {about}",
        "synchronising": "mirrors were synchronised on {by}",
    }
    for sighting in sorted(sightings, key=lambda sighting: sighting.at):
        if sighting.what in sentences:
            key = (sighting.by, sighting.what)
            if sighting.at - last.get(key, 0) > SAME_MOMENT_S:
                yield sighting.at, sentences[sighting.what].format(by=sighting.by, about=sighting.about)
            last[key] = sighting.at


def _connections(number: int) -> str:
    return "1 connection of a client was" if number == 1 else f"{number} connections of clients were"


def _notes(sightings: Iterable[Sighting], nodes: Iterable[str], logs: Sequence[NodeLog]) -> Iterable[str]:
    lost = [s for s in sightings if s.what == "lost_client"]
    if lost:
        yield (
            f"{_connections(len(lost))} not closed properly; "
            "logs do not say why. If it was the network, "
            "add a step such as {at_s: 5, for_s: 10, fault: disconnect, between: ['publisher:0', all]}"
        )
    silent = sorted(set(nodes) - {log.node for log in logs})
    if silent:
        yield f"there is no log of {', '.join(silent)}: what is said of them is from the logs of others"
