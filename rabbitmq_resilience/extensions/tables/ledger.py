"""Keep a ledger of runs over many sittings: what was run, on which commit and which broker, and how it ended.

Run directories are deleted some day, but their lines in the ledger are kept. Each run is one line of JSON in
reports/ledger.jsonl. Runs are entered only once, so that a sitting continues where the one before ended::

    LEDGER=rabbitmq_resilience.extensions.tables.ledger
    .venv/bin/python -m $LEDGER enter reports/runs --commit $(git rev-parse --short HEAD)
    .venv/bin/python -m $LEDGER show > reports/ledger.md
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rabbitmq_resilience.extensions.tables import TEMPLATES
from rabbitmq_resilience.extensions.tables.run_verdicts import recorded_by_name
from rabbitmq_resilience.extensions.tables.runs import Counts, LedgerRun, read_explained, run_of
from rabbitmq_resilience.report.markdown_tables import markdown
from rabbitmq_resilience.tools.locations import content

LEDGER = content("reports") / "ledger.jsonl"

#: The fields of verdict.json that a line keeps, in addition to the run's name, the commit and the purpose.
_KEPT = ("title", "verdict", "as_expected", "expected", "broker_version", "driver", "seed", "duration_s", "started_at")

#: The name of the percentile among the numbers of ``latency``.
_WAITED = re.compile(r"_p[\d_]+_[a-z]+_ms$")


def entered(roots: Iterable[Path], known: Iterable[Mapping[str, Any]], *, commit: str, purpose: str) -> list[Any]:
    """Return lines for the runs below the folders that are not in ``known``, oldest first."""
    there = {(line["run"], line["broker_version"]) for line in known}  # two at once may begin in the same second
    return [
        {"run": name, "commit": commit, "purpose": purpose, **_kept(verdict)}
        for name, verdict in recorded_by_name(roots)
        if (name, verdict["broker_version"]) not in there
    ]


def _kept(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a verdict that a line keeps.

    What decided the verdict is kept in full, so that a run can be explained when its directory is gone."""
    kept = {key: verdict.get(key) for key in _KEPT} | {"reached": reached(verdict)}
    kept["others_cpu"] = (verdict.get("others_cpu") or {}).get("mean")
    parts = {
        part: {n: f for n, f in verdict.get(part, {}).items() if f["verdict"] != "VALID"}
        for part in ("invariants", "assumptions")
    }
    decided = {
        part: {n: {"verdict": f["verdict"], "summary": f["summary"]} for n, f in found.items()}
        for part, found in parts.items()
    }
    return kept | decided


def reached(verdict: Mapping[str, Any]) -> dict[str, float | None]:
    """Return what the load reached: {name: number}, None for what was not measured.

    The numbers: messages/s confirmed in the steady phase, the part of that rate in the slowest window during faults, a
    percentile of the waits in ms, and the longest outage of a queue in s."""
    numbers = {name: finding.get("numbers", {}) for name, finding in verdict.get("invariants", {}).items()}
    throughput, flow = numbers.get("throughput", {}), numbers.get("flow", {})
    waits = [value for name, value in numbers.get("latency", {}).items() if _WAITED.search(name)]
    outages = [queue["longest_s"] for queue in (verdict.get("consequences") or {}).get("queues", {}).values()]
    return {
        "confirmed_per_s": throughput.get("steady_per_s", flow.get("taken_per_s")),
        "kept": throughput.get("ratio"),
        "latency_ms": waits[0] if waits else None,
        "outage_s": max(outages, default=None),
    }


def read_ledger(path: Path = LEDGER) -> list[dict[str, Any]]:
    """Return the lines of the ledger; none if the file does not exist."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def runs_of(lines: Iterable[Mapping[str, Any]], explained: Mapping[str, Mapping[str, str]]) -> list[LedgerRun]:
    """Return the runs of the ledger's lines, in their order."""
    return [run_of(line["run"], line, explained) for line in lines]


def ledger(lines: Sequence[Mapping[str, Any]], explained: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page as Markdown.

    It counts the verdicts for each purpose, commit and platform, and then lists the runs that did not end as they
    should."""
    by_sitting: dict[tuple[str, str, str], list[LedgerRun]] = defaultdict(list)
    runs = runs_of(lines, explained)
    for run in runs:
        by_sitting[run.verdict["purpose"], run.verdict["commit"], str(run.platform)].append(run)
    return markdown(
        TEMPLATES / "ledger.md.j2",
        sittings={sitting: Counts.of(found) for sitting, found in by_sitting.items()},
        odd=[run for run in runs if not run.held],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    enter = commands.add_parser("enter", help="enter the runs below folders")
    enter.add_argument("folders", nargs="+", type=Path)
    enter.add_argument("--commit", required=True, help="the commit on which they were run")
    enter.add_argument("--purpose", required=True, help="what they were run for, in two or three words")
    commands.add_parser("show", help="print the table")
    asked = parser.parse_args()
    known = read_ledger()
    if asked.command == "show":
        print(ledger(known, read_explained()), end="")
        return
    lines = entered(asked.folders, known, commit=asked.commit, purpose=asked.purpose)
    with LEDGER.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    print(f"{len(lines)} runs entered, {len(known)} were in the ledger before")


if __name__ == "__main__":
    main()
