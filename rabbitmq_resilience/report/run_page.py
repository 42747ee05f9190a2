"""Write the page of a run: self-contained, offline, verdict first.

All text from fault files and brokers is escaped. The page's own policy allows only the script with the hash that it
names, and allows nothing to be loaded.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rabbitmq_resilience.history.commands import recheck_command, rerun_command
from rabbitmq_resilience.history.run_directory import RunDirectory, RunDirectoryError
from rabbitmq_resilience.history.whole_files import write_whole
from rabbitmq_resilience.report import log_lines
from rabbitmq_resilience.report.charts import charts
from rabbitmq_resilience.report.html import asset, render
from rabbitmq_resilience.report.impact import impact, queue_rows
from rabbitmq_resilience.report.series import Series, series
from rabbitmq_resilience.report.timeline import FaultWindow
from rabbitmq_resilience.report.wording import coverage_text, duration_text, expectation_text, number_text, verdict_word

#: With more faults than this, the table is folded away, except for faults that are in doubt.
FAULTS_SHOWN_MAX = 30
#: The most queues with outages that are shown: those with the longest ones.
QUEUES_SHOWN_MAX = 20

MEANINGS = {
    "VALID": "Every promise held.",
    "INVALID": "A promise was broken.",
    "UNKNOWN": "This run does not show whether the promises held.",
}


@dataclass(frozen=True)
class ShownFinding:
    """The finding of an invariant or assumption, as the page shows it."""

    name: str
    word: str
    summary: str
    covered: str
    numbers: Sequence[tuple[str, str]]
    examples: Sequence[Any]
    logged: Sequence[str] = ()


def write_page(run: RunDirectory) -> Path:
    """Write ``report.html`` from the files of a run, complete or not, and return its path.

    If the verdict is missing or the history is damaged, the page says so and shows the rest.
    """
    troubles: list[str] = []
    try:
        verdict = run.read_verdict()
    except RunDirectoryError as error:
        verdict = {}
        troubles.append(str(error))
    try:
        seen = series(run.publishes, run.deliveries, run.events(), run.metrics, run.alerts())
    except Exception as error:  # reading damaged files may raise any exception
        seen = series(tuple, tuple, [])
        troubles.append(f"The record of this run is damaged and is not drawn: {error}")
    write_whole(run.report, _page(run, verdict, seen, troubles))
    return run.report


def _page(run: RunDirectory, verdict: Mapping[str, Any], seen: Series, troubles: Sequence[str]) -> str:
    word = verdict_word(verdict)
    invariants, assumptions = (_findings(verdict.get(kind) or {}) for kind in ("invariants", "assumptions"))
    invariants = _explained(run, verdict, invariants, seen)
    script = asset("report.js")
    return render(
        "report.html",
        word=word,
        meaning=" ".join(filter(None, (MEANINGS[word], expectation_text(verdict)))),
        title=verdict.get("name") or verdict.get("title") or run.name,
        labels=_labels(verdict),
        troubles=troubles,
        reasons=[finding for finding in (*assumptions, *invariants) if finding.word == word != "VALID"],
        notes=verdict.get("notes") or (),
        impact=list(impact(verdict)),
        queue_rows=queue_rows(verdict)[:QUEUES_SHOWN_MAX],
        facts=_facts(verdict, seen),
        invariants=_worst_first(invariants),
        assumptions=_worst_first(assumptions),
        charts=charts(seen),
        faults=seen.timeline.faults,
        doubtful=[fault for fault in seen.timeline.faults if _in_doubt(fault)],
        faults_shown_max=FAULTS_SHOWN_MAX,
        commands={
            "The same run": verdict.get("rerun") or rerun_command(run.path),
            "Judge it again": recheck_command(run.path),
        },
        fault_file=_text(run.fault_file),
        files=[str(file.relative_to(run.path)) for file in _files(run)],
        script=script,
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _facts(verdict: Mapping[str, Any], seen: Series) -> dict[str, Any]:
    """Return the facts of a run by their title; a value is None if it is not known."""
    return {
        "Erlang": verdict.get("erlang_version"),
        "Upgraded to": ", ".join(verdict.get("upgraded_to") or ()) or None,
        "Driver": verdict.get("driver"),
        "Seed": verdict.get("seed"),
        "Reference": verdict.get("reference"),
        "Started": _moment(verdict.get("started_at")),
        "Duration": duration_text(float(verdict.get("duration_s") or seen.duration_s)),
        "Sent": f"{seen.totals['sent']:,}",
        "Confirmed": f"{seen.totals['confirmed']:,}",
        "Received": f"{seen.totals['received']:,}",
    }


def _moment(iso: str | None) -> str | None:
    """Return a moment, stated in ISO 8601, for people: in UTC."""
    return f"{datetime.fromisoformat(iso).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if iso else None


def _labels(verdict: Mapping[str, Any]) -> list[str]:
    """Return the broker, queue type and topology of a run in words for people."""
    version, kind = verdict.get("broker_version"), verdict.get("queue_type")
    labels = [
        version and f"RabbitMQ {version}",
        kind and f"{kind} queues",
        verdict.get("partition_handling"),
        (verdict.get("topology") or "").replace("_", " "),
    ]
    return [label for label in labels if label]


def _explained(
    run: RunDirectory, verdict: Mapping[str, Any], findings: Sequence[ShownFinding], seen: Series
) -> list[ShownFinding]:
    """Return the findings. INVALID ones get the brokers' log lines around the first moment that they name."""
    started_at = verdict.get("started_at")
    if started_at is None or all(finding.word != "INVALID" for finding in findings):
        return list(findings)
    entries = log_lines.read({log.stem: log for log in sorted(run.logs.glob("*.log"))}, started_at=started_at)
    begun_s = [fault.start_s for fault in seen.timeline.faults if not fault.skipped]
    explained = []
    for finding in findings:
        moments = log_lines.moments_s([finding.summary, *map(str, finding.examples)])
        if finding.word == "INVALID" and moments:
            explained.append(replace(finding, logged=log_lines.around(entries, moments[0], begun_s)))
        else:
            explained.append(finding)
    return explained


def _findings(findings: Mapping[str, Mapping[str, Any]]) -> list[ShownFinding]:
    return [
        ShownFinding(
            name=name,
            word=verdict_word(finding),
            summary=str(finding.get("summary", "")),
            covered=coverage_text(finding),
            numbers=[number_text(key, value) for key, value in (finding.get("numbers") or {}).items()],
            examples=finding.get("examples") or (),
        )
        for name, finding in findings.items()
    ]


def _worst_first(findings: Iterable[ShownFinding]) -> list[ShownFinding]:
    return sorted(findings, key=lambda finding: ("INVALID", "UNKNOWN", "VALID").index(finding.word))


def _in_doubt(fault: FaultWindow) -> bool:
    return fault.skipped or not (fault.healed and fault.proven and fault.heal_proven)


def _files(run: RunDirectory) -> list[Path]:
    files = [file for file in (run.verdict_file, run.events_file, run.fault_file) if file.exists()]
    files += sorted(file for file in run.logs.glob("**/*") if file.is_file())
    return files + sorted(file for file in run.history.glob("*.log") if file.stat().st_size)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
