"""The same scenarios side by side on each driver and broker version, made from run directories.

.venv/bin/python -m reports.platforms reports/runs [MORE ...] > docs/platforms.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reports.table import Platform, platform, recorded, table_line
from reports.words import NOTHING, short_verdict

_HEAD = """# Drivers and broker versions side by side

Generated from run directories by `python -m reports.platforms`, of the scenarios that were played on more than one
platform. Each cell has the last run there: its verdict, how long its cluster took to form, how many messages/s were
confirmed in the steady phase, and how long it took from the last healing until the cluster was whole.

Why cells differ:

- None: scenarios with metrics (kills, restarts, backlogs) are for 3.10 and newer, as older brokers tell no numbers of
  single queues; there are no mirrored queues from 4.0 on.
- Formed: an engine takes longer to start a container than it takes to start a process, on a busy machine many times
  longer; a node of 3.8 waits up to a minute before it looks for others.
- Confirmed: all get the same load, which is less than any of them can take; a difference is the machine's.
- Whole: up to 4.2 a node in the minority pauses, and must start again once the cut is healed. From 4.3 on nobody does,
  and it is back as soon as its links are. A node that was killed takes as long as its version takes to boot.
"""


def side_by_side(verdicts: Iterable[Mapping[str, Any]]) -> str:
    """Markdown, of verdicts in the order of their runs."""
    rows: dict[str, dict[Platform, Mapping[str, Any]]] = {}
    for verdict in verdicts:
        rows.setdefault(str(verdict["title"]), {})[platform(verdict)] = verdict
    shared = {title: row for title, row in rows.items() if len(row) > 1}
    platforms = sorted({where for row in shared.values() for where in row})
    head = ("Scenario", *map(str, platforms))
    lines = [(title, *(_cell(row.get(where)) for where in platforms)) for title, row in sorted(shared.items())]
    return "\n".join([_HEAD, table_line(head), table_line(["---"] * len(head)), *map(table_line, lines)]) + "\n"


def _cell(verdict: Mapping[str, Any] | None) -> str:
    if verdict is None:
        return NOTHING
    invariants = verdict.get("invariants") or {}
    steady_per_s = _number(invariants, "throughput", "steady_per_s")
    recovered_s = _number(invariants, "recovery", "recovered_after_s")
    parts = (
        short_verdict(verdict),
        _told("formed in {:.0f} s", verdict.get("formed_in_s")),
        _told("{:.0f}/s", steady_per_s),
        _told("whole after {:.1f} s", recovered_s),
    )
    return ", ".join(filter(None, parts))


def _number(invariants: Mapping[str, Any], invariant: str, name: str) -> float | None:
    value = ((invariants.get(invariant) or {}).get("numbers") or {}).get(name)
    return value if isinstance(value, int | float) else None


def _told(text: str, value: float | None) -> str:
    return "" if value is None else text.format(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("folders", nargs="+", type=Path, help="folders that hold run directories")
    print(side_by_side(recorded(parser.parse_args().folders)), end="")


if __name__ == "__main__":
    main()
