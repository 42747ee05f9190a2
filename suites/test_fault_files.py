"""Plays the fault files of ``--fault-file``; without that option it has no tests."""

from __future__ import annotations

from collections.abc import Callable

from faults.scenario import Scenario
from suites.judging import Result


def test_fault_file(given_scenario: Scenario, play: Callable[[Scenario], Result]) -> None:
    play(given_scenario)
