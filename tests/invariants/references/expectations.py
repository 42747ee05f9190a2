"""Judge runs against what a scenario expects, by a table of verdicts and expectations."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

from rabbitmq_resilience.checkers.judge import Judgement
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.runner.endings import met
from rabbitmq_resilience.scenario.expectations import Expectation

INVARIANTS = ("no_loss", "order", "recovery", "availability")
#: Where a run has an assumption that fails, all its findings may be VALID and the run UNKNOWN.
WORST_FIRST = ("INVALID", "UNKNOWN", "VALID")
#: What the log of a broker says, and what it does not say.
LOG, ABSENT = "a trace", "something else"


@dataclass(frozen=True)
class Entry:
    """One entry of ``expect``. ``traced``: whether the log has its trace; None if it names none."""

    expected: str
    invariant: str | None
    also: tuple[str, ...]
    always: bool
    traced: bool | None

    def __str__(self) -> str:
        parts = [self.expected, "by one" * bool(self.invariant), "also" * bool(self.also)]
        parts += ["" if self.always else "in some runs", "without its trace" * (self.traced is False)]
        return " ".join(filter(None, parts))


@dataclass(frozen=True)
class Case:
    """The findings of a run, and the entries of ``expect``."""

    findings: tuple[tuple[str, str], ...]
    assumption_fails: bool
    entries: tuple[Entry, ...]
    planted: str


def entry(source: random.Random, names: list[str]) -> Entry:
    """Draw an entry of ``expect``."""
    expected = source.choice(["VALID", "INVALID", "INVALID", "INVALID", "INVALID"])
    invariant = source.choice([None, *names, *names]) if expected == "INVALID" else None
    others = [name for name in names if name != invariant]
    also = tuple(source.sample(others, min(len(others), source.choice([0, 1, 2])))) if invariant else ()
    traced = source.choice([None, None, True, False]) if expected == "INVALID" else None
    return Entry(expected, invariant, also, source.random() < 0.4, traced)


def generated(source: random.Random) -> Case:
    """Draw a case."""
    names = source.sample(INVARIANTS, source.choice([1, 2, 3, 4]))
    findings = tuple((name, source.choice(["VALID", "VALID", "INVALID", "UNKNOWN"])) for name in names)
    entries = tuple(entry(source, names) for _ in range(source.choice([1, 1, 2, 3])))
    worst = next(word for word in WORST_FIRST if word in dict(findings).values())
    planted = f"{worst} of {entries[0] if len(entries) == 1 else 'several'}"
    return Case(findings, source.random() < 0.15, entries, planted)


def recorded(case: Case) -> Judgement:
    """Return the judgement of a run."""
    worst = next(word for word in WORST_FIRST if word in dict(case.findings).values())
    if case.assumption_fails and worst == "VALID":
        worst = "UNKNOWN"
    return Judgement(Verdict(worst), {name: Finding(Verdict(word), "") for name, word in case.findings}, {})


def verdict(case: Case) -> str:
    """Return whether the run passes: "A scenario passes if it ended as its file expects". Some of the entries came
    true together: each broken or UNKNOWN invariant is excused by one of them, and each of them is shown by its trace or
    by an invariant that no other one explains."""
    words = [word for _, word in case.findings]
    if "INVALID" not in words:
        if "UNKNOWN" in words or case.assumption_fails:
            return "fails"
        return "passes" if any(one.expected == "VALID" or not one.always for one in case.entries) else "fails"
    sure = [one for one in case.entries if is_shown(case, one) and (one.traced or is_own(case, one))]
    alone = [(one,) for one in case.entries]
    together = [chosen for count in range(2, len(sure) + 1) for chosen in itertools.combinations(sure, count)]
    return "passes" if any(came_true(case, chosen) for chosen in alone + together) else "fails"


def is_shown(case: Case, one: Entry) -> bool:
    """Return whether the run shows what the entry says: its trace, and its invariant broken."""
    if one.expected != "INVALID" or one.traced is False:
        return False
    return one.invariant is None or (one.invariant, "INVALID") in case.findings


def is_own(case: Case, one: Entry) -> bool:
    """Return whether no other entry explains the invariant of this one as a consequence."""
    others = [other for other in case.entries if other is not one and is_shown(case, other)]
    return all(one.invariant not in other.also for other in others)


def came_true(case: Case, chosen: tuple[Entry, ...]) -> bool:
    """Return whether just these entries say how the run ended. One that names no invariant speaks for all."""
    if not all(is_shown(case, one) for one in chosen):
        return False
    excused = {name for one in chosen for name in (one.invariant, *one.also)}
    for name, word in case.findings:
        # "Where another invariant is UNKNOWN, so is the run."
        of_any = word == "INVALID" and any(one.invariant is None for one in chosen)
        if word != "VALID" and name not in excused and not of_any:
            return False
    return True


def found(case: Case) -> str:
    """Return the suite's answer."""
    stated = [
        Expectation(
            broker="<4",
            verdict=Verdict(one.expected),
            invariant=one.invariant,
            invariants_also=one.also,
            intermittent=not one.always,
            log=None if one.traced is None else LOG if one.traced else ABSENT,
        )
        for one in case.entries
    ]
    return "passes" if met(recorded(case), stated, lambda: [LOG]) is not None else "fails"
