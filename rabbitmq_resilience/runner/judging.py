"""Judge a run from its directory, without any broker, and write its verdict and its pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rabbitmq_resilience.checkers.assumptions import RunEnded
from rabbitmq_resilience.checkers.consequences import consequences
from rabbitmq_resilience.checkers.judge import Judgement, judge
from rabbitmq_resilience.checkers.measured import measures
from rabbitmq_resilience.checkers.verdict import Assumption, Finding, History, Verdict
from rabbitmq_resilience.checkers.wholeness import HistoryWhole
from rabbitmq_resilience.history.commands import rerun_command
from rabbitmq_resilience.history.events import ClusterEvent, Event, FaultEvent, NoteEvent
from rabbitmq_resilience.history.run_directory import RunDirectory, RunDirectoryError
from rabbitmq_resilience.report.index import renew_index
from rabbitmq_resilience.report.run_page import write_page
from rabbitmq_resilience.report.terminal import story
from rabbitmq_resilience.runner.cpu_watch import Others
from rabbitmq_resilience.runner.endings import Ending, endings, met
from rabbitmq_resilience.runner.examination import recorded_history
from rabbitmq_resilience.runner.measuring import recover
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.expectations import VALID_EXPECTED
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.tools.erlang_support import refusal


@dataclass(frozen=True)
class Result:
    """The result of a run. ``document`` is the content of verdict.json. ``as_expected``: the run ended as its scenario
    expects of this broker version (VALID if it says nothing)."""

    run: RunDirectory
    verdict: Verdict
    as_expected: bool
    document: Mapping[str, Any]

    def story(self) -> str:
        """Return in a few lines why the run is not VALID, with the commands that play and judge it again."""
        return story(self.document, self.run.path)


def reopened(path: Path) -> RunDirectory:
    """Open the run at ``path`` to judge it again.

    Raise RunDirectoryError if there is no run, or it has no scenario. Then its verdict is UNKNOWN.
    """
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


def judge_run(run: RunDirectory, scenario: Scenario | None = None) -> Result:
    """Judge a recorded run and write its verdict.json and report.html. ``scenario``: what its fault.yaml states; None
    if that is to be read.

    First settle the open messages of killed publishers, and keep the metrics that a killed run had scraped. A damaged
    record is UNKNOWN. Raise FaultFileError if the scenario cannot be read. Then an earlier verdict is withdrawn.
    """
    try:
        scenario = scenario or fault_file.load(run.fault_file, driver=None)
    except fault_file.FaultFileError as error:
        _withdraw(run, str(error))
        _show(run)
        raise
    history = recorded_history(run, scenario)
    try:
        result = _judged(run, scenario, history)
    except Exception as error:  # damaged events may raise any error; an earlier verdict must not stay
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
    costs, costs_trouble = (None, "") if damaged else _consequences(history)
    cluster = next((event for event in history.events if isinstance(event, ClusterEvent)), None)
    version, erlang = cluster and cluster.broker_version, cluster and cluster.erlang_version
    stated = scenario.expected(version) if version else (VALID_EXPECTED,)
    came = met(judgement, stated, run.log_texts)
    in_part = [] if came or damaged else list(endings(judgement, stated, run.log_texts))
    expected, as_expected = came or next(iter(in_part), Ending(stated[:1])), came is not None and not damaged
    verdict = Verdict.UNKNOWN if in_part else judgement.verdict
    hidden = [f"{one}, as is known, and {', '.join(one.unknown(judgement))} could not be judged" for one in in_part]
    # Containers are no children of this process, and would count as other programs.
    others = Others.during(history.events) if cluster and cluster.driver == "local" else None
    foreign = str(others) if others is not None and others.is_notable else ""
    document = {
        **judgement.as_dict(),
        "verdict": str(verdict),
        **_stated(run, scenario),
        "consequences": costs,
        "broker_version": version,
        "erlang_version": erlang,
        "upgraded_to": upgraded_to(history.events),
        "driver": cluster and cluster.driver,
        "formed_in_s": cluster and cluster.formed_in_s,
        "reference": expected.reference(scenario.reference),
        "expected": str(expected),
        "as_expected": as_expected,
        "started_at": cluster and cluster.started_at,
        "duration_s": _duration_s(history.events),
        "others_cpu": others and asdict(others),
        "notes": [
            *(event.detail for event in history.events if isinstance(event, NoteEvent)),
            *hidden[:1],
            *filter(None, [trouble, foreign, costs_trouble, refusal(version or "", erlang or "")]),
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
    """Return a judgement in which every invariant is UNKNOWN, as any part of a damaged record may be wrong."""
    not_judged = Finding(Verdict.UNKNOWN, "not judged, as the record is damaged")
    of_the_record: Mapping[str, Assumption] = {"run_ended": RunEnded(), "history_whole": HistoryWhole()}
    assumed = {name: check.check(history) for name, check in of_the_record.items()}
    return Judgement(Verdict.UNKNOWN, dict.fromkeys(scenario.chosen_invariants, not_judged), assumed)


def _withdraw(run: RunDirectory, reason: str, scenario: Scenario | None = None) -> Mapping[str, Any]:
    """Write an UNKNOWN verdict with the reason. Keep what an earlier verdict states of the run, and nothing that was
    judged of its record."""
    try:
        before = run.read_verdict()
    except RunDirectoryError:
        before = {}
    damaged = Finding(Verdict.UNKNOWN, reason, examples=(reason,))
    document = {
        **dict.fromkeys(_RUN_FIELDS),
        **before,
        **(_stated(run, scenario) if scenario else {}),
        **Judgement(Verdict.UNKNOWN, {}, {"history_whole": damaged}).as_dict(),
        "as_expected": False,
        "notes": [],
        "numbers": {},
        "consequences": None,
    }
    run.write_verdict(document)
    return document


_RUN_FIELDS = (
    *("seed", "title", "name", "markers", "topology", "partition_handling", "queue_type", "rerun"),
    *("broker_version", "erlang_version", "upgraded_to", "driver", "formed_in_s", "reference", "expected"),
    *("started_at", "duration_s", "others_cpu"),
)


def _consequences(history: History) -> tuple[dict[str, Any] | None, str]:
    """Return what the faults cost, and the error if that is not known: a run still gets its verdict then."""
    try:
        return consequences(history), ""
    except Exception as error:
        return None, f"the consequences are not known: {type(error).__name__}: {error}"


def upgraded_to(events: Iterable[Event]) -> list[str]:
    """Return the versions of proven upgrades, in the order of the schedule."""
    seen = [event for event in events if isinstance(event, FaultEvent) and event.state == "heal_proven"]
    upgrades = sorted((one for one in seen if one.fault == "upgrade"), key=lambda one: one.step)
    return list(dict.fromkeys(one.effect.becomes for one in upgrades if one.effect and one.effect.becomes))


def _duration_s(events: Sequence[Event]) -> float | None:
    return round((events[-1].t_us - events[0].t_us) / 1e6, 1) if events else None
