"""Incidents that happened to others, each a fault file with its public reference and the verdict that each range of
broker versions is known to give: a fixed one stays fixed, an open one is known by its rate (``--repeat``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from faults import fault_file
from faults.scenario import Scenario
from suites.judging import Result

pytestmark = [pytest.mark.incidents, pytest.mark.slow]

INCIDENTS = sorted(Path(__file__).resolve().parent.parent.glob("faults/incidents/*.yaml"))


@pytest.mark.parametrize("incident", INCIDENTS, ids=[path.stem for path in INCIDENTS])
def test_incident(incident: Path, play: Callable[[Scenario], Result]) -> None:
    play(fault_file.load(incident, driver=None))
