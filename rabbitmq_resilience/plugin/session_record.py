"""Record what a session plays: as properties of each test in JUnit XML, and for the night if one is written down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import pytest
from pydantic import TypeAdapter

from rabbitmq_resilience.plugin.session_pace import PacePlugin, PlayedRun, SessionPace
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.runner.run_line import RunLine, played, properties


class SessionWriter(Protocol):
    """What writes a session down, as the extension for nights does."""

    @property
    def known(self) -> Mapping[str, PlayedRun]:
        """Return when each test was played last, by node id, as earlier nights have it."""

    def begin(self, planned: Sequence[str], pace: SessionPace) -> None:
        """Begin a night in which the tests ``planned`` are to play. Raise pytest.UsageError if it cannot be written."""

    def add(self, line: RunLine) -> None:
        """Take the line of a run that was judged."""


class SessionRecord:
    """Describe each run of a session in a line, and pass it on."""

    def __init__(
        self,
        pace_plugin: PacePlugin,
        night: SessionWriter | None,
        *,
        plays: str,
        send: Callable[[Mapping[str, Any]], bool],
    ) -> None:
        """``plays`` names the fixture of tests that play a scenario. ``send`` passes a line to the session for
        which this process plays, and returns False if this process is the session."""
        self.pace_plugin = pace_plugin
        self._night, self._plays, self._send = night, plays, send
        self._item: pytest.Item | None = None
        self._runs: Counter[str] = Counter()

    def begin(self, planned: Sequence[str]) -> None:
        """Begin a session in which the tests ``planned`` are to play. Raise pytest.UsageError."""
        if self._night is not None:
            self._night.begin(planned, self.pace_plugin.pace)

    def judged(self, result: Result) -> None:
        """Take a run that the present test played."""
        if self._item is None:
            return
        scenario = self._item.nodeid
        self._runs[scenario] += 1
        line = played(result, scenario=scenario, drawn=self._plays not in getattr(self._item, "fixturenames", ()))
        self._item.user_properties.extend(properties(line, number=self._runs[scenario]))
        if not self._send(asdict(line)) and self._night is not None:
            self._night.add(line)

    def hear(self, line: Mapping[str, Any]) -> None:
        """Take the line of a run that another process played."""
        if self._night is not None:
            self._night.add(TypeAdapter(RunLine).validate_python(line))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._item = item
