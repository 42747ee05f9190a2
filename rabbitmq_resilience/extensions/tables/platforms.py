"""Show the same scenarios on each driver and broker version, made from run directories.

.venv/bin/python -m rabbitmq_resilience.extensions.tables.platforms reports/runs [MORE ...] > reports/platforms.md
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rabbitmq_resilience.extensions.tables import TEMPLATES
from rabbitmq_resilience.extensions.tables.run_verdicts import Platform, platform, recorded
from rabbitmq_resilience.report.impact import outage_text
from rabbitmq_resilience.report.markdown_tables import markdown
from rabbitmq_resilience.report.wording import short_verdict

#: Title and driver of scenarios in ``faults/platforms`` that a driver refuses, so that there is no run.
REFUSED = frozenset({("Packets are lost between two zones, on each driver", "local")})


@dataclass(frozen=True)
class PlatformCell:
    """The content of one cell: how all its runs ended, and the numbers of the last run; None for unknown numbers."""

    verdicts: str
    formed_s: float | None
    steady_per_s: float | None
    whole_s: float | None
    outage: str


def side_by_side(verdicts: Iterable[Mapping[str, Any]]) -> str:
    """Return the page as Markdown, made of verdicts in the order of their runs."""
    rows: dict[str, dict[Platform, list[Mapping[str, Any]]]] = {}
    for verdict in verdicts:
        rows.setdefault(str(verdict["title"]), {}).setdefault(platform(verdict), []).append(verdict)
    refused = {title for title, _ in REFUSED}
    shared = {title: row for title, row in rows.items() if len(row) > 1 or title in refused}
    platforms = sorted({where for row in shared.values() for where in row})
    return markdown(
        TEMPLATES / "platforms.md.j2",
        platforms=platforms,
        versions=" ".join(map(str, platforms)),
        rows={title: {where: _seen(runs) for where, runs in row.items()} for title, row in sorted(shared.items())},
        refused=REFUSED,
    )


def _seen(runs: Sequence[Mapping[str, Any]]) -> PlatformCell:
    verdict = runs[-1]
    invariants = verdict.get("invariants") or {}
    words = Counter(map(short_verdict, runs)).most_common()
    return PlatformCell(
        verdicts=", ".join(word if len(runs) == 1 else f"{number} {word}" for word, number in words),
        formed_s=verdict.get("formed_in_s"),
        steady_per_s=_number(invariants, "throughput", "steady_per_s"),
        whole_s=_number(invariants, "recovery", "recovered_after_s"),
        outage=outage_text(verdict),
    )


def _number(invariants: Mapping[str, Any], invariant: str, name: str) -> float | None:
    value = ((invariants.get(invariant) or {}).get("numbers") or {}).get(name)
    return value if isinstance(value, int | float) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("folders", nargs="+", type=Path, help="folders that hold run directories")
    print(side_by_side(recorded(parser.parse_args().folders)), end="")


if __name__ == "__main__":
    main()
