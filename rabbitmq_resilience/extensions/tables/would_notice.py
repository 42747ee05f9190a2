"""Show whether the suite notices set-ups that truly break a promise, from the run directories of ``pytest -m unsafe``.

.venv/bin/python -m rabbitmq_resilience.extensions.tables.would_notice reports/runs [MORE ...] > reports/would-notice.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rabbitmq_resilience.extensions.tables import TEMPLATES
from rabbitmq_resilience.extensions.tables.run_verdicts import Platform, platform, recorded
from rabbitmq_resilience.report.impact import longest_of
from rabbitmq_resilience.report.markdown_tables import markdown
from rabbitmq_resilience.tools.locations import content

CORPUS = content("faults") / "unsafe"


@dataclass(frozen=True)
class UnsafeRow:
    """A set-up on one platform; the platform is None if the set-up was never played.

    ``broken``: {broken invariant: its summary} of the last run in which the set-up was noticed."""

    name: str
    platform: Platform | None = None
    runs: int = 0
    noticed: int = 0
    broken: Mapping[str, str] = field(default_factory=dict)
    reference: str = ""
    outages: str = ""


def would_notice(verdicts: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    """Return the page as Markdown, made of verdicts in the order of their runs.

    ``names``: {title of a scenario: name of its set-up} of all set-ups."""
    rows: dict[str, dict[Platform, list[Mapping[str, Any]]]] = {title: {} for title in sorted(names)}
    for verdict in verdicts:
        if verdict["title"] in rows:
            rows[verdict["title"]].setdefault(platform(verdict), []).append(verdict)
    played = [_row(names[title], where, runs) for title, found in rows.items() for where, runs in sorted(found.items())]
    return markdown(
        TEMPLATES / "would-notice.md.j2",
        set_ups=len(rows),
        noticed=len({row.name for row in played if row.noticed}),
        rows=[*played, *(UnsafeRow(names[title]) for title, found in rows.items() if not found)],
    )


def _row(name: str, where: Platform, runs: Sequence[Mapping[str, Any]]) -> UnsafeRow:
    noticed = [run for run in runs if run["verdict"] == "INVALID" and run["as_expected"]]
    if not noticed:
        return UnsafeRow(name, where, len(runs), outages=longest_of(runs))
    last = noticed[-1]
    broken = {by: str(f["summary"]) for by, f in last["invariants"].items() if f["verdict"] == "INVALID"}
    return UnsafeRow(name, where, len(runs), len(noticed), broken, str(last["reference"]), longest_of(runs))


def corpus(folder: Path = CORPUS) -> dict[str, str]:
    """Return {title: name} of the set-ups in a folder.

    The fault files are read as plain YAML, as reports do not import faults."""
    scenarios = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.fault.yaml"))]
    return {str(scenario["title"]): str(scenario["name"]) for scenario in scenarios}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("folders", nargs="+", type=Path, help="folders that hold run directories")
    print(would_notice(recorded(parser.parse_args().folders), corpus()), end="")


if __name__ == "__main__":
    main()
