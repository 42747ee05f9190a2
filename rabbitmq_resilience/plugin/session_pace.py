"""Follow a session of scenarios: its progress, the time that it still needs, and the tests that fit into a budget.

When a test ends, pytest's cache keeps how long it took and when, so that a killed session loses nothing. With a budget,
tests that were not played for longest come first. Tests that do not fit are counted and left for the next session.
"""

from __future__ import annotations

import json
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import TypedDict

import pytest

from rabbitmq_resilience.history.whole_files import write_whole
from rabbitmq_resilience.plugin import side_by_side
from rabbitmq_resilience.report.wording import duration_text
from rabbitmq_resilience.runner.cpu_watch import Others

MEMORY_FILE = "played.json"
TIME_IS_OVER = "the time is over"
#: The expected time of a test if no test was played before.
USUAL_S = 60.0
DAY_S = 86_400


class PlayedRun(TypedDict):
    took_s: float
    at_s: float


@dataclass
class SessionPace:
    """The progress of the tests that play scenarios (tests with the fixture ``play``), by node id."""

    known: Mapping[str, PlayedRun]
    now_s: Callable[[], float] = time.time
    waiting: list[str] = field(default_factory=list)
    total: int = 0
    left_out: list[str] = field(default_factory=list)
    took: dict[str, PlayedRun] = field(default_factory=dict)
    verdicts: Counter[str] = field(default_factory=Counter)
    #: For each UNKNOWN scenario on a busy machine: the share of its processors that other programs took.
    disturbed: list[Others] = field(default_factory=list)
    judged_tests: set[str] = field(default_factory=set)
    #: How many tests are played at once, and which tests are played now.
    at_once: int = 1
    running: set[str] = field(default_factory=set)

    def expected_s(self, test: str) -> float:
        """Return the time that the test took last. If it was never played, return the mean of the played tests in its
        file, also those of this session; if there are none, the mean of all."""
        if test in self.known:
            return self.known[test]["took_s"]
        every = {**self.known, **self.took}.items()
        of_file = [played["took_s"] for other, played in every if other.startswith(f"{test.partition('::')[0]}::")]
        return mean(of_file or [played["took_s"] for _, played in every] or [USUAL_S])

    def fitting(self, tests: Sequence[str], budget_s: float) -> set[str]:
        """Return the tests that fit into ``budget_s`` together; those come first that were not played for longest.
        At least one is chosen.

        Equal tests, such as tests that were never played, are drawn differently each day.
        """
        chosen: set[str] = set()
        left_s = budget_s
        day = random.Random(int(self.now_s() // DAY_S))  # noqa: S311 - a choice that need only vary
        shuffled = day.sample(sorted(tests), len(tests))
        for test in sorted(shuffled, key=lambda test: self.known[test]["at_s"] if test in self.known else 0.0):
            if self.expected_s(test) <= left_s or not chosen:  # a test that never fits is played alone
                left_s -= self.expected_s(test)
                chosen.add(test)
        return chosen

    def begin(self, tests: Sequence[str], *, left_out: Sequence[str] = ()) -> None:
        self.waiting, self.total, self.left_out = list(tests), len(tests), list(left_out)

    def progress(self, test: str) -> str:
        """Note that this test begins. Return in words how far the session is; '' if there is nothing to count."""
        if self.total < 2 or test not in self.waiting:
            return ""
        self.running.add(test)
        number = self.total - len(self.waiting) + len(self.running)
        left_s = sum(map(self.expected_s, self.waiting)) / self.at_once
        return f"{number} of {self.total}, about {duration_text(left_s)} to go"

    def ended(self, test: str, took_s: float) -> None:
        """Note that a test ended. Remember its time only if a run of it was judged, also as UNKNOWN."""
        self.running.discard(test)
        if test in self.waiting:
            self.waiting.remove(test)
            if test in self.judged_tests:
                self.took[test] = PlayedRun(took_s=round(took_s, 3), at_s=round(self.now_s(), 1))

    def judged(self, test: str, word: str, *, as_expected: bool, others: Others | None = None) -> None:
        """Count the verdict of a scenario; known violations are counted separately.

        ``others``: the share of this machine that other programs took meanwhile, if it is known.
        """
        self.judged_tests.add(test)
        self.verdicts[f"{word} (known)" if as_expected and word != "VALID" else word] += 1
        if word == "UNKNOWN" and others is not None and others.is_notable:
            self.disturbed.append(others)

    def summary(self) -> str:
        """Return one line with the counts of verdicts and of tests that did not fit; '' if there were none."""
        played = ", ".join(f"{count} {word}" for word, count in sorted(self.verdicts.items(), reverse=True))
        left = f"; {len(self.left_out)} did not fit into the time and come first the next time" if self.left_out else ""
        count = sum(self.verdicts.values())
        return (
            f"{count} scenario{'' if count == 1 else 's'}: {played or 'none was played'}{left}" if count or left else ""
        )

    def disturbance(self) -> str:
        """Return one line on how many scenarios a busy machine may have kept from a verdict; '' if none."""
        if not self.disturbed:
            return ""
        mean = sum(others.mean for others in self.disturbed) / len(self.disturbed)
        return (
            f"{len(self.disturbed)} of {sum(self.verdicts.values())} were UNKNOWN while other programs took "
            f"{mean:.0%} of this machine's processors: play them again when it is idle"
        )

    def remembered(self) -> dict[str, PlayedRun]:
        return {**self.known, **self.took}


class PacePlugin:
    """Choose the tests that fit a budget, skip those for which time is over, and remember how long each took."""

    def __init__(
        self, config: pytest.Config, budget_s: float | None, elsewhere: Mapping[str, PlayedRun] | None = None
    ) -> None:
        """Read what is remembered. ``elsewhere``: further records of played tests; of each test the newest counts."""
        self._budget_s = budget_s
        self._spent: dict[str, float] = {}
        self._ends_s = float("inf")
        self._memory = _memory(config)
        known = newest(_remembered(self._memory), elsewhere or {})
        self.pace = SessionPace(known, at_once=side_by_side.at_once(config))
        if side_by_side.is_worker(config):
            self._memory = None  # the session remembers the tests of all workers

    def choose(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Remove those of all ``items`` that play scenarios and do not fit into the budget, and count the rest.

        Side by side, the longest come first.
        """
        playing = [item.nodeid for item in items if "resilience_play" in getattr(item, "fixturenames", ())]
        at_once = self.pace.at_once
        fitting = set(playing) if self._budget_s is None else self.pace.fitting(playing, self._budget_s * at_once)
        left_out = [item for item in items if item.nodeid in set(playing) - fitting]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        if at_once > 1:
            items[:] = side_by_side.longest_first(items, self.pace.expected_s)
        self.pace.begin(
            [test for test in playing if test in fitting], left_out=sorted({item.nodeid for item in left_out})
        )

    def pytest_runtestloop(self) -> None:
        if self._budget_s is not None:
            self._ends_s = time.monotonic() + self._budget_s

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip the test if the time is over and another test has ended: tests may take longer than expected."""
        begun = len(self.pace.waiting) < self.pace.total
        if begun and item.nodeid in self.pace.waiting and time.monotonic() > self._ends_s:
            pytest.skip(TIME_IS_OVER)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._spent[report.nodeid] = self._spent.get(report.nodeid, 0.0) + report.duration
        if report.skipped and TIME_IS_OVER in report.longreprtext:
            self.pace.left_out.append(report.nodeid)
        if report.when == "teardown":
            self.pace.ended(report.nodeid, self._spent.pop(report.nodeid))
            if self._memory is not None and report.nodeid in self.pace.took:
                self._remember(self._memory)

    def _remember(self, memory: Path) -> None:
        try:
            write_whole(memory, json.dumps(self.pace.remembered(), indent=1))
        except OSError as error:
            self._memory = None  # warn only once
            warnings.warn(f"played tests cannot be remembered: {memory}: {error.strerror}", stacklevel=1)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in filter(None, [self.pace.summary(), self.pace.disturbance()]):
            terminalreporter.write_sep("-", line)


def newest(*known: Mapping[str, PlayedRun]) -> dict[str, PlayedRun]:
    """Return the newest record of each test, oldest first."""
    every = [(test, played) for one in known for test, played in one.items()]
    return dict(sorted(every, key=lambda one: one[1]["at_s"]))


def _memory(config: pytest.Config) -> Path | None:
    """Return the file that keeps played tests; None if pytest runs without its cache, or cannot write it."""
    cache = getattr(config, "cache", None)
    try:
        return None if cache is None else cache.mkdir("resilience") / MEMORY_FILE
    except OSError as error:
        warnings.warn(f"played tests cannot be remembered: {error.filename}: {error.strerror}", stacklevel=1)
        return None


def _remembered(memory: Path | None) -> Mapping[str, PlayedRun]:
    """Return the records of played tests; {} if the file cannot be read."""
    try:
        found = json.loads(memory.read_text(encoding="utf-8")) if memory is not None else {}
        return {str(test): PlayedRun(took_s=float(p["took_s"]), at_s=float(p["at_s"])) for test, p in found.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
