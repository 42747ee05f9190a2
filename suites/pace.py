"""How far a session of scenarios has come, how long it will take, and what fits into the time that there is.

How long each test took, and when, is kept in pytest's cache. With a budget, what was not played for longest comes
first; what does not fit is left for the next time, and counted.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import pytest

from reports.words import duration_text

CACHE_KEY = "resilience/played"
#: For a test that was never played, where no other tells either.
USUAL_S = 60.0
DAY_S = 86_400


class Played(TypedDict):
    took_s: float
    at_s: float


@dataclass
class Pace:
    """Of the tests that play scenarios (those that have the fixture ``play``), by node id."""

    known: Mapping[str, Played]
    now_s: Callable[[], float] = time.time
    waiting: list[str] = field(default_factory=list)
    total: int = 0
    left_out: int = 0
    took: dict[str, Played] = field(default_factory=dict)
    verdicts: Counter[str] = field(default_factory=Counter)
    told_of: set[str] = field(default_factory=set)

    def expected_s(self, test: str) -> float:
        """As long as it took the last time; the mean of all others where it was never played."""
        if test in self.known:
            return self.known[test]["took_s"]
        others = [played["took_s"] for played in self.known.values()]
        return sum(others) / len(others) if others else USUAL_S

    def fitting(self, tests: Sequence[str], budget_s: float) -> set[str]:
        """The tests that fit into ``budget_s`` together: those first that were not played for longest, and among
        equals, as where nothing is remembered, others each day."""
        chosen: set[str] = set()
        left_s = budget_s
        day = random.Random(int(self.now_s() // DAY_S))  # noqa: S311 - a choice that need only vary
        shuffled = day.sample(sorted(tests), len(tests))
        for test in sorted(shuffled, key=lambda test: self.known[test]["at_s"] if test in self.known else 0.0):
            if self.expected_s(test) <= left_s or not chosen:  # what never fits is played alone
                left_s -= self.expected_s(test)
                chosen.add(test)
        return chosen

    def begin(self, tests: Sequence[str], *, left_out: int) -> None:
        self.waiting, self.total, self.left_out = list(tests), len(tests), left_out

    def told(self, test: str) -> str:
        """Where the session is as this test begins; empty if there is nothing to count."""
        if self.total < 2 or test not in self.waiting:
            return ""
        number = self.total - len(self.waiting) + 1
        left_s = sum(map(self.expected_s, self.waiting))
        return f"{number} of {self.total}, about {duration_text(left_s)} to go"

    def ended(self, test: str, took_s: float) -> None:
        """Only what came to a verdict is worth remembering."""
        if test in self.waiting:
            self.waiting.remove(test)
            if test in self.told_of:
                self.took[test] = Played(took_s=round(took_s, 1), at_s=round(self.now_s(), 1))

    def judged(self, test: str, word: str, *, as_expected: bool) -> None:
        """Count how a scenario ended; a violation that is known is told apart."""
        self.told_of.add(test)
        self.verdicts[f"{word} (known)" if as_expected and word != "VALID" else word] += 1

    def summary(self) -> str:
        """All that were played in one line, and how many were not; empty if there were none."""
        played = ", ".join(f"{count} {word}" for word, count in sorted(self.verdicts.items(), reverse=True))
        left = f"; {self.left_out} did not fit into the time and come first the next time" if self.left_out else ""
        count = sum(self.verdicts.values())
        return (
            f"{count} scenario{'' if count == 1 else 's'}: {played or 'none was played'}{left}" if count or left else ""
        )

    def remembered(self) -> dict[str, Played]:
        return {**self.known, **self.took}


class PacePlugin:
    """Lets pytest tell ``Pace`` what it does."""

    def __init__(self, config: pytest.Config, budget_s: float | None) -> None:
        self._config = config
        self._budget_s = budget_s
        self._spent: dict[str, float] = {}
        self._ends_s = float("inf")
        self.pace = Pace(_remembered(config))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        playing = [item.nodeid for item in items if "play" in getattr(item, "fixturenames", ())]
        fitting = set(playing) if self._budget_s is None else self.pace.fitting(playing, self._budget_s)
        left_out = [item for item in items if item.nodeid in set(playing) - fitting]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        self.pace.begin([test for test in playing if test in fitting], left_out=len(left_out))

    def pytest_runtestloop(self) -> None:
        if self._budget_s is not None:
            self._ends_s = time.monotonic() + self._budget_s

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """The first is always played; what takes longer than expected must not make a night of it."""
        begun = len(self.pace.waiting) < self.pace.total
        if begun and item.nodeid in self.pace.waiting and time.monotonic() > self._ends_s:
            self.pace.left_out += 1
            pytest.skip("the time is over")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._spent[report.nodeid] = self._spent.get(report.nodeid, 0.0) + report.duration
        if report.when == "teardown":
            self.pace.ended(report.nodeid, self._spent.pop(report.nodeid))

    def pytest_sessionfinish(self) -> None:
        cache = getattr(self._config, "cache", None)  # pytest may run without it
        if self.pace.took and cache is not None:
            cache.set(CACHE_KEY, self.pace.remembered())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        summary = self.pace.summary()
        if summary:
            terminalreporter.write_sep("-", summary)


def _remembered(config: pytest.Config) -> Mapping[str, Played]:
    cache = getattr(config, "cache", None)
    found = cache.get(CACHE_KEY, {}) if cache is not None else {}
    return found if isinstance(found, dict) else {}
