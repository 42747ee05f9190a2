"""Record a night from pytest: in the file of the night, in JUnit XML by pytest's own ``--junitxml``, in a summary for
people, and as annotations of a CI service."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import pytest

from rabbitmq_resilience.extensions.nights import ci_annotations
from rabbitmq_resilience.extensions.nights.last_played import earlier_nights, last_played
from rabbitmq_resilience.extensions.nights.lines import header
from rabbitmq_resilience.extensions.nights.night_file import Ended, LeftOut, Line, Night, NightWriter, Outcome, Tested
from rabbitmq_resilience.extensions.nights.night_summary import summary
from rabbitmq_resilience.history.commands import near
from rabbitmq_resilience.plugin import options
from rabbitmq_resilience.plugin.session_pace import TIME_IS_OVER, SessionPace
from rabbitmq_resilience.runner.run_line import RunLine, moment


@dataclass(frozen=True)
class NightSettings:
    """The settings of a night.

    ``root``: the folder of pytest. ``runs``: the folder of run directories. ``nights``: the folder of nights, if one is
    wanted. ``summary``: the file of the summary, if wanted. ``is_unknown``: says whether a failed test
    only came to no verdict."""

    root: Path
    runs: Path
    nights: Path | None
    name: str | None
    machine_name: str | None
    driver: str
    budget_min: float | None
    summary: Path | None
    annotations: str | None
    is_unknown: Callable[[str], bool]


class NightPlugin:
    """The pytest plugin that records a night."""

    def __init__(self, settings: NightSettings) -> None:
        self._settings = settings
        self._earlier, self._troubles = ([], []) if settings.nights is None else earlier_nights(settings.nights)
        self.known = last_played(self._earlier, name=settings.name, driver=settings.driver)
        self._lines: list[Line] = []
        self._writer: NightWriter | None = None
        self._played = 0
        self._reports: dict[str, list[pytest.TestReport]] = {}
        self._places: dict[str, tuple[str, int | None]] = {}
        self._planned: frozenset[str] = frozenset()
        self._pace: SessionPace | None = None

    @classmethod
    def of_session(cls, config: pytest.Config, *, is_unknown: Callable[[str], bool]) -> Self:
        """Return what writes a session down as its options say."""
        return cls(
            NightSettings(
                root=config.rootpath,
                runs=options.runs_folder(config),
                nights=options.folder(config, "nights-dir"),
                name=options.value(config, "night-name"),
                machine_name=options.value(config, "machine"),
                driver=options.driver(config),
                budget_min=options.value(config, "budget-min"),
                summary=options.folder(config, "summary"),
                annotations=options.value(config, "annotations"),
                is_unknown=is_unknown,
            )
        )

    def add(self, line: RunLine) -> None:
        """Write the line of a run that was judged."""
        self._played += 1
        self._write(line)

    def begin(self, planned: Sequence[str], pace: SessionPace) -> None:
        """Begin the night with the tests ``planned``. Raise pytest.UsageError if a file cannot be written."""
        settings, began = self._settings, moment()
        self._planned, self._pace = frozenset(planned), pace
        if not planned and not pace.left_out:
            return
        first = header(
            settings.root,
            name=settings.name,
            machine_name=settings.machine_name,
            driver=settings.driver,
            budget_min=settings.budget_min,
            at=began,
        )
        first = replace(first, planned=tuple(planned))
        try:
            if settings.summary is not None:
                settings.summary.open("a", encoding="utf-8").close()
            if settings.nights is not None:
                name = f"{re.sub('[-:]', '', began)}-{_slug(settings.name or settings.driver)}"
                self._writer = NightWriter.in_folder(settings.nights, name, first)
        except OSError as error:
            raise pytest.UsageError(f"{error.filename} cannot be written: {error.strerror}") from None
        self._lines.append(first)
        for scenario in pace.left_out:
            self._left_out(scenario, "budget")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome of a planned test after its teardown."""
        if report.nodeid not in self._planned:
            return
        self._places[report.nodeid] = report.location[:2]
        reports = self._reports.setdefault(report.nodeid, [])
        reports.append(report)
        if report.when == "teardown":
            outcome, why = _outcome(reports)
            if outcome == "failed" and self._settings.is_unknown(report.nodeid):
                outcome = "unknown"
            if why == TIME_IS_OVER:
                self._left_out(report.nodeid, "over")
            took_s = round(sum(one.duration for one in reports), 1)
            self._write(Tested(scenario=report.nodeid, outcome=outcome, why=why, took_s=took_s, at=moment()))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End the night and write its summary. This hook runs last, when the exit status is decided."""
        if not self._lines:
            return
        self._write(Ended(status=int(session.exitstatus), played=self._played, at=moment()))
        if self._writer is not None:
            self._writer.close()
        if self._settings.summary is not None:
            with self._settings.summary.open("a", encoding="utf-8") as file:
                file.write(summary(self._night(), self._earlier, runs=self._settings.runs))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print which nights could not be read, the file of this night, and the annotations."""
        if not self._lines:
            return
        for trouble in self._troubles:
            terminalreporter.write_sep("-", f"a night was left out: {trouble}")
        if self._writer is not None:
            terminalreporter.write_sep("-", f"this night: {near(self._writer.path)}")
        if ci_annotations.wanted(self._settings.annotations):
            for line in ci_annotations.of(self._night(), self._places, root=self._settings.root):
                terminalreporter.write_line(line)

    def _night(self) -> Night:
        return Night.of(Path() if self._writer is None else self._writer.path, self._lines)

    def _left_out(self, scenario: str, why: str) -> None:
        known = self._pace.known.get(scenario) if self._pace is not None else None
        self._write(LeftOut(scenario=scenario, why=why, last_played=known and moment(known["at_s"])))

    def _write(self, line: Line) -> None:
        if not self._lines:  # nothing was to be played
            return
        self._lines.append(line)
        if self._writer is not None:
            self._writer.write(line)


def _outcome(reports: list[pytest.TestReport]) -> tuple[Outcome, str]:
    """Return the outcome of a test from the reports of set-up, call and teardown, and in a line why it did not pass."""
    for report in reports:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            return "failed", _first_line(crash.message if crash is not None else report.longreprtext).removeprefix(
                "Failed: "
            )
    for report in reports:
        if hasattr(report, "wasxfail"):
            return "xfailed", _first_line(report.wasxfail.removeprefix("reason: "))
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            return "skipped", _first_line(reason.removeprefix("Skipped: "))
    return "passed", ""


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "night"
