"""How far a session of scenarios has come, how long it will take, and what fits into the time that there is.

How long each test took, and when, is kept in pytest's cache as soon as it ended, so that a session that is killed is
not forgotten. With a budget, what was not played for longest comes first; what does not fit is left for the next time,
and counted.
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

from rabbitmq_resilience import side_by_side
from rabbitmq_resilience.pages.wording import duration_text
from rabbitmq_resilience.play.cpu_watch import Others
from rabbitmq_resilience.record.whole_files import write_whole

MEMORY_FILE = "played.json"
TIME_IS_OVER = "the time is over"
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
    left_out: list[str] = field(default_factory=list)
    took: dict[str, Played] = field(default_factory=dict)
    verdicts: Counter[str] = field(default_factory=Counter)
    #: Of each scenario that could not tell on a busy machine: what others took of its processors.
    disturbed: list[Others] = field(default_factory=list)
    told_of: set[str] = field(default_factory=set)
    #: How many are played at once, and which are now.
    at_once: int = 1
    running: set[str] = field(default_factory=set)

    def expected_s(self, test: str) -> float:
        """As long as it took the last time. Where it was never played, the mean of those in the same file that were, in
        this session too; of all, where none was."""
        if test in self.known:
            return self.known[test]["took_s"]
        every = {**self.known, **self.took}.items()
        of_file = [played["took_s"] for other, played in every if other.startswith(f"{test.partition('::')[0]}::")]
        return mean(of_file or [played["took_s"] for _, played in every] or [USUAL_S])

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

    def begin(self, tests: Sequence[str], *, left_out: Sequence[str] = ()) -> None:
        self.waiting, self.total, self.left_out = list(tests), len(tests), list(left_out)

    def told(self, test: str) -> str:
        """Where the session is as this test begins; empty if there is nothing to count."""
        if self.total < 2 or test not in self.waiting:
            return ""
        self.running.add(test)
        number = self.total - len(self.waiting) + len(self.running)
        left_s = sum(map(self.expected_s, self.waiting)) / self.at_once
        return f"{number} of {self.total}, about {duration_text(left_s)} to go"

    def ended(self, test: str, took_s: float) -> None:
        """Only what came to a verdict is worth remembering."""
        self.running.discard(test)
        if test in self.waiting:
            self.waiting.remove(test)
            if test in self.told_of:
                self.took[test] = Played(took_s=round(took_s, 3), at_s=round(self.now_s(), 1))

    def judged(self, test: str, word: str, *, as_expected: bool, others: Others | None = None) -> None:
        """Count how a scenario ended; a violation that is known is told apart. ``others``: what they took of this
        machine meanwhile, where that is known."""
        self.told_of.add(test)
        self.verdicts[f"{word} (known)" if as_expected and word != "VALID" else word] += 1
        if word == "UNKNOWN" and others is not None and others.is_worth_telling:
            self.disturbed.append(others)

    def summary(self) -> str:
        """All that were played in one line, and how many were not; empty if there were none."""
        played = ", ".join(f"{count} {word}" for word, count in sorted(self.verdicts.items(), reverse=True))
        left = f"; {len(self.left_out)} did not fit into the time and come first the next time" if self.left_out else ""
        count = sum(self.verdicts.values())
        return (
            f"{count} scenario{'' if count == 1 else 's'}: {played or 'none was played'}{left}" if count or left else ""
        )

    def told_of_others(self) -> str:
        """In one line, how many scenarios a busy machine may have kept from a verdict; empty if none."""
        if not self.disturbed:
            return ""
        mean = sum(others.mean for others in self.disturbed) / len(self.disturbed)
        return (
            f"{len(self.disturbed)} of {sum(self.verdicts.values())} could not tell while other programs took "
            f"{mean:.0%} of this machine's processors: play them again when it is idle"
        )

    def remembered(self) -> dict[str, Played]:
        return {**self.known, **self.took}


class PacePlugin:
    """Lets pytest tell ``Pace`` what it does."""

    def __init__(
        self, config: pytest.Config, budget_s: float | None, elsewhere: Mapping[str, Played] | None = None
    ) -> None:
        """``elsewhere``: what else tells when tests were played; what is newer counts."""
        self._budget_s = budget_s
        self._spent: dict[str, float] = {}
        self._ends_s = float("inf")
        self._memory = _memory(config)
        known = newest(_remembered(self._memory), elsewhere or {})
        self.pace = Pace(known, at_once=side_by_side.at_once(config))
        if side_by_side.is_worker(config):
            self._memory = None  # the session remembers what all of them played

    def choose(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave of all ``items`` out what plays and does not fit into the budget, and count the rest."""
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
        """The first is always played; what takes longer than expected must not make a night of it."""
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
            self._memory = None  # said once
            warnings.warn(f"what was played cannot be remembered: {memory}: {error.strerror}", stacklevel=1)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in filter(None, [self.pace.summary(), self.pace.told_of_others()]):
            terminalreporter.write_sep("-", line)


def newest(*known: Mapping[str, Played]) -> dict[str, Played]:
    """Of several that tell of the same test, what is newer."""
    every = [(test, played) for one in known for test, played in one.items()]
    return dict(sorted(every, key=lambda one: one[1]["at_s"]))


def _memory(config: pytest.Config) -> Path | None:
    """Where what was played is kept; None where pytest runs without its cache, or cannot write it."""
    cache = getattr(config, "cache", None)
    try:
        return None if cache is None else cache.mkdir("resilience") / MEMORY_FILE
    except OSError as error:
        warnings.warn(f"what was played cannot be remembered: {error.filename}: {error.strerror}", stacklevel=1)
        return None


def _remembered(memory: Path | None) -> Mapping[str, Played]:
    """Nothing where it cannot be read."""
    try:
        found = json.loads(memory.read_text(encoding="utf-8")) if memory is not None else {}
        return {str(test): Played(took_s=float(p["took_s"]), at_s=float(p["at_s"])) for test, p in found.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
