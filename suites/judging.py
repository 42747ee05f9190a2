"""From a run directory to its verdict and its pages, without any broker."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faults import fault_file
from faults.scenario import VALID_EXPECTED, Expectation, Scenario
from invariants.judge import Judgement, judge
from invariants.measured import measures
from invariants.recorded import load_history
from invariants.verdict import Verdict
from reports.commands import rerun_command
from reports.events import Event
from reports.page import write_page
from reports.run_directory import RunDirectory
from suites.machine import disturbance
from suites.measuring import recover
from workloads.counters import COUNTERS_FILE
from workloads.settlement import settle


@dataclass(frozen=True)
class Result:
    """``document`` is what verdict.json holds; ``as_expected`` whether the run ended as its scenario expects
    of this broker version (VALID, where it says nothing)."""

    run: RunDirectory
    verdict: Verdict
    as_expected: bool
    document: Mapping[str, Any]


def judge_run(run: RunDirectory) -> Result:
    """Judge a recorded run and write its verdict.json and report.html.

    What killed publishers left open is settled first, and what a killed run had scraped is kept. Raises
    RunDirectoryError or FaultFileError where the directory is not complete enough.
    """
    scenario = fault_file.load(run.fault_file, driver=None)
    if (run.history / COUNTERS_FILE).exists():
        settle(run.history)
    trouble = recover(run)
    history = load_history(run.path)
    judgement = judge(history, scenario.chosen_invariants)
    facts = next((event for event in history.events if event["kind"] == "cluster"), {})
    version = facts.get("broker_version")
    stated = scenario.expected(version) if version else (VALID_EXPECTED,)
    met = next((expected for expected in stated if meets(judgement, expected, run.log_texts)), None)
    expected, as_expected = _told(judgement, met or stated[0]), met is not None
    # The engine's containers are no children of ours, and would count as others.
    foreign = disturbance(history.events) if facts.get("driver") == "local" else ""
    document = {
        **judgement.as_dict(),
        "seed": scenario.seed,
        "broker_version": version,
        "upgraded_to": upgraded_to(scenario, history.events),
        "driver": facts.get("driver"),
        "formed_in_s": facts.get("formed_in_s"),
        "title": scenario.title,
        "topology": scenario.topology.name,
        "partition_handling": scenario.topology.partition_handling,
        "queue_type": scenario.workload.queue_type,
        "reference": expected.reference or scenario.reference,
        "expected": str(expected),
        "as_expected": as_expected,
        "started_at": facts.get("started_at"),
        "duration_s": _duration_s(history.events),
        "notes": [
            *(event["detail"] for event in history.events if event["kind"] == "note"),
            *filter(None, [trouble, foreign]),
        ],
        "rerun": rerun_command(run.path),
        "numbers": measures(run.metrics),
    }
    run.write_verdict(document)
    write_page(run)
    return Result(run, judgement.verdict, as_expected, document)


def upgraded_to(scenario: Scenario, events: Iterable[Event]) -> list[str]:
    """What nodes were seen to be upgraded to, in their order; all else is told of the version that they began with."""
    seen = {event["step"] for event in events if event["kind"] == "fault" and event["state"] == "heal_proven"}
    steps = (step for i, step in enumerate(scenario.schedule) if i in seen)
    return list(dict.fromkeys(step.to for step in steps if step.fault == "upgrade"))


def meets(judgement: Judgement, expected: Expectation, logs: Callable[[], Iterable[str]] = tuple) -> bool:
    """A known violation of one invariant does not excuse another, and one that leaves its trace in ``logs`` (the texts
    of the brokers' logs) excuses nothing where that is missing."""
    if judgement.verdict is Verdict.VALID and not expected.always:
        return True
    if judgement.verdict is not expected.verdict:
        return False
    deciding = {name for name, finding in judgement.findings.items() if finding.verdict is expected.verdict}
    if expected.invariant is not None and not {expected.invariant} <= deciding <= {expected.invariant, *expected.also}:
        return False
    return expected.log is None or any(re.search(expected.log, text, re.DOTALL) for text in logs())


def _notes(events: Iterable[Event]) -> list[str]:
    return [event["detail"] for event in events if event["kind"] == "note"]


def _told(judgement: Judgement, expected: Expectation) -> Expectation:
    """A violation that is seen in some runs only is worth a word where it was seen."""
    seldom_and_unseen = judgement.verdict is Verdict.VALID and not expected.always
    return VALID_EXPECTED if seldom_and_unseen else expected


def _duration_s(events: Sequence[Event]) -> float | None:
    return round((events[-1]["t_us"] - events[0]["t_us"]) / 1e6, 1) if events else None
