"""From a run directory to its verdict and its pages, without any broker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rabbitmq_resilience.invariants.assumptions import RunEnded
from rabbitmq_resilience.invariants.consequences import consequences
from rabbitmq_resilience.invariants.judge import Judgement, judge
from rabbitmq_resilience.invariants.measured import measures
from rabbitmq_resilience.invariants.verdict import Assumption, Finding, History, Verdict
from rabbitmq_resilience.invariants.wholeness import HistoryWhole
from rabbitmq_resilience.pages.index import renew_index
from rabbitmq_resilience.pages.page import write_page
from rabbitmq_resilience.pages.terminal import story
from rabbitmq_resilience.play.cpu_watch import Others
from rabbitmq_resilience.play.examination import recorded_history
from rabbitmq_resilience.play.measuring import recover
from rabbitmq_resilience.record.commands import rerun_command
from rabbitmq_resilience.record.events import ClusterEvent, Event, FaultEvent, NoteEvent
from rabbitmq_resilience.record.run_directory import RunDirectory, RunDirectoryError
from rabbitmq_resilience.scenarios import fault_file
from rabbitmq_resilience.scenarios.expectations import VALID_EXPECTED, Expectation
from rabbitmq_resilience.scenarios.model import Scenario
from rabbitmq_resilience.tools.erlang_support import refusal


@dataclass(frozen=True)
class Result:
    """``document`` is what verdict.json holds; ``as_expected`` whether the run ended as its scenario expects
    of this broker version (VALID, where it says nothing)."""

    run: RunDirectory
    verdict: Verdict
    as_expected: bool
    document: Mapping[str, Any]

    def story(self) -> str:
        """Why it is not VALID, in a few lines, with the commands that play and judge it again."""
        return story(self.document, self.run.path)


def reopened(path: Path) -> RunDirectory:
    """The run at ``path``, to be judged again. What is missing of its record makes it UNKNOWN. Raises RunDirectoryError
    where there is no run, or none with a scenario; no verdict of before stays then."""
    run = RunDirectory(path)
    if not run.fault_file.exists():
        try:
            RunDirectory.open(path)
        except RunDirectoryError as error:
            if any(file.exists() for file in (run.verdict_file, run.events_file, run.history)):
                _withdraw(run, str(error))
                _show(run)
            raise
    return run


def judge_run(run: RunDirectory) -> Result:
    """Judge a recorded run and write its verdict.json and report.html.

    What killed publishers left open is settled first, and what a killed run had scraped is kept. A record that is
    damaged is UNKNOWN. Raises FaultFileError where the scenario cannot be read; no verdict of before stays then.
    """
    try:
        scenario = fault_file.load(run.fault_file, driver=None)
    except fault_file.FaultFileError as error:
        _withdraw(run, str(error))
        _show(run)
        raise
    history = recorded_history(run, scenario)
    try:
        result = _judged(run, scenario, history)
    except Exception as error:  # whatever damaged events say; a verdict of before must not stay
        reason = f"the record cannot be judged: {type(error).__name__}: {error}"
        result = Result(run, Verdict.UNKNOWN, False, _withdraw(run, reason, scenario))
    _show(run)
    return result


def _show(run: RunDirectory) -> None:
    write_page(run)
    renew_index(run.path.parent)


def _judged(run: RunDirectory, scenario: Scenario, history: History) -> Result:
    trouble = recover(run, history.events, scenario.rule_files)
    damaged = history.recorded is not None and bool(history.recorded.troubles)
    judgement = _unjudged(scenario, history) if damaged else judge(history, scenario.chosen_invariants)
    told, untold = (None, "") if damaged else _consequences(history)
    cluster = next((event for event in history.events if isinstance(event, ClusterEvent)), None)
    version, erlang = cluster and cluster.broker_version, cluster and cluster.erlang_version
    stated = scenario.expected(version) if version else (VALID_EXPECTED,)
    met = next((expected for expected in stated if meets(judgement, expected, run.log_texts)), None)
    expected, as_expected = _told(judgement, met or stated[0]), met is not None and not damaged
    in_part = [] if met or damaged else [one for one in stated if _violates_as(judgement, one, run.log_texts)]
    verdict = Verdict.UNKNOWN if in_part else judgement.verdict
    hidden = [f"{one}, as is known, and {', '.join(_unknown(judgement, one))} could not be judged" for one in in_part]
    # The engine's containers are no children of ours, and would count as others.
    others = Others.during(history.events) if cluster and cluster.driver == "local" else None
    foreign = str(others) if others is not None and others.is_worth_telling else ""
    document = {
        **judgement.as_dict(),
        "verdict": str(verdict),
        **_stated(run, scenario),
        "consequences": told,
        "broker_version": version,
        "erlang_version": erlang,
        "upgraded_to": upgraded_to(scenario, history.events),
        "driver": cluster and cluster.driver,
        "formed_in_s": cluster and cluster.formed_in_s,
        "reference": expected.reference or scenario.reference,
        "expected": str(expected),
        "as_expected": as_expected,
        "started_at": cluster and cluster.started_at,
        "duration_s": _duration_s(history.events),
        "others_cpu": others and asdict(others),
        "notes": [
            *(event.detail for event in history.events if isinstance(event, NoteEvent)),
            *hidden[:1],
            *filter(None, [trouble, foreign, untold, refusal(version or "", erlang or "")]),
        ],
        "numbers": {} if damaged else measures(run.metrics),
    }
    run.write_verdict(document)
    return Result(run, verdict, as_expected, document)


def _stated(run: RunDirectory, scenario: Scenario) -> dict[str, Any]:
    return {
        "seed": scenario.seed,
        "title": scenario.title,
        "name": scenario.name,
        "markers": list(scenario.markers),
        "topology": scenario.topology.name,
        "partition_handling": scenario.topology.partition_handling,
        "queue_type": scenario.workload.queue_type,
        "rerun": rerun_command(run.path),
    }


def _unjudged(scenario: Scenario, history: History) -> Judgement:
    """Of a damaged record nothing is judged: any of it may be what is damaged."""
    not_judged = Finding(Verdict.UNKNOWN, "not judged, as the record is damaged")
    of_the_record: Mapping[str, Assumption] = {"run_ended": RunEnded(), "history_whole": HistoryWhole()}
    assumed = {name: check.check(history) for name, check in of_the_record.items()}
    return Judgement(Verdict.UNKNOWN, dict.fromkeys(scenario.chosen_invariants, not_judged), assumed)


def _withdraw(run: RunDirectory, reason: str, scenario: Scenario | None = None) -> Mapping[str, Any]:
    """Write that nothing can be told of the run, with what was told of it before and is no verdict."""
    try:
        before = run.read_verdict()
    except RunDirectoryError:
        before = {}
    damaged = Finding(Verdict.UNKNOWN, reason, examples=(reason,))
    document = {
        **dict.fromkeys(_TOLD_OF_RUNS),
        **before,
        **(_stated(run, scenario) if scenario else {}),
        **Judgement(Verdict.UNKNOWN, {}, {"history_whole": damaged}).as_dict(),
        "as_expected": False,
        "notes": [],
        "numbers": {},
    }
    run.write_verdict(document)
    return document


_TOLD_OF_RUNS = (
    *("seed", "title", "name", "markers", "topology", "partition_handling", "queue_type", "rerun"),
    *("broker_version", "erlang_version", "upgraded_to", "driver", "formed_in_s", "reference", "expected"),
    *("started_at", "duration_s", "others_cpu"),
)


def _consequences(history: History) -> tuple[dict[str, Any] | None, str]:
    """What it cost, or why that is not to be told: a damaged record must not keep a run from its verdict."""
    try:
        return consequences(history), ""
    except Exception as error:
        return None, f"the consequences are not to be told: {type(error).__name__}: {error}"


def upgraded_to(scenario: Scenario, events: Iterable[Event]) -> list[str]:
    """What nodes were seen to be upgraded to, in their order; all else is told of the version that they began with."""
    seen = {event.step for event in events if isinstance(event, FaultEvent) and event.state == "heal_proven"}
    steps = (step for i, step in enumerate(scenario.schedule) if i in seen)
    return list(dict.fromkeys(step.becomes for step in steps if step.becomes is not None))


def meets(judgement: Judgement, expected: Expectation, logs: Callable[[], Iterable[str]] = tuple) -> bool:
    """Return whether a run ended as expected.

    A known violation of one invariant excuses no other, broken or UNKNOWN. One that leaves its trace in the findings or
    in ``logs`` (the texts of the brokers' logs) excuses nothing where that is missing. Nothing is known of a run that
    cannot tell.
    """
    if judgement.verdict is Verdict.VALID and not expected.always:
        return True
    return not _unknown(judgement, expected) and _violates_as(judgement, expected, logs)


def _unknown(judgement: Judgement, expected: Expectation) -> Collection[str]:
    """The invariants that are UNKNOWN, and that the known violation may not have broken."""
    unknown = {name for name, finding in judgement.findings.items() if finding.verdict is Verdict.UNKNOWN}
    return sorted(unknown - expected.excuses)


def _violates_as(judgement: Judgement, expected: Expectation, logs: Callable[[], Iterable[str]]) -> bool:
    """Whether what is broken, if anything, is what is expected, with its traces."""
    if judgement.verdict is not expected.verdict or judgement.verdict is Verdict.UNKNOWN:
        return False
    deciding = {name for name, finding in judgement.findings.items() if finding.verdict is expected.verdict}
    if expected.invariant is not None and not {expected.invariant} <= deciding <= expected.excuses:
        return False
    return expected.is_shown_by(judgement.findings, logs)


def _told(judgement: Judgement, expected: Expectation) -> Expectation:
    """A violation that is seen in some runs only is worth a word where it was seen."""
    seldom_and_unseen = judgement.verdict is Verdict.VALID and not expected.always
    return VALID_EXPECTED if seldom_and_unseen else expected


def _duration_s(events: Sequence[Event]) -> float | None:
    return round((events[-1].t_us - events[0].t_us) / 1e6, 1) if events else None
