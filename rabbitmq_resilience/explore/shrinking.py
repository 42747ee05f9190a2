"""Shrink a failing schedule to the fewest and shortest faults that still fail, even if it fails only sometimes.

First the number of faults: chunks are left out, then single faults. Then each remaining fault is shortened by halves.
Last, idle time is removed.

**What is believed.** A candidate that fails once is accepted. A candidate that passes may have been lucky. It is
repeated until the chance of that is below MISS_CHANCE_MAX, computed from the runs of accepted schedules
(``FailureRate``). If all of these failed, that takes five runs after one failure, three after three and two after five;
if half of them failed, nine to five. A part of a schedule that passed is not tried, as if no fault could hide the
effect of another; and a drawn target (``minority``) may mean other nodes once a fault before it was left out. That may
miss a smaller schedule, but never invents one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.validation import FaultFileError, ValidatedScenario, validated

MISS_CHANCE_MAX = 0.05
#: How often the found schedule is played again before anything is left out, to learn its rate.
REPLAYS = 2
FIRST_STEP_S = 1.0
#: How much idle time between faults remains.
GAP_S = 1.0
FOR_S_MIN = 0.5

#: How a run ended: with the same failure, without it, or without a verdict.
Answer = Literal["fails", "passes", "unknown"]


@dataclass(frozen=True)
class FailureRate:
    """How often accepted schedules failed: ``failed`` of ``runs``."""

    failed: int
    runs: int

    def __add__(self, other: FailureRate) -> FailureRate:
        return FailureRate(self.failed + other.failed, self.runs + other.runs)

    def miss_chance(self, passes: int) -> float:
        """Return the chance that a schedule with this rate passes ``passes`` times in a row.

        All rates are assumed equally likely before the runs: Laplace's rule of succession, once for each pass."""
        factors = ((self.runs - self.failed + 1 + i) / (self.runs + 2 + i) for i in range(passes))
        return math.prod(factors)

    @property
    def repeats(self) -> int:
        """Return how many passes in a row are needed to believe that a candidate passes."""
        passes = 1
        while self.miss_chance(passes) >= MISS_CHANCE_MAX:
            passes += 1
        return passes

    def __str__(self) -> str:
        return f"{self.failed} of {self.runs} runs"


@dataclass
class Shrinking:
    """The shrinking of one failing scenario.

    ``smallest``: the smallest scenario so far, at first the found one. ``play``: play a candidate once.
    ``time_is_over``: whether no further run may begin.
    ``rate``: how often failing schedules fail. ``runs``: how many were played. ``complete``: False if time was over
    before all was tried. ``undecided``: how many candidates had a verdict too seldom to say that they pass."""

    smallest: ValidatedScenario
    play: Callable[[ValidatedScenario], Answer]
    time_is_over: Callable[[], bool]
    rate: FailureRate = FailureRate(1, 1)
    runs: int = 0
    complete: bool = True
    undecided: int = 0
    _passed: list[frozenset[str]] = field(default_factory=list)

    def shrink(self) -> ValidatedScenario:
        """Shrink until all was tried or time is over; return the smallest scenario that failed."""
        try:
            for _ in range(REPLAYS):
                self._replay()
            self._leave_out()
            for step in range(len(self.smallest.schedule)):
                self._shorten(step)
            if not self._fails(_closer(self.smallest, gap_s=GAP_S)):
                self._fails(_closer(self.smallest, gap_s=math.inf))
        except _TimeIsOver:
            self.complete = False
        return self.smallest

    def _replay(self) -> None:
        answer = self._played(self.smallest)
        if answer != "unknown":
            self.rate += FailureRate(int(answer == "fails"), 1)

    def _leave_out(self) -> None:
        """Leave out chunks of faults, then single ones.

        A passing candidate takes several runs and a failing one a single run, so chunks are small from the start. The
        last faults go first: they are the least likely causes."""
        size = max(1, len(self.smallest.schedule) // 4)
        while size:
            end = len(self.smallest.schedule)
            while end > 0 and len(self.smallest.schedule) > 1:
                start = max(0, end - size)
                candidate = without(self.smallest, range(start, end))
                if candidate is not None:
                    self._fails(candidate)
                end = start
            size //= 2

    def _shorten(self, step: int) -> None:
        """Halve the duration of one fault as long as the schedule fails. All other faults keep their times."""
        shorter = True
        while shorter:
            steps = list(self.smallest.schedule)
            for_s = max(FOR_S_MIN, round(steps[step].for_s / 2, 1))
            if for_s >= steps[step].for_s:
                return
            steps[step] = steps[step].model_copy(update={"for_s": for_s, "for_ticks": None})
            shorter = self._fails(_with(self.smallest, steps))

    def _fails(self, changed: Scenario) -> bool:
        """Play the candidate, accept it if it fails, and return whether it failed.

        A candidate is not played if it would be refused as a fault file, is the smallest itself, or is a part of a
        schedule that passed or often had no verdict."""
        steps = frozenset(step.model_dump_json() for step in changed.schedule)
        if any(steps <= passed for passed in self._passed) or changed.schedule == self.smallest.schedule:
            return False
        try:
            candidate = validated(changed, driver=self.smallest.driver)
        except FaultFileError:
            return False
        passes = unknown = 0
        while max(passes, unknown) < self.rate.repeats:
            answer = self._played(candidate)
            if answer == "fails":
                self.smallest = candidate
                self.rate += FailureRate(1, passes + 1)
                return True
            passes += answer == "passes"
            unknown += answer == "unknown"
        self.undecided += passes < self.rate.repeats
        self._passed.append(steps)
        return False

    def _played(self, candidate: ValidatedScenario) -> Answer:
        if self.time_is_over():
            raise _TimeIsOver
        self.runs += 1
        return self.play(candidate)


class _TimeIsOver(Exception):
    pass


def without(scenario: Scenario, left_out: range) -> Scenario | None:
    """Return the scenario without these steps, or None if another step waits for one of them."""
    kept = [i for i in range(len(scenario.schedule)) if i not in left_out]
    steps = []
    for i in kept:
        step = scenario.schedule[i]
        waits_for = step.when.after_step if step.when is not None else None
        if waits_for is not None:
            if waits_for.step in left_out:
                return None
            now = waits_for.model_copy(update={"step": kept.index(waits_for.step)})
            assert step.when is not None
            step = step.model_copy(update={"when": step.when.model_copy(update={"after_step": now})})
        steps.append(step)
    return _with(scenario, steps)


def _with(scenario: Scenario, steps: Sequence[AnyFault]) -> Scenario:
    return scenario.model_copy(update={"schedule": tuple(steps)})


def _closer(scenario: Scenario, *, gap_s: float) -> Scenario:
    """Move timed steps earlier, so that the first is at FIRST_STEP_S at the latest and gaps are at most ``gap_s``."""
    earlier_s, free_s = 0.0, FIRST_STEP_S
    begins_s: dict[int, float] = {}
    timed = {i: step.at_s for i, step in enumerate(scenario.schedule) if step.at_s is not None}
    for i in sorted(timed, key=timed.__getitem__):
        earlier_s += max(0.0, timed[i] - free_s)
        begins_s[i] = round(timed[i] - earlier_s, 2)
        ends_s = timed[i] + scenario.schedule[i].for_s
        free_s = max(free_s, ends_s + gap_s)
    steps = [
        step.model_copy(update={"at_s": begins_s[i]}) if i in begins_s else step
        for i, step in enumerate(scenario.schedule)
    ]
    return _with(scenario, steps)
