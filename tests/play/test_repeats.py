"""Several runs as one answer: what is a rate by nature is never a pass, and what was not expected always fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.runner.repeats import Repeats, runs
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Scenario
from tests.messages import Messages

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN
INCIDENTS = Path(__file__).resolve().parents[2] / "faults" / "incidents"


def scenario(**fields: Any) -> Scenario:
    given = {"title": "One", "topology": "three_nodes_three_zones", "invariants": {"no_loss": {}}, **fields}
    return Scenario.model_validate(given)


def sometimes(**fields: Any) -> Scenario:
    return scenario(expect=[{"broker": "<4", "verdict": "INVALID", "invariant": "no_loss", "always": False}], **fields)


def results(*verdicts: Verdict, expected: bool = True, version: str = "3.10.8") -> list[Result]:
    run = RunDirectory(Path("nowhere"))
    return [Result(run, verdict, expected, {"broker_version": version}) for verdict in verdicts]


def test_rates_of_what_was_seen_worst_first(message: Messages) -> None:
    rates = Repeats(scenario(), results(VALID, INVALID, VALID, VALID)).rates
    message(rates)


def test_runs_without_a_verdict_do_not_count_in_a_rate(message: Messages) -> None:
    rates = Repeats(scenario(), results(INVALID, *[Verdict.UNKNOWN] * 9)).rates
    message(rates)
    assert "1 of 1" in rates
    assert Repeats(scenario(), results(Verdict.UNKNOWN)).rates == "1 UNKNOWN"


@pytest.mark.parametrize("verdicts", [(VALID, VALID), (INVALID, VALID), (INVALID,)])
def test_what_comes_in_some_runs_only_is_a_rate(verdicts: tuple[Verdict, ...]) -> None:
    assert Repeats(sometimes(), results(*verdicts)).is_rate


def test_an_incident_is_a_rate_even_where_it_did_not_come() -> None:
    assert Repeats(sometimes(reference="somewhere#1"), results(VALID)).is_rate
    assert not Repeats(sometimes(), results(VALID)).is_rate


def test_where_it_is_fixed_it_is_a_pass() -> None:
    assert not Repeats(sometimes(reference="somewhere#1"), results(VALID, VALID, version="4.3.6")).is_rate


def test_a_broken_promise_is_reported_before_what_could_not_tell() -> None:
    repeats = Repeats(scenario(), [*results(VALID), *results(UNKNOWN, INVALID, expected=False)])
    assert [result.verdict for result in repeats.unexpected] == [INVALID, UNKNOWN]


def test_incidents_tell_where_they_are_described_and_what_happened() -> None:
    incidents = {file.stem: fault_file.load(file, driver="local") for file in sorted(INCIDENTS.glob("*.fault.yaml"))}
    assert incidents
    assert [name for name, incident in incidents.items() if incident.reference is None or incident.what is None] == []


@pytest.mark.parametrize(
    ("ends", "played"),
    [
        ([(VALID, True)], 1),
        ([(UNKNOWN, False), (VALID, True)], 2),
        ([(VALID, False), (VALID, False), (INVALID, True)], 3),  # it is expected, and did not show at first
        ([(INVALID, False)], 1),
        ([(UNKNOWN, False), (INVALID, False)], 2),
        ([(UNKNOWN, False)] * 3, 3),
    ],
)
def test_tries_end_with_what_was_expected_and_with_a_broken_promise(
    ends: list[tuple[Verdict, bool]], played: int
) -> None:
    each = iter([*(results(verdict, expected=expected)[0] for verdict, expected in ends)])
    numbers: list[str] = []

    def once(run: str) -> Result:
        numbers.append(run)
        return next(each)

    [last] = runs(once, repeat=1, tries=3)
    assert len(numbers) == played
    assert (last.verdict, last.as_expected) == ends[-1]
