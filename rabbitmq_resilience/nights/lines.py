"""Make the lines of a night: the header from this machine and this suite, and a line from each judged run."""

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
    """Return a moment (seconds since 1970, by default now) as text in UTC."""
    at = datetime.now(UTC) if at_s is None else datetime.fromtimestamp(at_s, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def header(
    root: Path, *, name: str | None, machine_name: str | None, driver: str, budget_min: float | None, at: str
) -> Header:
    """Return the header of a night that begins ``at`` a moment. ``root``: the folder whose commit is recorded."""
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
    """Return the description of this machine.

    Machines with the same ``name`` count as one machine, such as the runners of a CI service."""
    identity = name or _machine_id()
    return Machine(
        cpus=psutil.cpu_count() or 1,
        memory_gb=round(psutil.virtual_memory().total / 1e9, 1),
        cpu_model=_cpu_model(),
        kernel=platform.release(),
        id=hashlib.sha256(identity.encode()).hexdigest()[:8],
    )


def played(result: Result, *, scenario: str, drawn: bool = False) -> Played:
    """Return the line of a run that the test ``scenario`` played."""
    verdict = result.document
    availability, recovery, throughput = (_numbers(verdict, n) for n in ("availability", "recovery", "throughput"))
    consequences = verdict.get("consequences") or {}
    known = result.as_expected and result.verdict is not Verdict.VALID
    return Played(
        scenario=scenario,
        title=str(verdict.get("title") or result.run.name),
        verdict=_word(verdict),
        as_expected=result.as_expected,
        expected=str(verdict.get("expected") or "VALID"),
        known=(verdict.get("reference") or "no reference") if known else None,
        invariants={n: _word(found) for n, found in _findings(verdict, "invariants")},
        broke_first=broke_first(verdict),
        seed=verdict.get("seed"),
        broker_version=verdict.get("broker_version"),
        driver=verdict.get("driver"),
        topology=verdict.get("topology"),
        partition_handling=verdict.get("partition_handling"),
        queue_type=verdict.get("queue_type"),
        outage_s=longest_outage_s(verdict),
        outage_total_s=(consequences.get("outages") or {}).get("total_s"),
        stall_s=availability.get("stall_s"),
        recovered_s=recovery.get("recovered_after_s"),
        kept_ratio=throughput.get("kept_ratio"),
        slowest_ratio=throughput.get("ratio"),
        confirmed_per_s=throughput.get("steady_per_s"),
        others_cpu=(verdict.get("others_cpu") or {}).get("mean"),
        started_at=verdict.get("started_at"),
        duration_s=verdict.get("duration_s"),
        run=result.run.name,
        rerun=str(verdict.get("rerun") or rerun_command(result.run.path)),
        fault_file=f"{result.run.name}/{result.run.fault_file.name}",
        drawn=drawn,
    )


def broke_first(verdict: Mapping[str, Any]) -> BrokeFirst | None:
    """Return what decided the verdict of a run. ``verdict`` is the content of its verdict.json.

    INVALID: the first invariant that is INVALID. UNKNOWN: the first assumption that failed, or else the first invariant
    that is UNKNOWN. VALID: None."""
    word = verdict_word(verdict)
    kinds = ("invariants",) if word == "INVALID" else ("assumptions", "invariants")
    findings = [item for kind in kinds for item in _findings(verdict, kind)]
    short = ((name, found) for name, found in findings if verdict_word(found) == word)
    name, found = next(short, ("", None)) if word != "VALID" else ("", None)
    return None if found is None else BrokeFirst(invariant=name, summary=str(found.get("summary", "")))


#: The fields of a run's line that are written into an XML report.
_PROPERTIES = (
    *("verdict", "as_expected", "expected", "known", "seed", "broker_version", "driver"),
    *("outage_s", "outage_total_s", "stall_s", "recovered_s", "kept_ratio", "slowest_ratio", "confirmed_per_s"),
    *("run", "rerun"),
)


def properties(line: Played, *, number: int = 1) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for JUnit XML, without unknown values.

    From the second run of a test on, names end with the number of the run: ``verdict.2``."""
    values = {name: getattr(line, name) for name in _PROPERTIES}
    if line.broke_first is not None:
        values |= {"invariant": line.broke_first.invariant, "reason": line.broke_first.summary}
    for name, value in values.items():
        if value is not None:
            yield (name if number == 1 else f"{name}.{number}"), str(value)


def _word(judged: Mapping[str, Any]) -> Word:
    return cast(Word, verdict_word(judged))


def _findings(verdict: Mapping[str, Any], kind: str) -> list[tuple[str, Mapping[str, Any]]]:
    return list((verdict.get(kind) or {}).items())


def _numbers(verdict: Mapping[str, Any], invariant: str) -> Mapping[str, Any]:
    return dict(_findings(verdict, "invariants")).get(invariant, {}).get("numbers") or {}


def _suite_version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def _commit(root: Path) -> str | None:
    """Return the commit of ``root``, with ``-dirty`` if files were changed; None without git or a repository."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_NO_COMMIT_AFTER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def with_changes(commit: str | None, root: Path) -> str | None:
    """Return the commit; if it is ``-dirty``, with a short hash of the changes.

    Without the hash, two different dirty checkouts of one commit would look the same."""
    if commit is None or not commit.endswith("-dirty"):
        return commit
    try:
        changes = subprocess.run(
            ["git", "-C", str(root), "diff", "HEAD", "--binary"],
            capture_output=True, timeout=_NO_COMMIT_AFTER_S, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return commit
    return f"{commit}-{hashlib.sha256(changes).hexdigest()[:8]}"


def _machine_id() -> str:
    """Return the machine-id(5), or else the address of a network card."""
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
