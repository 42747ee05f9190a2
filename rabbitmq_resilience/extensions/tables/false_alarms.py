"""Show how often safe scenarios did not end as they should, and why: from the ledger and reports/explained.yaml.

.venv/bin/python -m rabbitmq_resilience.extensions.tables.false_alarms > reports/false-alarms.md
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable

from rabbitmq_resilience.extensions.tables import TEMPLATES
from rabbitmq_resilience.extensions.tables.evidence import POWER, family
from rabbitmq_resilience.extensions.tables.ledger import read_ledger, runs_of
from rabbitmq_resilience.extensions.tables.run_verdicts import Platform
from rabbitmq_resilience.extensions.tables.runs import Counts, LedgerRun, read_explained
from rabbitmq_resilience.extensions.tables.would_notice import corpus
from rabbitmq_resilience.report.markdown_tables import markdown

#: So ends the purpose of runs during which at most one other cluster of this suite, and nothing else, kept the machine
#: busy.
SUITE_ALONE = "the suite alone on the machine"
_ONE_CLUSTER = "at most one other cluster of this suite; three or four nodes"
_COUNTED = "of these, played with commit 08eab3db or a later one"
#: When the first of them began: the commit before had mended the last false alarm of that row.
_COUNTED_FROM = "2026-11-30T18:12"
_TOO_MUCH = "the same; five nodes, or a power cut"
_FIVE_NODES = "five_nodes"
#: Bounds of the part of a machine's processors that other programs took during a run, and words for what is between.
_BUSY = {0.1: "under 10 %", 0.4: "10 to 40 %", math.inf: "over 40 %"}


def _by_load(runs: Iterable[LedgerRun]) -> dict[str, Counts]:
    """Return the counts of runs of which the record knows how much other programs took."""
    found: dict[str, list[LedgerRun]] = {words: [] for words in (_ONE_CLUSTER, _COUNTED, _TOO_MUCH, *_BUSY.values())}
    for run in runs:
        if run.verdict.get("purpose", "").endswith(SUITE_ALONE):
            title = str(run.verdict["title"])
            is_held = _FIVE_NODES not in title and family(title) != POWER
            found[_ONE_CLUSTER if is_held else _TOO_MUCH].append(run)
            if is_held and (run.verdict.get("started_at") or "") >= _COUNTED_FROM:
                found[_COUNTED].append(run)
        elif (others := run.verdict.get("others_cpu")) is not None:
            found[next(words for bound, words in _BUSY.items() if others < bound)].append(run)
    return {words: Counts.of(of) for words, of in found.items() if of}


def false_alarms(runs: Iterable[LedgerRun]) -> str:
    """Return the page as Markdown, made of runs in their order."""
    unsafe = corpus()
    safe = [run for run in runs if run.verdict["title"] not in unsafe]
    by_platform: dict[Platform, list[LedgerRun]] = {}
    for run in safe:
        by_platform.setdefault(run.platform, []).append(run)
    odd = [run for run in safe if not run.held]
    return markdown(
        TEMPLATES / "false-alarms.md.j2",
        platforms={
            **{str(where): Counts.of(by_platform[where]) for where in sorted(by_platform)},
            "all": Counts.of(safe),
        },
        by_load=_by_load(safe),
        odd=odd,
        causes=Counter(run.blamed for run in odd),
    )


def main() -> None:
    """Print the page."""
    argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0]).parse_args()
    print(false_alarms(runs_of(read_ledger(), read_explained())), end="")


if __name__ == "__main__":
    main()
