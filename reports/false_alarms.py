"""How often safe scenarios ended otherwise than they should, and why: from run directories and docs/explained.yaml.

.venv/bin/python -m reports.false_alarms reports/runs [MORE ...] > docs/false-alarms.md
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from reports.rate import Rate
from reports.table import Platform, platform, recorded_by_name, table_line
from reports.words import NOTHING, verdict_word
from reports.would_notice import UNSAFE

EXPLAINED = Path(__file__).resolve().parent.parent / "docs" / "explained.yaml"

#: What ``cause`` may be in that file, and the words of the table for it.
CAUSES = {"rabbitmq": "RabbitMQ broke the promise", "machine": "the machine was too busy", "suite": "this suite"}
_NOT_EXPLAINED = "not explained"

_HEAD = """# False alarms

Generated from run directories by `python -m reports.false_alarms`, and from `docs/explained.yaml`, which says why a run
did not end as it should. Safe scenarios promise what RabbitMQ promises, so INVALID is a false alarm unless RabbitMQ
truly broke a promise; *known* ones are expected by the scenario, with a reference. UNKNOWN claims nothing, and is
counted because somebody has to look. The rate is that of INVALID for which RabbitMQ is not to blame, with its range
(95 %, Wilson). All runs were recorded while the suite was made, so that most causes are gone.
"""


@dataclass(frozen=True)
class Run:
    """One run that came to a verdict, and why it did not end as it should, where that is known."""

    name: str
    verdict: Mapping[str, Any]
    cause: str = ""
    why: str = ""

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


def false_alarms(runs: Iterable[Run]) -> str:
    """Markdown, of runs in their order."""
    safe = [run for run in runs if not run.verdict["title"].startswith(UNSAFE)]
    of: dict[Platform, list[Run]] = {}
    for run in safe:
        of.setdefault(platform(run.verdict), []).append(run)
    head = ("Broker", "Runs", "VALID", "INVALID, known", "INVALID", "UNKNOWN", "False alarms")
    rows = [(str(where), *_counted(found)) for where, found in sorted(of.items())] + [("all", *_counted(safe))]
    odd = [run for run in safe if not run.held]
    causes = Counter(CAUSES.get(run.cause, _NOT_EXPLAINED) for run in odd)
    why = "; ".join(f"{cause}: {count}" for cause, count in causes.items())
    told = f"{len(odd)} did not end as they should." + (f" {why}." if odd else "")
    explained = ("Run", "Broker", "Verdict", "What it said", "Cause", "Why")
    return "\n".join([_HEAD, *_table(head, rows), "", told, "", *_table(explained, map(_explained, odd))]) + "\n"


def _counted(runs: Sequence[Run]) -> tuple[str, ...]:
    verdicts = Counter(str(run.verdict["verdict"]) for run in runs if not run.known)
    known, false = sum(run.known for run in runs), sum(run.is_false_alarm for run in runs)
    counts = (len(runs), verdicts["VALID"], known, verdicts["INVALID"], verdicts["UNKNOWN"])
    return (*map(str, counts), str(Rate(false, len(runs))) if runs else NOTHING)


def _explained(run: Run) -> tuple[str, ...]:
    cause = CAUSES.get(run.cause, _NOT_EXPLAINED)
    title = f"{_time(run.name)} {run.verdict['title']}"
    return title, str(platform(run.verdict)), verdict_word(run.verdict), run.said, cause, run.why or NOTHING


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [table_line(head), table_line(["---"] * len(head)), *map(table_line, rows)]


def recorded_runs(roots: Iterable[Path], explained: Mapping[str, Mapping[str, str]]) -> list[Run]:
    """All runs below the folders, oldest first."""
    return [Run(name, verdict, **explained.get(_time(name), {})) for name, verdict in recorded_by_name(roots)]


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
