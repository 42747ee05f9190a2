"""Judge runs against what a scenario expects, by a table of verdicts and expectations."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rabbitmq_resilience.checkers.judge import Judgement
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.runner.judging import meets
from rabbitmq_resilience.scenario.expectations import Expectation

INVARIANTS = ("no_loss", "order", "recovery", "availability")
#: Where a run has an assumption that fails, all its findings may be VALID and the run UNKNOWN.
WORST_FIRST = ("INVALID", "UNKNOWN", "VALID")


@dataclass(frozen=True)
class Case:
    """The findings of a run, and one entry of ``expect``, or none."""

    findings: tuple[tuple[str, str], ...]
    assumption_fails: bool
    expected: str
    invariant: str | None
    also: tuple[str, ...]
    always: bool
    planted: str


def generated(source: random.Random) -> Case:
    """Draw a case."""
    names = source.sample(INVARIANTS, source.choice([1, 2, 3, 4]))
    findings = tuple((name, source.choice(["VALID", "VALID", "INVALID", "UNKNOWN"])) for name in names)
    expected = source.choice(["VALID", "INVALID", "INVALID", "INVALID"])
    invariant = source.choice([None, *names]) if expected == "INVALID" else None
    others = [name for name in names if name != invariant]
    also = tuple(source.sample(others, min(len(others), source.choice([0, 1, 2])))) if invariant else ()
    always = source.random() < 0.5
    fails = source.random() < 0.15
    verdict_of = next(word for word in WORST_FIRST if word in dict(findings).values())
    planted = f"{verdict_of} of {expected}{' by one' if invariant else ''}{' also' if also else ''}"
    return Case(findings, fails, expected, invariant, also, always, planted + ("" if always else " in some runs"))


def recorded(case: Case) -> Judgement:
    """Return the judgement of a run."""
    worst = next(word for word in WORST_FIRST if word in dict(case.findings).values())
    if case.assumption_fails and worst == "VALID":
        worst = "UNKNOWN"
    return Judgement(Verdict(worst), {name: Finding(Verdict(word), "") for name, word in case.findings}, {})


def verdict(case: Case) -> str:
    """Return whether the run passes: "A scenario passes if it ended as its file expects"."""
    words = [word for _, word in case.findings]
    is_unknown = "INVALID" not in words and ("UNKNOWN" in words or case.assumption_fails)
    if is_unknown:
        return "fails"
    if "INVALID" not in words:
        return "passes" if case.expected == "VALID" or not case.always else "fails"
    if case.expected != "INVALID":
        return "fails"
    excused = [case.invariant, *case.also]
    for name, word in case.findings:
        # "Where another invariant is UNKNOWN, so is the run."
        is_named = name in excused or (word == "INVALID" and case.invariant is None)
        if word != "VALID" and not is_named:
            return "fails"
    if case.invariant is not None and (case.invariant, "INVALID") not in case.findings:
        return "fails"
    return "passes"


def found(case: Case) -> str:
    """Return the suite's answer."""
    expected = Expectation(
        broker="<4",
        verdict=Verdict(case.expected),
        invariant=case.invariant,
        invariants_also=case.also,
        intermittent=not case.always,
    )
    return "passes" if meets(recorded(case), expected) else "fails"
