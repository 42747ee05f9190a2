"""Show which clients came back by themselves: programs as rows, faults and versions as columns.

.venv/bin/python -m rabbitmq_resilience.extensions.tables.clients_under_fire > reports/clients-under-fire.md
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rabbitmq_resilience.extensions.tables import TEMPLATES
from rabbitmq_resilience.extensions.tables.evidence import APPLICATIONS, cells_of, newest_first, not_valid
from rabbitmq_resilience.extensions.tables.ledger import read_ledger
from rabbitmq_resilience.extensions.tables.runs import LedgerRun, read_explained
from rabbitmq_resilience.report.markdown_tables import markdown

#: What happens, and the client with its version, in the title of a scenario.
_TITLE = re.compile(r"(.+?), (\S+ [\d.]+)")


def clients_under_fire(lines: Iterable[Mapping[str, Any]], explained: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page as Markdown, made of lines of the ledger. ``explained``: why runs did not end as they should."""
    cells = cells_of(lines, explained, APPLICATIONS, _TITLE)
    versions = newest_first(version for *_, version in cells)
    whats = list(dict.fromkeys(what for what, *_ in cells))
    return markdown(
        TEMPLATES / "clients-under-fire.md.j2",
        columns=[(what, version) for what in whats for version in versions if _played(cells, what, version)],
        clients=sorted({client for _, client, _ in cells}, key=str.lower),
        cells={(client, what, version): _cell(found) for (what, client, version), found in cells.items()},
        odd=not_valid(cells),
    )


def _played(cells: Mapping[tuple[str, str, str], object], what: str, version: str) -> bool:
    return any((other, of) == (what, version) for other, _, of in cells)


def _cell(runs: list[LedgerRun]) -> str:
    """Return how many of the runs were VALID, and how many could not be judged."""
    valid = sum(run.verdict["verdict"] == "VALID" for run in runs)
    unknown = sum(run.verdict["verdict"] == "UNKNOWN" for run in runs)
    return f"{valid} of {len(runs)}" + (f", {unknown} UNKNOWN" if unknown else "")


def main() -> None:
    """Print the page."""
    argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0]).parse_args()
    print(clients_under_fire(read_ledger(), read_explained()), end="")


if __name__ == "__main__":
    main()
