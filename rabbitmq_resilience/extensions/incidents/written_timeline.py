"""Read a timeline that people wrote: CSV or JSON lines with a time, a node or zone, and what happened there."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rabbitmq_resilience.extensions.incidents.log_times import seconds
from rabbitmq_resilience.extensions.incidents.occurrences import Evidence, EvidenceError, Occurrence

#: The names that a column may have, by its content.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "time": ("time", "timestamp", "at", "when", "start", "begin", "date"),
    "node": ("node", "broker", "host", "where", "target", "between"),
    "zone": ("zone", "az", "rack", "datacenter"),
    "event": ("event", "what", "fault", "happened", "message"),
    "end": ("end", "until", "to", "healed"),
    "duration": ("duration", "duration_s", "for_s", "for", "seconds"),
}

#: Words for an end, looked for before the words for a beginning. The latter have the name of the fault.
_ENDS = (
    r"heal|recover|reconnect|resum|\bstarted|\bboot(?:ed|s)?\b|\bup\b|\bback\b|clear|restored|rejoin|resolved|"
    r"\bended?\b"
)
#: What takes the meaning from a word for an end, if it comes before it.
_NOT_YET = re.compile(rf"\b(?:not|never|cannot|fail(?:ed|s)? to|unable to)\b.*(?:{_ENDS})|n't\b.*(?:{_ENDS})")
#: Faults that start themselves: with these, that word is no end.
_STARTED = re.compile(r"(?:partition|latency|alarm|outage|incident)\w* (?:has |was )?(?:started|began|begins)")
#: What follows these words happened at the same time, and is not what the row is about.
_ASIDE = re.compile(r"\b(?:while|during)\b.*")
_BEGINS: tuple[tuple[str, str], ...] = (
    ("kill", r"\boom|out of memory|sigkill|kill -(?:9|kill)"),
    ("pause", r"sigstop|kill -stop|fr[eo]ez|frozen|stopped (?:answer|respond)"),
    ("alarm memory", r"memory"),
    ("alarm disk", r"disk (?:alarm|full|space)|out of disk|alarm.*disk"),
    (
        "lose_disk",
        r"(?:lost|lose|wiped|replaced).*(?:disk|data(?! ?cent))|(?:disk|data(?! ?cent)\w*).*(?:lost|wiped|replaced)",
    ),
    ("partition", r"partition|cut ?off|isolat|unreachable|split|network (?:lost|down|fail|out)"),
    ("disconnect", r"disconnect|connections? (?:reset|refused)|link reset"),
    ("latency", r"latency|slow|delay"),
    ("stop", r"\bstop|shut ?down|restart|upgrade|maintenance|drain"),
    ("pause", r"pause|fr[eo]ez|frozen|hung|suspend|stall"),
    ("kill", r"kill|crash|died|\bdown\b|power|(?<!message )(?<!messages )(?<!quorum )\blost\b|reboot|gone"),
)
#: Faults between nodes.
_BETWEEN = frozenset({"partition", "disconnect", "latency"})
_TO_FILL_IN: Mapping[str, Mapping[str, object]] = {
    "latency": {"latency_ms": "FILL IN: how many milliseconds slower the links were"},
}


@dataclass(frozen=True)
class _Row:
    number: int
    at: float
    place: frozenset[str]
    event: str
    end: float | None
    #: The ends of a link, if the column says that it is about what is between them.
    between: tuple[frozenset[str], ...] = ()


def evidence_of(path: Path) -> Evidence:
    """Read a timeline, and return its evidence. Raise EvidenceError with the row if it cannot be used."""
    rows = [_row(path, number, raw) for number, raw in _raw_rows(path)]
    if not rows:
        raise EvidenceError(f"{path}: no row; a timeline has the columns time, node (or zone) and event")
    zones = {node: zone for _, raw in _raw_rows(path) if (node := _of(raw, "node")) and (zone := _of(raw, "zone"))}
    rows = [replace(row, place=_members(row.place, zones)) for row in rows]
    found: list[Occurrence] = []
    strange: list[str] = []
    for row in sorted(rows, key=lambda row: row.at):
        event = _NOT_YET.sub("", _ASIDE.sub("", row.event) or row.event)
        fault = next((name for name, words in _BEGINS if re.search(words, event)), None)
        ends = bool(re.search(_ENDS, event)) and not row.end and not _STARTED.search(event)
        if ends and (ended := _ended(found, row, fault)) is not None:
            found[ended] = replace(found[ended], end=row.at)
        elif fault is None or (ends and "restart" not in event):
            strange.append(f"row {row.number} was not understood and is not in the schedule: {row.event}")
        else:
            found.append(_happening(fault, row))
    return Evidence(
        sources=(str(path),),
        nodes=tuple(sorted({node for row in rows for node in row.place})),
        occurrences=tuple(found),
        zones=zones,
        notes=tuple(strange),
    )


def _happening(fault: str, row: _Row) -> Occurrence:
    fault, _, resource = fault.partition(" ")
    fields = {**_TO_FILL_IN.get(fault, {}), **({"resource": resource} if resource else {})}
    between = row.between if fault in _BETWEEN else ()
    return Occurrence(fault, between or (row.place,), row.at, row.end, fields)


def _ended(found: Sequence[Occurrence], row: _Row, fault: str | None) -> int | None:
    """Return the index of the occurrence that a row ends, or None.

    It is the last one at the row's place that has no end yet; if the row names a fault, it is one of that fault.
    """
    name, _, resource = (fault or "").partition(" ")
    for i, occurrence in reversed(list(enumerate(found))):
        fits = occurrence.nodes & row.place and (not resource or occurrence.fields.get("resource") == resource)
        if occurrence.end is None and fits and name in ("", occurrence.fault, "kill"):
            return i
    return None


def _members(place: frozenset[str], zones: Mapping[str, str]) -> frozenset[str]:
    """Replace zones by their nodes, which other rows name; a zone without such nodes counts as one node."""
    named = frozenset(node for node, zone in zones.items() if zone in place)
    return frozenset(end for end in place if end not in zones.values()) | named if named else place


def _row(path: Path, number: int, raw: Mapping[str, object]) -> _Row:
    def missing(column: str) -> EvidenceError:
        return EvidenceError(
            f"{path}, row {number}: no {column}; a row has time, node (or zone) and event, and may have end or "
            f"duration (the column may be called {', '.join(COLUMNS[column])})"
        )

    def moment(column: str) -> float | None:
        text = _of(raw, column)
        try:
            return seconds(text) if text else None
        except ValueError:
            raise EvidenceError(
                f"{path}, row {number}, {column}: {text!r} is no time; write it as 2026-01-31T12:00:00Z, or as seconds "
                "since 1970"
            ) from None

    at = moment("time")
    place = _of(raw, "node") or _of(raw, "zone")
    if at is None or not place or not (event := _of(raw, "event")):
        raise missing("time" if at is None else "event" if place else "node")
    end, duration = moment("end"), _of(raw, "duration")
    if end is None and duration:
        end = at + _duration_s(path, number, duration)
    if end is not None and end <= at:
        raise EvidenceError(f"{path}, row {number}: it ends before it begins")
    nodes = frozenset(name.removeprefix("zone:") for name in re.split(r"[\s,;|]+", place) if name)
    is_link = bool(raw.get("between")) and len(nodes) > 1
    return _Row(number, at, nodes, event.lower(), end, tuple(frozenset({n}) for n in sorted(nodes)) if is_link else ())


def _duration_s(path: Path, number: int, text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|seconds?|m|min|minutes?|h|hours?|)", text.lower())
    if not found:
        raise EvidenceError(
            f"{path}, row {number}, duration: {text!r} is none; write seconds (12.5), or 500ms, 3min, 1h"
        )
    unit = found[2]
    factor = 0.001 if unit == "ms" else {"m": 60, "h": 3600}.get(unit[:1], 1)
    return float(found[1]) * factor


def _of(raw: Mapping[str, object], column: str) -> str:
    return next((str(raw[name]).strip() for name in COLUMNS[column] if raw.get(name) not in (None, "")), "")


def _raw_rows(path: Path) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Yield each row with the number of its line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise EvidenceError(f"{path}: cannot be read: {error}") from error
    lines = text.splitlines()
    if text.lstrip().startswith("{"):
        yield from _json_rows(path, lines)
        return
    separator = max(",;\t", key=(lines or [""])[0].count)
    for number, row in enumerate(csv.DictReader(lines, delimiter=separator), 2):
        if any(row.values()):
            yield number, {(name or "").strip().lower(): value for name, value in row.items()}


def _json_rows(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, Mapping[str, object]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
        except ValueError as error:
            raise EvidenceError(f"{path}, row {number}: is no JSON: {error}") from None
        if not isinstance(raw, dict):
            raise EvidenceError(f"{path}, row {number}: is no JSON object such as {{'time': ..., 'node': ...}}")
        yield number, {str(name).strip().lower(): value for name, value in raw.items()}
