"""Make a first fault file from the evidence of an incident: broker logs, a timeline, or both.

rabbitmq-resilience fault-file LOGS_OR_TIMELINE [MORE ...] [--to incident.fault.yaml]
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from rabbitmq_resilience.extensions.incidents import from_logs, written_timeline
from rabbitmq_resilience.extensions.incidents.draft import draft
from rabbitmq_resilience.extensions.incidents.occurrences import Evidence, EvidenceError, combined
from rabbitmq_resilience.model.yaml_files import FILL_IN
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.tools.distributions import brokers_at_home
from rabbitmq_resilience.tools.locations import OPTION

_TIMELINES = (".csv", ".tsv", ".jsonl", ".ndjson")


def evidence_of(paths: Sequence[Path], *, net_ticktime_s: float | None = None) -> Evidence:
    """Read timelines (.csv, .tsv, .jsonl, .ndjson) and broker logs (files or folders), and return their evidence.

    If both have the same occurrence, the logs count. Raise EvidenceError if a path cannot be used.
    """
    for path in paths:
        if not path.exists():
            raise EvidenceError(f"{path}: there is no such file or folder")
    timelines = [path for path in paths if path.suffix in _TIMELINES]
    logs = [path for path in paths if path not in timelines]
    parts = [from_logs.evidence_of(logs, net_ticktime_s=net_ticktime_s)] if logs else []
    return combined([*parts, *map(written_timeline.evidence_of, timelines)])


def next_command(file: Path | None, versions: Sequence[str]) -> str:
    """Return the command that plays a fault file on the version of the evidence, or what else can play it."""
    played = f"pytest {shlex.quote(str(file or 'incident.fault.yaml'))}"
    if not versions:
        return f"{played} (on a broker at home, as no evidence has the version; {OPTION}broker VERSION takes another)"
    version = max(versions, key=Version)
    there = [home.version for home in brokers_at_home()]
    whole = f"{played} {OPTION}broker {version}"
    if version in there or not there:
        return whole
    nearest = min(there, key=lambda home: (_distance(home, version), Version(home) < Version(version)))
    return f"{whole} (its release is fetched; the nearest at home is {nearest})"


def _distance(one: str, other: str) -> tuple[int, ...]:
    """Return how far apart two versions are, part by part."""
    return tuple(abs(a - b) for a, b in zip(Version(one).release, Version(other).release, strict=False))


def _zone(text: str) -> tuple[str, list[str]]:
    zone, _, nodes = text.partition("=")
    if not zone or not nodes:
        raise argparse.ArgumentTypeError(f"{text!r} is no zone; write it as a=rabbit@host1,rabbit@host2")
    return zone, nodes.split(",")


def main(arguments: Sequence[str], *, program: str | None = None) -> int:
    """Run the command, and return its exit status. ``program``: the name of the command in its usage."""
    parser = argparse.ArgumentParser(prog=program, description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("evidence", type=Path, nargs="+", help="broker logs (files, folders), timelines (.csv, .jsonl)")
    parser.add_argument("--to", type=Path, help="where to write the fault file (default: the terminal)")
    parser.add_argument("--zone", type=_zone, action="append", default=[], help="NAME=NODE,NODE: nodes of one zone")
    parser.add_argument("--net-ticktime-s", type=float, help="the brokers' net_ticktime, if no file has it (60)")
    given = parser.parse_args(arguments)
    try:
        evidence = evidence_of(given.evidence, net_ticktime_s=given.net_ticktime_s)
        text = draft(evidence, zones=dict(given.zone))
    except EvidenceError as error:
        parser.error(str(error))
    if given.to is None:
        print(text, end="")
    elif given.to.exists():
        parser.error(f"{given.to} exists already; move it away, or name another with --to")
    else:
        try:
            given.to.write_text(text, encoding="utf-8")
        except OSError as error:
            parser.error(f"{given.to} cannot be written: {error.strerror}")
    try:
        fault_file.parse(text, source=str(given.to or "what was made"), driver=None)
        places = text.count(FILL_IN) - 1  # one explains the mark
        print(f"It can be played without changes; {places} places say {FILL_IN}.", file=sys.stderr)
        first = "" if given.to else "write it to a file (--to incident.fault.yaml), then "
        print(f"Next: {first}{next_command(given.to, evidence.versions)}", file=sys.stderr)
    except fault_file.FaultFileError as error:
        print(f"It has to be filled in before it can be played.\n{error}", file=sys.stderr)
    return 0
