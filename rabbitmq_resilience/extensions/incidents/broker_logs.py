"""Read broker logs of RabbitMQ 3.8 to 4.3: what each node logged about itself and others, and when.

Sources of the sentences: the logs of 3.8.9, 3.10.8, 4.0.5 and 4.3.6 as own runs keep them, and rabbit.erl,
rabbit_node_monitor.erl, rabbit_alarm.erl and rabbit_prelaunch_sighandler.erl of the tags from v3.8.9 on. Two forms
are read: text, and the JSON lines of ``log.file.formatter = json``.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from rabbitmq_resilience.extensions.incidents.log_times import seconds
from rabbitmq_resilience.extensions.incidents.occurrences import EvidenceError

_NODE = r"'?(?P<about>[^\s'@,{}()]+@[^\s',;:{}()]+?)'?"

#: The patterns for the text of a line, by the name that the rest of this package uses. The first match counts.
_SENTENCES: tuple[tuple[str, str], ...] = (
    ("gone", rf"^node {_NODE} down: (?P<detail>\w+)"),
    ("back", rf"^node {_NODE} up$"),
    ("app_gone", rf"^rabbit on node {_NODE} down"),
    ("app_back", rf"^rabbit on node {_NODE} up"),
    ("tick_missed", rf"^\*\* Node {_NODE}: net tick \d+/(?P<detail>\d+) missed \((?P<count>\d+) consecutive"),
    ("split", rf"inconsistent_database, running_partitioned_network, {_NODE}\}}"),
    ("partial", r"^Partial partition detected"),
    ("self_paused", r"^Cluster minority/secondary status detected"),
    ("autoheal", r"^Autoheal"),
    ("mode", r"^Starting rabbit_node_monitor \(in (?P<detail>\w+) mode\)|^ \* (?P<other>\w+) mode enabled"),
    ("app_stops", r"^RabbitMQ is asked to stop"),
    ("app_starts", r"^RabbitMQ is asked to start"),
    ("signal", r"^SIG(?:TERM|HUP|TSTP) received - shutting down|^Halting Erlang VM"),
    ("drain", r"^This node is being put into maintenance"),
    ("revive", r"^This node is being revived from maintenance"),
    ("boot", r"^ ?Starting RabbitMQ (?P<detail>\d\S*) on Erlang"),
    ("name", rf"^\s*node +: {_NODE}$"),
    (
        "process",
        r"^Logging: configured log handlers are now (?P<detail>ACTIVE)|^Feature flags: list of feature flags found",
    ),
    (
        "empty",
        r"^Node database directory at .* is empty|^DB: virgin node|metadata store: candidate -> leader in term: 1 ",
    ),
    ("alarm_set", rf"^(?P<detail>memory|disk) resource limit alarm set on node {_NODE}\.?$"),
    ("alarm_cleared", rf"^(?P<detail>memory|disk) resource limit alarm cleared on node {_NODE}$"),
    ("synchronising", r"^Mirrored queue .*: Synchronising: (?P<detail>\d+) messages to synchronise"),
    ("mirrored", r"^Mirrored queue '"),
    ("quorum", r"^queue '.*' in vhost .*: (?:candidate -> leader|detected a new leader|granting vote)"),
    ("rebalance", r"^Starting queue rebalance operation"),
    # In one line, or the reason in a line of its own.
    ("lost_client", r"^(?:closing AMQP connection .*)?(?:client unexpectedly closed|missed heartbeats from client)"),
)
_PATTERNS = tuple((what, re.compile(pattern)) for what, pattern in _SENTENCES)
#: A quick check that excludes most lines.
_ANY = re.compile(
    r"[Nn]ode |partition|minority|Autoheal|mode enabled|asked to st|shutting down|Halting|maintenance|Starting |"
    r"is empty|virgin|in term: 1 |now ACTIVE|flags found|alarm |Mirrored|queue '|unexpectedly closed|missed heartbeats"
)
#: How others begin each line: ``kubectl logs --prefix`` by the pod, whose node wrote it; its ``--timestamps``, ``docker
#: logs -t`` and the files of a container runtime by a time of their own.
_WRAPPED = re.compile(
    r"(?:\[pod/(?P<pod>[^/\]]+)/[^\]]+\] )?"
    r"(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?(?!\[))?"
)
#: A member of a queue as Raft calls it: ``{'%2F_orders',rabbit@host1}``.
_MEMBER = re.compile(r"\{'?[^\s{},]+,\s*'?([\w.-]+@[\w.-]+)'?\}")
#: What logrotate may add to the name of a file: its day, and a number.
_DATED = r"-\d{8}(?:[-.]\d+)?"
#: The codes by which a console shows colours.
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_OPENERS: Mapping[str, Callable[..., IO[Any]]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?) \[\w+\] "
    r"(?:<(?P<pid>[\d.]+)>@?\S* |\S*@\S*<(?P<its>[\d.]+)> )?"
)


@dataclass(frozen=True)
class Sighting:
    """A line of a log: the node ``by`` wrote ``what`` (a name of ``_SENTENCES``) at the time ``at``.

    ``about``: the other node that the line names, if any. ``pid``: the Erlang process that wrote the line, None if the
    line has none; within one life of the Erlang VM, later processes have higher ones.
    """

    at: float
    by: str
    what: str
    about: str = ""
    detail: str = ""
    pid: tuple[int, ...] | None = None


@dataclass
class NodeLog:
    """The log of one node.

    ``times``: the times of all its lines, in order. ``named``: the nodes that it names as members of queues.
    """

    node: str
    sightings: list[Sighting] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    times: array[float] = field(default_factory=lambda: array("d"))


def read_logs(paths: Iterable[Path]) -> tuple[NodeLog, ...]:
    """Read files and folders, and return one log for each node; rotated files (``.1``, ``.gz``, ``-20260131``) are
    joined, and what is in two files, or named twice, counts once.

    Raise EvidenceError if a path is empty, has no logs, or cannot be read.
    """
    paths = list(paths)
    for path in paths:
        if not path.is_dir() and not path.stat().st_size:
            raise EvidenceError(f"{path} is empty (0 bytes): leave it out, or name another log")
        if archive := next((file for file in ([path] if path.is_file() else _files(path)) if _is_archive(file)), None):
            raise EvidenceError(f"{archive} is an archive of several files: unpack it, and name its folder")
        if path.is_dir() and not any(_files(path)):
            raise EvidenceError(f"{path} has no logs: its files end in .log, .gz, .xz, .bz2, .txt, .json or a number")
    named = (file for path in paths for file in (_files(path) if path.is_dir() else [path]))
    files = sorted({file.resolve(): file for file in named}.values())
    folders = {stem: {file.parent for file in files if _stem(file) == stem} for stem in map(_stem, files)}
    read = [(file, log) for file in files for log in _read(file)]
    names = {sighting.about for _, log in read for sighting in log.sightings if sighting.about}
    names |= {name for _, log in read for name in log.named}
    by_node: dict[str, NodeLog] = {}
    for file, log in read:
        if not log.times:
            continue
        by_folder = len(folders[_stem(file)]) > 1
        node = log.node if "@" in log.node else _node_of(file, names, pod=log.node, by_folder=by_folder)
        joined = by_node.setdefault(node, NodeLog(node))
        joined.sightings += [replace(sighting, by=node) for sighting in log.sightings]
        joined.named |= log.named
        joined.times = array("d", sorted([*joined.times, *log.times]))
    for log in by_node.values():
        log.sightings = sorted(dict.fromkeys(log.sightings), key=lambda sighting: sighting.at)
    return tuple(by_node[node] for node in sorted(by_node))


def _files(folder: Path) -> Iterator[Path]:
    return (
        path
        for path in folder.rglob("*")
        if path.is_file() and re.search(rf"\.(log|gz|xz|bz2|txt|json|\d+)$|\.log{_DATED}$", path.name)
    )


def _is_archive(file: Path) -> bool:
    return bool(re.search(r"\.(?:tar(?:\.\w+)?|tgz|txz|zip)$", file.name))


def _read(file: Path) -> list[NodeLog]:
    """Return the logs in a file: one, or one for each pod if kubectl has written the file for several pods."""
    by_pod: dict[str, NodeLog] = {}
    try:
        with _OPENERS.get(file.suffix, open)(file, "rt", errors="replace") as lines:
            for pod, its in groupby(lines, key=_pod_of):
                log = by_pod.setdefault(pod, NodeLog(""))
                plain = (_WRAPPED.sub("", _COLOUR.sub("", line), count=1) for line in its)
                for at, text, pid in _lines(plain):
                    log.times.append(at)
                    log.named.update(_MEMBER.findall(text))
                    if _ANY.search(text) and (sighting := _sighting(at, text, pid)):
                        log.sightings.append(sighting)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise EvidenceError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    for pod, log in by_pod.items():
        log.node = next((sighting.about for sighting in log.sightings if sighting.what == "name"), pod)
    return list(by_pod.values())


def _pod_of(line: str) -> str:
    found = _WRAPPED.match(line)
    return (found["pod"] if found else None) or ""


def _lines(lines: Iterable[str]) -> Iterator[tuple[float, str, str]]:
    """Yield (time, text, pid) of every line; a line without a time takes those of the line before."""
    at, pid = None, ""
    for line in lines:
        if line.startswith("{") and (found_json := _json_line(line)):
            at, message, pid = found_json
            yield from ((at, text, pid) for text in message.splitlines())
        elif found := _LINE.search(line):
            at, pid = seconds(found["time"]), found["pid"] or found["its"] or ""
            yield at, line[found.end() :].rstrip("\n"), pid
        elif at is not None:
            yield at, line.rstrip("\n"), pid


def _json_line(line: str) -> tuple[float, str, str] | None:
    try:
        fields = json.loads(line)
        return seconds(str(fields["time"])), str(fields["msg"]), str(fields.get("pid", "")).strip("<>")
    except (ValueError, KeyError, TypeError):
        return None


def _pid(text: str) -> tuple[int, ...] | None:
    """Return a pid (``0.NUMBER.SERIAL``) as numbers that compare in the order in which Erlang gives pids.

    When NUMBER starts again, Erlang increments SERIAL.
    """
    found = re.fullmatch(r"\d+\.(\d+)\.(\d+)", text)
    return (int(found[2]), int(found[1])) if found else None


def _sighting(at: float, text: str, pid: str) -> Sighting | None:
    for what, pattern in _PATTERNS:
        if found := pattern.search(text):
            groups = found.groupdict()
            detail = groups.get("detail") or groups.get("other") or ""
            if groups.get("count"):
                detail = f"{groups['count']}/{detail}"
            return Sighting(at, "", what, groups.get("about") or "", detail, _pid(pid))
    return None


def _stem(file: Path) -> str:
    """Return the name of a log without what a rotation has added."""
    return re.sub(rf"(\.log|\.txt|\.json|\.gz|\.xz|\.bz2|\.\d+|{_DATED})+$", "", file.name)


def _node_of(file: Path, names: Iterable[str], *, pod: str, by_folder: bool) -> str:
    """Return the node of a log that does not name it: by its pod, or by the names of its file and folder; by the folder
    alone if files of several folders have that name."""
    stem, folder = _stem(file), file.parent.name
    called = [pod] if pod else [folder] if by_folder else [stem, folder]
    for name in called:
        fitting = sorted(node for node in names if name == node or name in re.split("[@.]", node))
        if len(fitting) == 1:
            return fitting[0]
    is_first_part = by_folder and any(node.startswith(f"{stem}@") for node in names)
    return f"{stem}@{folder}" if is_first_part and not pod else called[0]
