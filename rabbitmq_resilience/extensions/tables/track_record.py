"""Show the track record, made of fault files and the ledger: the verdicts of each incident on each version.

.venv/bin/python -m rabbitmq_resilience.extensions.tables.track_record > reports/track-record.md
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from rabbitmq_resilience.extensions.tables import TEMPLATES
from rabbitmq_resilience.extensions.tables.ledger import read_ledger, runs_of
from rabbitmq_resilience.extensions.tables.run_verdicts import Platform
from rabbitmq_resilience.extensions.tables.runs import LedgerRun, read_explained
from rabbitmq_resilience.report.markdown_tables import markdown
from rabbitmq_resilience.report.rate import Rate
from rabbitmq_resilience.report.wording import NOTHING, verdict_word
from rabbitmq_resilience.tools.locations import content

INCIDENTS = content("faults") / "incidents"
_ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")


@dataclass(frozen=True)
class Incident:
    """An incident. ``name``: the path of its fault file as a command has it; ``stated``: the plain YAML of it."""

    name: str
    stated: Mapping[str, Any]

    @classmethod
    def read(cls, file: Path) -> Incident:
        """Read a fault file as plain YAML."""
        return cls(f"faults/incidents/{file.name}", yaml.safe_load(file.read_text(encoding="utf-8")))

    @property
    def title(self) -> str:
        return str(self.stated["title"])

    @property
    def link(self) -> str:
        """Return the reference as a link in Markdown."""
        reference = str(self.stated.get("reference", NOTHING))
        found = _ISSUE.fullmatch(reference)
        if found:
            return f"[{reference}](https://github.com/{found[1]}/issues/{found[2]})"
        return f"<{reference}>" if "://" in reference else reference


@dataclass(frozen=True)
class TrackRecord:
    """The runs of an incident on one platform.

    ``rate``: the rate of runs that broke a promise, or of VALID runs if none did. UNKNOWN runs do not count, nor do
    INVALID ones for which the suite or the machine is to blame: ``not_its_doing``. ``broken``: the invariants that were
    broken. ``outages``: the longest outage of all runs, if there was one."""

    word: str
    broken: Sequence[str]
    rate: Rate | None
    unknown: int
    not_its_doing: int
    outages: str

    @classmethod
    def of(cls, runs: Sequence[LedgerRun]) -> Self:
        """Count the verdicts of ``runs``."""
        counted = [run for run in runs if not run.is_explained_away]
        counts = Counter(run.word for run in counted)
        judged = counts["VALID"] + counts["INVALID"]
        word = "INVALID" if counts["INVALID"] else "VALID"
        rate = Rate(counts[word], judged) if judged else None
        return cls(word, _broken(counted), rate, counts["UNKNOWN"], len(runs) - len(counted), _outages(runs))


def track_record(incidents: Iterable[Incident], runs: Iterable[LedgerRun]) -> str:
    """Return the page as Markdown, made of the runs of the ledger."""
    seen: defaultdict[str, defaultdict[Platform, list[LedgerRun]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        seen[str(run.verdict["title"])][run.platform].append(run)
    rows = [
        (incident, {where: TrackRecord.of(found) for where, found in sorted(seen[incident.title].items())})
        for incident in incidents
    ]
    return markdown(TEMPLATES / "track-record.md.j2", rows=rows)


def incidents_of(folder: Path = INCIDENTS) -> list[Incident]:
    """Return the incidents of a folder, by the names of their files."""
    return [Incident.read(file) for file in sorted(folder.glob("*.fault.yaml"))]


def _outages(runs: Iterable[LedgerRun]) -> str:
    """Return the longest outage in words; empty if the lines have none. Older lines say nothing of outages."""
    longest_s = max((run.verdict.get("reached", {}).get("outage_s") or 0.0 for run in runs), default=0.0)
    return f"outages up to {longest_s:.1f} s" if longest_s else ""


def _broken(runs: Iterable[LedgerRun]) -> list[str]:
    """Return the invariants that INVALID runs broke, the most frequent first."""
    counts = Counter(
        name
        for run in runs
        if run.word == "INVALID"
        for name, finding in run.verdict.get("invariants", {}).items()
        if verdict_word(finding) == "INVALID"
    )
    return [name for name, _ in counts.most_common()]


def main() -> None:
    """Print the page."""
    argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0]).parse_args()
    print(track_record(incidents_of(), runs_of(read_ledger(), read_explained())), end="")


if __name__ == "__main__":
    main()
