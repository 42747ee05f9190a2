"""Show what the loads of the case studies reached in all runs, from reports/ledger.jsonl.

.venv/bin/python -m rabbitmq_resilience.extensions.tables.loads > reports/loads.md
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.extensions.tables import TEMPLATES
from rabbitmq_resilience.extensions.tables.evidence import LOADS, family
from rabbitmq_resilience.extensions.tables.ledger import read_ledger
from rabbitmq_resilience.extensions.tables.run_verdicts import Platform, platform
from rabbitmq_resilience.report.markdown_tables import markdown
from rabbitmq_resilience.report.wording import NOTHING, verdict_word


@dataclass(frozen=True)
class PlayedLoad:
    """All runs of one scenario on one platform."""

    title: str
    platform: Platform
    runs: Sequence[Mapping[str, Any]]

    @property
    def verdicts(self) -> str:
        """Return each verdict with its count, such as ``2 VALID, 1 UNKNOWN``."""
        words = [verdict_word(run) for run in self.runs]
        return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))

    def reached(self, figure: str) -> str:
        """Return the lowest and the highest value of a figure of ``extensions.tables.ledger.reached``."""
        values = [value for run in self.runs if (value := run.get("reached", {}).get(figure)) is not None]
        if not values:
            return NOTHING
        ends = [f"{value:.3g}" if value < 1000 else f"{value:.0f}" for value in (min(values), max(values))]
        return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def played(lines: Iterable[Mapping[str, Any]]) -> list[PlayedLoad]:
    """Return the runs of the loads, grouped by title and platform."""
    found: defaultdict[tuple[str, Platform], list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        if family(str(line["title"])) == LOADS:
            found[line["title"], platform(line)].append(line)
    return [
        PlayedLoad(title, where, runs) for (title, where), runs in sorted(found.items(), key=lambda one: str(one[0]))
    ]


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the page as Markdown."""
    return markdown(TEMPLATES / "loads.md.j2", loads=played(lines))


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0]).parse_args()
    print(table(read_ledger()), end="")


if __name__ == "__main__":
    main()
