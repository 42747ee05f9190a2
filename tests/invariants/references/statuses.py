"""Judge exit statuses of sessions by the table of docs/verdicts-explained.md."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.plugin import sessions


@dataclass(frozen=True)
class Case:
    """A session that was played to its end. ``ends``: (verdict, whether it is as expected) of each scenario."""

    ends: tuple[tuple[str, bool], ...]
    other_failures: int
    other_passes: int
    never_played: int
    looks_only: bool
    disturbed_sweeps: int
    planted: str


def generated(source: random.Random) -> Case:
    """Draw a session."""
    looks = source.random() < 0.15
    ends: list[tuple[str, bool]] = []
    for _ in range(0 if looks else source.choice([0, 0, 1, 1, 2, 3])):
        word = source.choice(["VALID", "VALID", "INVALID", "UNKNOWN", "UNKNOWN"])
        ends.append((word, word == "VALID" or (word == "INVALID" and source.random() < 0.5)))
    failures = source.choice([0, 0, 0, 1])
    passes, never = source.choice([0, 1]), source.choice([0, 0, 1])
    disturbed = source.choice([0, 0, 1]) if any(good for _, good in ends) else 0
    planted = "+".join(sorted({f"{word} {'expected' if good else 'unexpected'}" for word, good in ends})) or "none"
    return Case(tuple(ends), failures, passes, never, looks, disturbed, planted + (" looks" if looks else ""))


def recorded(case: Case) -> Any:
    """Return a session of pytest that ended so."""
    unexpected = {str(k): Verdict(word) for k, (word, good) in enumerate(case.ends) if not good}
    stash = pytest.Stash()
    stash[sessions.RESULTS] = unexpected
    stash[sessions.ASKED] = len(case.ends) + case.never_played
    stash[sessions.JUDGED] = sum(word != "UNKNOWN" for word, _ in case.ends)
    stash[sessions.SUMMARY] = []
    stash[sessions.NO_NUMBERS] = {"a measured one": "", **{str(k): "disturbed" for k in range(case.disturbed_sweeps)}}
    options = SimpleNamespace(collectonly=case.looks_only, setuponly=False)
    here = SimpleNamespace(dir=Path())
    config = SimpleNamespace(stash=stash, option=options, invocation_params=here, inipath=None)
    config.getoption = lambda *_, **__: None
    config.getini = lambda *_: None
    return SimpleNamespace(config=config, testsfailed=len(unexpected) + case.other_failures)


def verdict(case: Case) -> str:
    """Return the status by the table."""
    if case.other_failures or any(word == "INVALID" and not good for word, good in case.ends):
        return "1"
    if any(not good for _, good in case.ends):
        return "10"
    came = [word for word, _ in case.ends if word != "UNKNOWN"]
    asked = len(case.ends) + case.never_played
    nothing_judged = asked and not came and not case.looks_only
    return "10" if nothing_judged or case.disturbed_sweeps else "0"


def found(case: Case) -> str:
    """Return the suite's answer."""
    session = recorded(case)
    bare = pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK
    return str(int(sessions.exit_status(cast(pytest.Session, session), bare)))
