"""From what is at hand to the lines of a night: this machine and this suite, and a run that was judged."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import psutil

from rabbitmq_resilience.invariants.verdict import Verdict
from rabbitmq_resilience.nights.night_file import BrokeFirst, Header, Machine, Played, Word
from rabbitmq_resilience.pages.impact import longest_outage_s
from rabbitmq_resilience.pages.wording import verdict_word
from rabbitmq_resilience.play.judging import Result
from rabbitmq_resilience.record.commands import rerun_command

DISTRIBUTION = "rabbitmq-resilience"
_NO_COMMIT_AFTER_S = 10


def moment(at_s: float | None = None) -> str:
    """Of seconds since 1970, or of now, in UTC."""
    at = datetime.now(UTC) if at_s is None else datetime.fromtimestamp(at_s, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def header(
    root: Path, *, name: str | None, machine_name: str | None, driver: str, budget_min: float | None, at: str
) -> Header:
    """Of a night that begins ``at`` a moment. ``root``: the folder of pytest, whose commit is told."""
    return Header(
        night=at,
        name=name,
        suite_version=_suite_version(),
        suite_commit=_commit(root),
        machine=machine(machine_name),
        driver=driver,
        budget_min=budget_min,
    )


def machine(name: str | None = None) -> Machine:
    """This one. Machines that are given the same ``name`` count as the same, such as those that a CI service lends."""
    told_apart_by = name or _machine_id()
    return Machine(
        cpus=psutil.cpu_count() or 1,
        memory_gb=round(psutil.virtual_memory().total / 1e9, 1),
        cpu_model=_cpu_model(),
        kernel=platform.release(),
        id=hashlib.sha256(told_apart_by.encode()).hexdigest()[:8],
    )


def played(result: Result, *, scenario: str, drawn: bool = False) -> Played:
    """The line of a run that the test ``scenario`` played."""
    told = result.document
    availability, recovery, throughput = (_numbers(told, n) for n in ("availability", "recovery", "throughput"))
    consequences = told.get("consequences") or {}
    known = result.as_expected and result.verdict is not Verdict.VALID
    return Played(
        scenario=scenario,
        title=str(told.get("title") or result.run.name),
        verdict=_word(told),
        as_expected=result.as_expected,
        expected=str(told.get("expected") or "VALID"),
        known=(told.get("reference") or "no reference") if known else None,
        invariants={n: _word(found) for n, found in _findings(told, "invariants")},
        broke_first=broke_first(told),
        seed=told.get("seed"),
        broker_version=told.get("broker_version"),
        driver=told.get("driver"),
        topology=told.get("topology"),
        partition_handling=told.get("partition_handling"),
        queue_type=told.get("queue_type"),
        outage_s=longest_outage_s(told),
        outage_total_s=(consequences.get("outages") or {}).get("total_s"),
        stall_s=availability.get("stall_s"),
        recovered_s=recovery.get("recovered_after_s"),
        kept_ratio=throughput.get("kept_ratio"),
        slowest_ratio=throughput.get("ratio"),
        confirmed_per_s=throughput.get("steady_per_s"),
        others_cpu=(told.get("others_cpu") or {}).get("mean"),
        started_at=told.get("started_at"),
        duration_s=told.get("duration_s"),
        run=result.run.name,
        rerun=str(told.get("rerun") or rerun_command(result.run.path)),
        fault_file=f"{result.run.name}/{result.run.fault_file.name}",
        drawn=drawn,
    )


def broke_first(told: Mapping[str, Any]) -> BrokeFirst | None:
    """Of a run, from the content of its verdict.json: the first invariant that is INVALID; of one that cannot tell, the
    first assumption that failed, or else the first invariant that is UNKNOWN; None of one that is VALID."""
    word = verdict_word(told)
    kinds = ("invariants",) if word == "INVALID" else ("assumptions", "invariants")
    findings = [item for kind in kinds for item in _findings(told, kind)]
    short = ((name, found) for name, found in findings if verdict_word(found) == word)
    name, found = next(short, ("", None)) if word != "VALID" else ("", None)
    return None if found is None else BrokeFirst(invariant=name, summary=str(found.get("summary", "")))


#: What an XML report tells of each run, by the names of the fields of its line.
_PROPERTIES = (
    *("verdict", "as_expected", "expected", "known", "seed", "broker_version", "driver"),
    *("outage_s", "outage_total_s", "stall_s", "recovered_s", "kept_ratio", "slowest_ratio", "confirmed_per_s"),
    *("run", "rerun"),
)


def properties(line: Played, *, number: int = 1) -> Iterator[tuple[str, str]]:
    """Names and values for JUnit XML; what is not known is left out. From the second run of a test on, names end with
    its number: ``verdict.2``."""
    told = {name: getattr(line, name) for name in _PROPERTIES}
    if line.broke_first is not None:
        told |= {"invariant": line.broke_first.invariant, "reason": line.broke_first.summary}
    for name, value in told.items():
        if value is not None:
            yield (name if number == 1 else f"{name}.{number}"), str(value)


def _word(judged: Mapping[str, Any]) -> Word:
    return cast(Word, verdict_word(judged))


def _findings(told: Mapping[str, Any], kind: str) -> list[tuple[str, Mapping[str, Any]]]:
    return list((told.get(kind) or {}).items())


def _numbers(told: Mapping[str, Any], invariant: str) -> Mapping[str, Any]:
    return dict(_findings(told, "invariants")).get(invariant, {}).get("numbers") or {}


def _suite_version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def _commit(root: Path) -> str | None:
    """With ``-dirty`` where files of it were changed; None where there is no git, or no repository."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_NO_COMMIT_AFTER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def with_changes(commit: str | None, root: Path) -> str | None:
    """A commit that is ``-dirty``, with a short hash of what was changed since: of two such ones nobody could tell
    whether they are the same."""
    if commit is None or not commit.endswith("-dirty"):
        return commit
    try:
        told = subprocess.run(
            ["git", "-C", str(root), "diff", "HEAD", "--binary"],
            capture_output=True, timeout=_NO_COMMIT_AFTER_S, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return commit
    return f"{commit}-{hashlib.sha256(told).hexdigest()[:8]}"


def _machine_id() -> str:
    """By machine-id(5), or else the address of a network card."""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip() or str(uuid.getnode())
    except (OSError, ValueError):
        return str(uuid.getnode())


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
