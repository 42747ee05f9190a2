"""The track record: what became of each incident on each broker version, made from fault files and run directories.

.venv/bin/python -m reports.track_record faults/incidents reports/runs [MORE ...] > docs/track-record.md
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from reports.rate import Rate
from reports.table import Platform, platform, recorded, table_line
from reports.words import NOTHING, verdict_word

_HEAD = """# Track record

Generated from run directories by `python -m reports.track_record`. Each row is an incident that happened to others, as
a fault file. Beside each broker version stands in how many of its runs a promise was broken, by which invariant, and in
brackets the range in which the true rate lies (95 %, Wilson); runs that could not tell are counted apart.
`pytest -m incidents --repeat 10` plays all that are meant for a version.
"""

_ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")


@dataclass(frozen=True)
class Incident:
    """A fault file, as far as the table tells of it."""

    file: Path
    title: str
    reference: str

    @classmethod
    def read(cls, file: Path) -> Incident:
        stated = yaml.safe_load(file.read_text(encoding="utf-8"))
        return cls(file, str(stated["title"]), str(stated.get("reference", NOTHING)))

    @property
    def link(self) -> str:
        found = _ISSUE.fullmatch(self.reference)
        if found:
            return f"[{self.reference}](https://github.com/{found[1]}/issues/{found[2]})"
        return f"<{self.reference}>" if "://" in self.reference else self.reference

    @property
    def command(self) -> str:
        return f"`pytest --fault-file={self.file} --repeat 10`"


def track_record(incidents: Iterable[Incident], verdicts: Iterable[Mapping[str, Any]]) -> str:
    """Markdown; ``verdicts`` in the order of their runs."""
    runs: dict[str, dict[Platform, list[Mapping[str, Any]]]] = {}
    for verdict in verdicts:
        runs.setdefault(str(verdict["title"]), {}).setdefault(platform(verdict), []).append(verdict)
    head = ("Incident", "Reference", "Seen", "Command")
    rows = [(i.title, i.link, _seen(runs.get(i.title, {})), i.command) for i in incidents]
    return "\n".join([_HEAD, table_line(head), table_line(["---"] * len(head)), *map(table_line, rows)]) + "\n"


def _seen(by_platform: Mapping[Platform, Sequence[Mapping[str, Any]]]) -> str:
    return "<br>".join(f"{where}: {_told(by_platform[where])}" for where in sorted(by_platform)) or "not played yet"


def _told(runs: Sequence[Mapping[str, Any]]) -> str:
    """``INVALID by no_loss in 3 of 10 (11 to 60 %)``; where none was, ``VALID in 10 of 10 (72 to 100 %)``. What could
    not tell is no part of the rate."""
    counts = Counter(map(verdict_word, runs))
    judged = counts["VALID"] + counts["INVALID"]
    word = "INVALID" if counts["INVALID"] else "VALID"
    rate = f"{word}{_by(runs)} in {Rate(counts[word], judged)}" if judged else ""
    unknown = f"{counts['UNKNOWN']} UNKNOWN" if counts["UNKNOWN"] else ""
    return ", ".join(filter(None, [rate, unknown]))


def _by(runs: Sequence[Mapping[str, Any]]) -> str:
    """The invariants that broken runs broke, the most frequent first."""
    broken = Counter(
        name
        for run in runs
        if verdict_word(run) == "INVALID"
        for name, finding in run.get("invariants", {}).items()
        if verdict_word(finding) == "INVALID"
    )
    return f" by {', '.join(name for name, _ in broken.most_common())}" if broken else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("incidents", type=Path, help="the folder of their fault files")
    parser.add_argument("runs", type=Path, nargs="+", help="folders that hold run directories")
    given = parser.parse_args()
    incidents = [Incident.read(file) for file in sorted(given.incidents.glob("*.yaml"))]
    print(track_record(incidents, recorded(given.runs)), end="")


if __name__ == "__main__":
    main()
