"""From a schedule that fails to the fewest and shortest faults that still do, also where it fails only sometimes.

Fewer faults first: chunks are left out, then single ones. Then each that is left grows as short as it may, by halves,
and the time goes in which nothing is on.

**What is believed.** A candidate that fails once has failed, and is taken. One that passes may have been lucky: it is
repeated until the chance of that is below MISS_CHANCE_MAX, by the runs of schedules that are known to fail (``Rate``).
Where each of these failed that takes two or three runs, where half of them did, eight or so. What passed is not tried
again with even fewer faults, as if no fault could hide another's: that may miss a smaller schedule, never invent one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rabbitmq_resilience.faults.catalogue import AnyFault
from rabbitmq_resilience.scenarios.fault_file import FaultFileError, dump, parse
from rabbitmq_resilience.scenarios.model import Scenario
from rabbitmq_resilience.scenarios.problems import combination_problems

MISS_CHANCE_MAX = 0.05
#: How often the schedule that was found is played again before anything is left out: for its rate.
REPLAYS = 2
FIRST_STEP_S = 1.0
#: What is left of idle time between faults.
GAP_S = 1.0
FOR_S_MIN = 0.5

#: How one run ended: as the failure that is looked for; in another way; or it could not tell.
Answer = Literal["fails", "passes", "cannot tell"]


@dataclass(frozen=True)
class Rate:
    """How often schedules failed that were taken for failing ones."""

    failed: int
    runs: int

    def __add__(self, other: Rate) -> Rate:
        return Rate(self.failed + other.failed, self.runs + other.runs)

    def miss_chance(self, passes: int) -> float:
        """The chance that a schedule which fails as often as these passes so many times in a row, if before these runs
        each rate was as likely as any other (Laplace's rule of succession, once for each pass)."""
        factors = ((self.runs - self.failed + 1 + i) / (self.runs + 2 + i) for i in range(passes))
        return math.prod(factors)

    @property
    def repeats(self) -> int:
        """After how many passes in a row a candidate is believed to pass."""
        passes = 1
        while self.miss_chance(passes) >= MISS_CHANCE_MAX:
            passes += 1
        return passes

    def __str__(self) -> str:
        return f"{self.failed} of {self.runs} runs"


@dataclass
class Shrinking:
    """``smallest`` is the best so far, at first what was found; ``play`` plays a candidate once; ``time_is_over`` is
    asked before each run. ``complete`` becomes False if it was over before all was tried."""

    smallest: Scenario
    play: Callable[[Scenario], Answer]
    time_is_over: Callable[[], bool]
    rate: Rate = Rate(1, 1)
    runs: int = 0
    complete: bool = True
    _passed: list[frozenset[str]] = field(default_factory=list)

    def shrink(self) -> Scenario:
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
        if answer != "cannot tell":
            self.rate += Rate(int(answer == "fails"), 1)

    def _leave_out(self) -> None:
        """A candidate that passes costs several runs and one that fails a single one, so chunks are small from the
        start. The last go first: they are least likely to have caused anything."""
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
        """What follows stays where it was, so that nothing else changes."""
        shorter = True
        while shorter:
            steps = list(self.smallest.schedule)
            for_s = max(FOR_S_MIN, round(steps[step].for_s / 2, 1))
            if for_s >= steps[step].for_s:
                return
            steps[step] = steps[step].model_copy(update={"for_s": for_s})
            shorter = self._fails(_with(self.smallest, steps))

    def _fails(self, candidate: Scenario) -> bool:
        """Takes the candidate if it fails; one that would be refused as a fault file is not tried."""
        steps = frozenset(step.model_dump_json() for step in candidate.schedule)
        known = any(steps <= passed for passed in self._passed)
        if known or candidate.schedule == self.smallest.schedule or not _is_valid(candidate):
            return False
        passes = blind = 0
        while max(passes, blind) < self.rate.repeats:
            answer = self._played(candidate)
            if answer == "fails":
                self.smallest = candidate
                self.rate += Rate(1, passes + 1)
                return True
            passes += answer == "passes"
            blind += answer == "cannot tell"
        self._passed.append(steps)
        return False

    def _played(self, candidate: Scenario) -> Answer:
        if self.time_is_over():
            raise _TimeIsOver
        self.runs += 1
        return self.play(candidate)


class _TimeIsOver(Exception):
    pass


def without(scenario: Scenario, left_out: range) -> Scenario | None:
    """The scenario without these steps; None if another step waits for one of them."""
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
    """The first step begins at FIRST_STEP_S, and each that follows idle time after ``gap_s`` of it, or sooner."""
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


def _is_valid(scenario: Scenario) -> bool:
    try:
        parse(dump(scenario), driver=None)
    except FaultFileError:
        return False
    return not any(True for _ in combination_problems(scenario))
