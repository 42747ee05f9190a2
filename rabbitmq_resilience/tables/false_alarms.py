"""How often safe scenarios ended otherwise than they should, and why: from run directories and reports/explained.yaml.

.venv/bin/python -m rabbitmq_resilience.tables.false_alarms reports/runs [MORE ...] > reports/false-alarms.md
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from rabbitmq_resilience.pages.impact import outage_text
from rabbitmq_resilience.pages.wording import NOTHING, verdict_word
from rabbitmq_resilience.tables.markdown import TEMPLATES, markdown
from rabbitmq_resilience.tables.rate import Rate
from rabbitmq_resilience.tables.recorded import Platform, platform, recorded_by_name
from rabbitmq_resilience.tables.would_notice import corpus
from rabbitmq_resilience.tools.locations import content

EXPLAINED = content("reports") / "explained.yaml"

#: What ``cause`` may be in that file, and the words of the table for it.
CAUSES = {"rabbitmq": "RabbitMQ broke the promise", "machine": "the machine was too busy", "suite": "this suite"}
_NOT_EXPLAINED = "not explained"


@dataclass(frozen=True)
class Run:
    """One run that came to a verdict, and why it did not end as it should, where that is known."""

    name: str
    verdict: Mapping[str, Any]
    cause: str = ""
    why: str = ""

    @property
    def time(self) -> str:
        return _time(self.name)

    @property
    def platform(self) -> Platform:
        return platform(self.verdict)

    @property
    def word(self) -> str:
        return verdict_word(self.verdict)

    @property
    def outage(self) -> str:
        return outage_text(self.verdict)

    @property
    def blamed(self) -> str:
        return CAUSES.get(self.cause, _NOT_EXPLAINED)

    @property
    def held(self) -> bool:
        return bool(self.verdict["verdict"] == "VALID" or self.known)

    @property
    def known(self) -> bool:
        return bool(self.verdict["verdict"] == "INVALID" and self.verdict.get("as_expected"))

    @property
    def is_false_alarm(self) -> bool:
        return bool(self.verdict["verdict"] == "INVALID" and not self.held and self.cause != "rabbitmq")

    @property
    def said(self) -> str:
        """What the verdict rests on: a broken promise, or failing that why nothing can be told."""
        found = {**self.verdict.get("invariants", {}), **self.verdict.get("assumptions", {})}
        wrong = [(name, f) for name, f in found.items() if f["verdict"] == self.verdict["verdict"]]
        assumed = [(name, f) for name, f in wrong if name in self.verdict.get("assumptions", {})]
        name, finding = (assumed or wrong or [("", {"summary": NOTHING})])[0]
        first_line = str(finding["summary"]).splitlines()[0]
        return f"{name}: {first_line}"


@dataclass(frozen=True)
class Counts:
    """How many runs ended how; ``invalid`` are those that were not known to be so."""

    runs: int
    valid: int
    known: int
    invalid: int
    unknown: int
    false_alarms: Rate | None

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Self:
        words = Counter(str(run.verdict["verdict"]) for run in runs if not run.known)
        rate = Rate(sum(run.is_false_alarm for run in runs), len(runs)) if runs else None
        known = sum(run.known for run in runs)
        return cls(len(runs), words["VALID"], known, words["INVALID"], words["UNKNOWN"], rate)


def false_alarms(runs: Iterable[Run]) -> str:
    """Markdown, of runs in their order."""
    unsafe = corpus()
    safe = [run for run in runs if run.verdict["title"] not in unsafe]
    by_platform: dict[Platform, list[Run]] = {}
    for run in safe:
        by_platform.setdefault(run.platform, []).append(run)
    odd = [run for run in safe if not run.held]
    return markdown(
        TEMPLATES / "false-alarms.md.j2",
        platforms={
            **{str(where): Counts.of(by_platform[where]) for where in sorted(by_platform)},
            "all": Counts.of(safe),
        },
        odd=odd,
        causes=Counter(run.blamed for run in odd),
    )


def run_of(name: str, verdict: Mapping[str, Any], explained: Mapping[str, Mapping[str, str]]) -> Run:
    """Return the run of that name with what explains it. ``explained``: cause and why, by the time in a run's name."""
    return Run(name, verdict, **explained.get(_time(name), {}))


def recorded_runs(roots: Iterable[Path], explained: Mapping[str, Mapping[str, str]]) -> list[Run]:
    """All runs below the folders, oldest first."""
    return [run_of(name, verdict, explained) for name, verdict in recorded_by_name(roots)]


def _time(name: str) -> str:
    return name.partition("-")[0]


def read_explained(path: Path = EXPLAINED) -> dict[str, dict[str, str]]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")) or {})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("folders", nargs="+", type=Path, help="folders that hold run directories")
    print(false_alarms(recorded_runs(parser.parse_args().folders, read_explained())), end="")


if __name__ == "__main__":
    main()
