"""Show the verdicts of each scenario on each version: versions as columns, the newest first.

.venv/bin/python -m rabbitmq_resilience.extensions.tables.by_version > reports/verdicts.md
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from rabbitmq_resilience.extensions.tables import TEMPLATES
from rabbitmq_resilience.extensions.tables.evidence import newest_first
from rabbitmq_resilience.extensions.tables.ledger import read_ledger, runs_of
from rabbitmq_resilience.extensions.tables.runs import Counts, LedgerRun, read_explained
from rabbitmq_resilience.report.markdown_tables import markdown


def by_version(lines: Iterable[Mapping[str, Any]], explained: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page as Markdown, made of lines of the ledger. ``explained``: why runs did not end as they should."""
    cells: dict[tuple[str, str], list[LedgerRun]] = defaultdict(list)
    for run in runs_of(lines, explained):
        cells[str(run.verdict["title"]), str(run.verdict["broker_version"])].append(run)
    versions = newest_first(version for _, version in cells)
    return markdown(
        TEMPLATES / "by_version.md.j2",
        versions=versions,
        titles=sorted({title for title, _ in cells}),
        cells={key: Counts.of(found) for key, found in cells.items()},
        played={version: sum(version == other for _, other in cells) for version in versions},
    )


def main() -> None:
    """Print the page."""
    argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0]).parse_args()
    print(by_version(read_ledger(), read_explained()), end="")


if __name__ == "__main__":
    main()
