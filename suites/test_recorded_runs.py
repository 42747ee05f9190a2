"""Judges the run directories of ``--recheck`` again, without a broker; without that option it has no tests."""

from __future__ import annotations

from collections.abc import Callable

from reports.run_directory import RunDirectory
from suites.judging import Result, judge_run


def test_recorded_run(recorded_run: RunDirectory, accept: Callable[[Result], Result]) -> None:
    accept(judge_run(recorded_run))
