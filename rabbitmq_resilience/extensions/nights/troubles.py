"""Collect what did not end as it should in a night, the worst first, for its summary and for annotations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rabbitmq_resilience.extensions.nights.night_file import Night, Tested
from rabbitmq_resilience.runner.run_line import RunLine

_WORST_FIRST = ("INVALID", "VALID", "UNKNOWN")


@dataclass(frozen=True)
class FailedScenario:
    """A scenario that did not pass.

    ``run``: the run that shows it; None if the test failed without one. ``broke``: whether a promise was broken or the
    test failed; False if its run only came to no verdict."""

    scenario: str
    head: str
    why: str
    broke: bool
    run: RunLine | None = None


def troubles(night: Night) -> list[FailedScenario]:
    """Return the scenarios that did not pass, in the order of the night, with those that broke first.

    A run that did not end as expected is left out if its test passed in a later try."""
    tested = {test.scenario: test for test in night.tested}
    names = dict.fromkeys([*(run.scenario for run in night.played), *tested])
    found = [trouble for name in names for trouble in _of(night, name, tested.get(name))]
    return sorted(found, key=lambda trouble: not trouble.broke)


def _of(night: Night, scenario: str, test: Tested | None) -> Iterator[FailedScenario]:
    if test is not None and test.outcome not in ("failed", "unknown"):
        return
    runs = [run for run in night.played if run.scenario == scenario and not run.as_expected]
    shown = min(runs, key=lambda run: _WORST_FIRST.index(run.verdict), default=None)
    if shown is not None and (test is None or test.outcome == "unknown" or shown.verdict != "UNKNOWN"):
        reason = shown.broke_first
        why = f"{reason.invariant}: {reason.summary}" if reason is not None else f"expected was {shown.expected}"
        yield FailedScenario(scenario, f"{shown.verdict}: {shown.title}", why, shown.verdict != "UNKNOWN", shown)
    elif test is not None:  # the test failed apart from its run
        title = shown.title if shown is not None else scenario
        yield FailedScenario(scenario, f"failed: {title}", test.why, test.outcome == "failed", shown)
