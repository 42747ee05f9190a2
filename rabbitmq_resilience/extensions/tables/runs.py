"""Describe runs that came to a verdict: how each ended and why, and the counts of verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from rabbitmq_resilience.extensions.tables.run_verdicts import Platform, platform
from rabbitmq_resilience.report.rate import Rate
from rabbitmq_resilience.report.wording import NOTHING, verdict_word
from rabbitmq_resilience.tools.locations import content

EXPLAINED = content("reports") / "explained.yaml"

#: The values of ``cause`` in that file, and the words for them in tables.
CAUSES = {
    "rabbitmq": "RabbitMQ broke the promise",
    "client": "the client gave up",
    "machine": "the machine was too busy",
    "suite": "this suite",
}
#: The causes for which INVALID is what the suite is for, and those for which it is not.
_FOUND = {"rabbitmq", "client"}
_NOT_FOUND = {"machine", "suite"}
_NOT_EXPLAINED = "not explained"


@dataclass(frozen=True)
class LedgerRun:
    """One run that came to a verdict. ``cause``, ``why``: why it did not end as it should, if known."""

    name: str
    verdict: Mapping[str, Any]
    cause: str = ""
    why: str = ""

    @property
    def time(self) -> str:
        """Return the time in the run's name."""
        return _time(self.name)

    @property
    def platform(self) -> Platform:
        return platform(self.verdict)

    @property
    def word(self) -> str:
        """Return the verdict as a word."""
        return verdict_word(self.verdict)

    @property
    def blamed(self) -> str:
        """Return the words for the cause."""
        return CAUSES.get(self.cause, _NOT_EXPLAINED)

    @property
    def held(self) -> bool:
        """Return whether the run ended as it should: VALID, or with a known violation."""
        return bool(self.verdict["verdict"] == "VALID" or self.known)

    @property
    def known(self) -> bool:
        """Return whether the run is INVALID as its scenario expects."""
        return bool(self.verdict["verdict"] == "INVALID" and self.verdict.get("as_expected"))

    @property
    def is_false_alarm(self) -> bool:
        """Return whether the run is INVALID, not as expected, and neither RabbitMQ nor the client is to blame."""
        return bool(self.verdict["verdict"] == "INVALID" and not self.held and self.cause not in _FOUND)

    @property
    def is_explained_away(self) -> bool:
        """Return whether the run is INVALID, and the suite or the machine is known to be to blame."""
        return self.word == "INVALID" and self.cause in _NOT_FOUND

    @property
    def said(self) -> str:
        """Return the finding that decided the verdict: an assumption that failed, or else an invariant."""
        found = {**self.verdict.get("invariants", {}), **self.verdict.get("assumptions", {})}
        wrong = [(name, f) for name, f in found.items() if f["verdict"] == self.verdict["verdict"]]
        assumed = [(name, f) for name, f in wrong if name in self.verdict.get("assumptions", {})]
        name, finding = (assumed or wrong or [("", {"summary": NOTHING})])[0]
        first_line = str(finding["summary"]).splitlines()[0]
        return f"{name}: {first_line}"


@dataclass(frozen=True)
class Counts:
    """The counts of verdicts. ``known``: INVALID as expected. ``invalid``: all other INVALID runs.

    ``false_alarms``: their rate among the runs that were VALID or INVALID, without the known ones; None without any.
    """

    runs: int
    valid: int
    known: int
    invalid: int
    unknown: int
    false_alarms: Rate | None

    @classmethod
    def of(cls, runs: Sequence[LedgerRun]) -> Self:
        """Count the verdicts of ``runs``."""
        words = Counter(str(run.verdict["verdict"]) for run in runs if not run.known)
        judged = words["VALID"] + words["INVALID"]
        rate = Rate(sum(run.is_false_alarm for run in runs), judged) if judged else None
        known = sum(run.known for run in runs)
        return cls(len(runs), words["VALID"], known, words["INVALID"], words["UNKNOWN"], rate)


def run_of(name: str, verdict: Mapping[str, Any], explained: Mapping[str, Mapping[str, str]]) -> LedgerRun:
    """Return the run of that name with its explanation. ``explained``: {a run's name, or the time in it: cause and
    why}."""
    return LedgerRun(name, verdict, **explained.get(name, explained.get(_time(name), {})))


def _time(name: str) -> str:
    return name.partition("-")[0]


def read_explained(path: Path = EXPLAINED) -> dict[str, dict[str, str]]:
    """Return the explanations: {a run's name, or the time in it: cause and why}."""
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
