"""Show what a power cut or a failing disk took: scenarios as rows, versions and queue types as columns.

.venv/bin/python -m rabbitmq_resilience.extensions.tables.power > reports/power.md
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rabbitmq_resilience.extensions.tables import TEMPLATES
from rabbitmq_resilience.extensions.tables.evidence import POWER, cells_of, family, newest_first, not_valid
from rabbitmq_resilience.extensions.tables.ledger import read_ledger, runs_of
from rabbitmq_resilience.extensions.tables.runs import Counts, LedgerRun, read_explained
from rabbitmq_resilience.report.markdown_tables import markdown

#: The name of a scenario, and its queue type, in its title; topology and partition handling are between them.
_TITLE = re.compile(r"(.+?), [a-z_]+, [a-z_]+, ([a-z]+)")
_LOST = re.compile(r"(?P<confirmed>\d+) messages? (?:was|were) confirmed; (?P<lost>\d+) of them never arrived")


def power(lines: Sequence[Mapping[str, Any]], explained: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page as Markdown, made of lines of the ledger. ``explained``: why runs did not end as they should."""
    found_cells = cells_of(lines, explained, POWER, _TITLE)
    cells = {(name, version, kind): found for (name, kind, version), found in found_cells.items()}
    versions = newest_first(version for _, version, _ in cells)
    kinds = {version: sorted({kind for _, other, kind in cells if other == version}) for version in versions}
    return markdown(
        TEMPLATES / "power.md.j2",
        columns=[(version, kind) for version in versions for kind in kinds[version]],
        names=sorted({name for name, _, _ in cells}),
        cells={key: Counts.of(found) for key, found in cells.items()},
        losses={key: lost for key, found in cells.items() if (lost := losses(found))},
        unnamed=[run for run in runs_of(lines, explained) if _is_unnamed(str(run.verdict["title"]))],
        odd=not_valid(cells),
    )


def _is_unnamed(title: str) -> bool:
    return family(title) == POWER and _TITLE.fullmatch(title) is None


def losses(runs: Sequence[LedgerRun]) -> str:
    """Return in words how many confirmed messages the runs lost; empty if none. What never arrived in a run whose
    losses could not be judged is not counted."""
    findings = [run.verdict["invariants"].get("no_loss", {}) for run in runs]
    found = [_LOST.search(str(one["summary"])) for one in findings if one.get("verdict") == "INVALID"]
    lost = [(int(one["lost"]), int(one["confirmed"])) for one in found if one is not None and int(one["lost"])]
    return ", ".join(f"{count:,} of {confirmed:,}" for count, confirmed in lost)


def main() -> None:
    """Print the page."""
    argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0]).parse_args()
    print(power(read_ledger(), read_explained()), end="")


if __name__ == "__main__":
    main()
