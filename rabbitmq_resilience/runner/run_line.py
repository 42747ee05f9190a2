"""Describe a run that was judged in one line of fields: for JUnit XML and for night files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, cast

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.commands import rerun_command
from rabbitmq_resilience.report.impact import longest_outage_s
from rabbitmq_resilience.report.wording import verdict_word
from rabbitmq_resilience.runner.judging import Result

Word = Literal["VALID", "INVALID", "UNKNOWN"]


@dataclass(frozen=True, kw_only=True)
class BrokeFirst:
    """An invariant or assumption that did not hold, or could not be judged, and why, in a sentence."""

    invariant: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class RunLine:
    """One run of a scenario.

    ``scenario``: pytest's node id, the key of a series. ``drawn``: whether the schedule was drawn at random, so that
    the numbers of several nights are no series. ``known``: the reference of the violation that was expected and seen.
    ``outage_s``: the longest outage of any queue. ``outage_total_s``: the time without a confirm of any queue.
    ``stall_s``: the longest stall that ``availability`` saw. ``kept_ratio``, ``slowest_ratio``: parts of the steady
    rate (``confirmed_per_s``): while a node was away, and in the slowest window that ``throughput`` judged.
    ``others_cpu``: the part of the processors that other programs took. ``run``: the name of the run directory.
    ``fault_file``: the path of its scenario below the folder of run directories.
    """

    kind: ClassVar[str] = "played"

    scenario: str
    title: str
    verdict: Word
    as_expected: bool
    expected: str
    known: str | None
    invariants: Mapping[str, Word]
    broke_first: BrokeFirst | None
    seed: int | None
    broker_version: str | None
    driver: str | None
    topology: str | None
    partition_handling: str | None
    queue_type: str | None
    outage_s: float | None
    outage_total_s: float | None
    stall_s: float | None
    recovered_s: float | None
    kept_ratio: float | None
    confirmed_per_s: float | None
    others_cpu: float | None
    started_at: str | None
    duration_s: float | None
    run: str
    rerun: str
    fault_file: str
    slowest_ratio: float | None = None
    drawn: bool = False

    def number(self, field: str) -> float | None:
        """Return the number in that field; infinity for a recovery that never came."""
        value: float | None = getattr(self, field)
        if field == "recovered_s" and value is None and self.invariants.get("recovery") == "INVALID":
            return math.inf
        return value


def moment(at_s: float | None = None) -> str:
    """Return a moment (seconds since 1970, by default now) as text in UTC."""
    at = datetime.now(UTC) if at_s is None else datetime.fromtimestamp(at_s, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def played(result: Result, *, scenario: str, drawn: bool = False) -> RunLine:
    """Return the line of a run that the test ``scenario`` played."""
    verdict = result.document
    availability, recovery, throughput = (_numbers(verdict, n) for n in ("availability", "recovery", "throughput"))
    consequences = verdict.get("consequences") or {}
    known = result.as_expected and result.verdict is not Verdict.VALID
    return RunLine(
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


def properties(line: RunLine, *, number: int = 1) -> Iterator[tuple[str, str]]:
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
