"""Play drawn scenarios one after another until one fails or the time is over, and shrink the one that fails.

``<runs>/random-<time>-<seed>.json`` lists the examples, and the found failure; it is written after each example. The
smallest fault file is next to it, as ``.yaml``. It expects the failure on the version that showed it, and passes if
the failure is seen.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.explore.shrinking import MISS_CHANCE_MAX, Answer, FailureRate, Shrinking
from rabbitmq_resilience.history.commands import near
from rabbitmq_resilience.history.whole_files import write_whole
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.report.terminal import outcome_line
from rabbitmq_resilience.report.wording import duration_text
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.expectations import Expectation
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.validation import ValidatedScenario

#: The assumed time of an example before any was played.
USUAL_S = 90.0

Play = Callable[[ValidatedScenario, frozenset[Link]], Result]


@dataclass(frozen=True)
class FailedSchedule:
    """A scenario that failed, and the smallest one to which it was shrunk."""

    result: Result
    original: Scenario
    smallest: Scenario
    rate: FailureRate
    runs: int
    took_s: float
    complete: bool
    undecided: int
    file: Path

    def text(self) -> str:
        """Return lines for people: how far the scenario was shrunk, and how sure that is."""
        before, after = map(_size, (self.original, self.smallest))
        done = "" if self.complete else "; time was over before all was tried, --random-of with that file continues"
        return (
            f"shrunk from {before} to {after} in {duration_text(self.took_s)} and {self.runs} runs: {near(self.file)}\n"
            f"  schedules accepted as failing ones failed in {self.rate}; each candidate that passed was repeated "
            f"until the chance of a missed failure was below {MISS_CHANCE_MAX:.0%}{self._undecided_text}{done}"
        )

    @property
    def _undecided_text(self) -> str:
        if not self.undecided:
            return ""
        schedules = "schedule" if self.undecided == 1 else "schedules"
        return f", except {self.undecided} {schedules} that came to no verdict often enough, and may fail as well"


@dataclass
class Search:
    """A session of random schedules.

    ``budget_s``: the time for examples, and the same time again for shrinking. ``play``: play a scenario with proxies
    on these links. ``try_out``: the same for candidates of shrinking (None: ``play``). ``say``: write a line."""

    from_seed: int
    budget_s: float
    broker_version: str
    runs_root: Path
    play: Play
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    try_out: Play | None = None
    examples: list[dict[str, Any]] = field(default_factory=list)
    found: FailedSchedule | None = None
    _began_s: float = 0.0
    _name: str = ""

    def run(self, scenarios: Iterable[ValidatedScenario]) -> FailedSchedule | None:
        """Play scenarios until one fails or the budget is over; shrink and return the failure, or None."""
        self._began_s = self.clock()
        self._name = f"random-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{self.from_seed}"
        self.runs_root.mkdir(parents=True, exist_ok=True)
        self._write()
        for number, scenario in enumerate(scenarios, 1):
            left_s = self._began_s + self.budget_s - self.clock()
            if self.examples and left_s < self._usual_s:
                break
            self.say(f"EXAMPLE  {number}, {_size(scenario)}, {duration_text(max(0, left_s))} left: {scenario.title}")
            result = self._played(scenario, scenario.touched_links)
            if result.verdict is Verdict.INVALID and not result.as_expected:
                self._shrink(scenario, result)
                break
        self._write()
        return self.found

    @property
    def file(self) -> Path:
        """Return the path of the JSON file of this session."""
        return self.runs_root / f"{self._name}.json"

    def summary(self) -> str:
        """Return the verdicts of all examples in one line."""
        words = Counter(
            row["verdict"] + (" (known)" if row["known"] else "") for row in self.examples if row["example"]
        )
        verdicts = ", ".join(f"{count} {word}" for word, count in sorted(words.items(), reverse=True)) or "none"
        return f"random schedules of seed {self.from_seed}: {verdicts}; listed in {near(self.file)}"

    @property
    def verdicts(self) -> list[Verdict]:
        return [Verdict(row["verdict"]) for row in self.examples]

    @property
    def all_unknown(self) -> bool:
        """Return whether no run reached a verdict: then a session without a failure means nothing."""
        return all(verdict is Verdict.UNKNOWN for verdict in self.verdicts)

    @property
    def _usual_s(self) -> float:
        took = [row["took_s"] for row in self.examples]
        return sum(took) / len(took) if took else USUAL_S

    def _played(self, scenario: ValidatedScenario, proxied: frozenset[Link], *, example: bool = True) -> Result:
        began_s = self.clock()
        play = self.play if example or self.try_out is None else self.try_out
        result = play(scenario, proxied)
        self.examples.append(
            {
                "example": example,
                "run": result.run.name,
                "faults": len(scenario.schedule),
                "verdict": str(result.verdict),
                "known": result.as_expected and result.verdict is not Verdict.VALID,
                "broken": sorted(_broken(result)),
                "took_s": round(self.clock() - began_s, 1),
            }
        )
        self._write()
        self.say(outcome_line(result.document, result.run.path))
        return result

    def _shrink(self, scenario: ValidatedScenario, result: Result) -> None:
        """Shrink the scenario and set ``found``.

        A candidate shows the same failure if it breaks an invariant that the first run broke and that no known defect
        may break.
        """
        broken, proxied = self._unexplained(scenario, result), scenario.touched_links
        shown = [broken]  # what each failing run of the smallest scenario broke
        ends_s = self.clock() + self.budget_s
        file = self.runs_root / f"{self._name}.yaml"

        def kept(smallest: Scenario) -> Scenario:
            """Save the smallest scenario so far, so that the file exists even if the session is interrupted."""
            expecting = _expecting(smallest, shown, self.broker_version)
            fault_file.save(expecting, file)
            return expecting

        def played(candidate: ValidatedScenario) -> Answer:
            kept(shrinking.smallest)
            left_s = max(0, ends_s - self.clock())
            self.say(f"SHRINK   {_size(candidate)} of {_size(shrinking.smallest)}, {duration_text(left_s)} left")
            again = self._played(candidate, proxied, example=False)
            if again.verdict is Verdict.UNKNOWN:
                return "unknown"
            breaks = self._unexplained(candidate, again)
            if again.as_expected or not broken & breaks:
                return "passes"
            if candidate is not shrinking.smallest:
                shown.clear()
            shown.append(breaks)
            return "fails"

        began_s = self.clock()
        shrinking = Shrinking(scenario, played, lambda: self.clock() + self._usual_s > ends_s)
        smallest = kept(shrinking.shrink())
        took_s = self.clock() - began_s
        self.found = FailedSchedule(
            result,
            scenario,
            smallest,
            shrinking.rate,
            shrinking.runs,
            took_s,
            shrinking.complete,
            shrinking.undecided,
            file,
        )

    def _unexplained(self, scenario: Scenario, result: Result) -> frozenset[str]:
        """Return the broken invariants that no known defect may break; all of them if one may break each."""
        broken = _broken(result)
        known = scenario.expected(self.broker_version)
        return broken.difference(*(one.excuses for one in known)) or broken

    def _write(self) -> None:
        document: dict[str, Any] = {
            "seed": self.from_seed,
            "broker_version": self.broker_version,
            "budget_s": self.budget_s,
            "took_s": round(self.clock() - self._began_s, 1),
            "runs": self.examples,
        }
        if self.found is not None:
            document["found"] = {
                "run": self.found.result.run.name,
                "fault_file": self.found.file.name,
                "faults": [len(self.found.original.schedule), len(self.found.smallest.schedule)],
                "failed": self.found.rate.failed,
                "of_runs": self.found.rate.runs,
                "miss_chance_max": MISS_CHANCE_MAX,
                "runs": self.found.runs,
                "took_s": round(self.found.took_s, 1),
                "complete": self.found.complete,
                "undecided": self.found.undecided,
            }
        write_whole(self.file, json.dumps(document, indent=2) + "\n")


def _broken(result: Result) -> frozenset[str]:
    findings = result.document.get("invariants") or {}
    return frozenset(name for name, finding in findings.items() if finding["verdict"] == Verdict.INVALID)


def _expecting(scenario: Scenario, shown: Sequence[frozenset[str]], version: str) -> Scenario:
    """Return the scenario with the failure as an expectation for that version, so that its file can be kept.

    ``shown``: what each failing run of the scenario broke. The expectation names what most of them broke.
    Loss and wrong order are not excused before a person has read the trace: then the scenario stays the same."""
    counts = Counter(name for broken in shown for name in broken)
    first, *others = sorted(counts, key=lambda name: (-counts[name], name))
    known = Expectation(
        broker=f"=={version}",
        verdict=Verdict.INVALID,
        invariant=first,
        invariants_also=tuple(others),
        intermittent=True,
    )
    return scenario if known.excuses_promises else scenario.model_copy(update={"expect": (*scenario.expect, known)})


def _size(scenario: Scenario) -> str:
    steps: Sequence[Any] = scenario.schedule
    lasting_s = sum(step.for_s for step in steps)
    return f"{len(steps)} fault{'' if len(steps) == 1 else 's'} of {lasting_s:g} s"
