"""Show on one page what was played and how it ended: versions as columns, families of faults as rows.

.venv/bin/python -m rabbitmq_resilience.extensions.tables.evidence > reports/evidence.md
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rabbitmq_resilience.extensions.tables import TEMPLATES
from rabbitmq_resilience.extensions.tables.ledger import read_ledger, runs_of
from rabbitmq_resilience.extensions.tables.runs import Counts, LedgerRun, read_explained
from rabbitmq_resilience.report.markdown_tables import markdown
from rabbitmq_resilience.report.wording import NOTHING

LOADS = "loads of case studies"
POWER = "power cuts, failing and damaged disks"
APPLICATIONS = "applications behind a tap"

#: Families of scenarios, and a pattern of their titles. The first pattern that matches counts.
FAMILIES = {
    LOADS: r"^(durable|fan_out|flow_control_\d|lazy|low_latency_\d+|many_queues|million|not_durable"
    r"|sizing|telemetry),",
    APPLICATIONS: r"^(The leader of its queue dies|The links of a worker are cut|All brokers are restarted in turn"
    r"|The reply to a subscription comes late|A consumer that is made once loses its connection), |^An application ",
    "random schedules": r"^Random",
    "upgrades, by the version before": r"\bupgraded?\b|^Two versions",
    POWER: r"los(es|e|t) power|^The disk of a (leader's node|follower) is slow|^The log of a leader's node|is damaged",
    "rolling restarts": r"[Rr]olling restart",
    "connections of clients": r"^(Consumer|Publisher) |to a consumer|Exclusive queues|Queues expire",
    "backlogs, memory, CPU, disks": r"slow|backlog|Publishers peak|million messages|runs out of|loses its disk"
    r"|expire into|any consumer grows|want more than|gets less|Other programs take|needs more memory",
    "blips, flapping and lossy links": r"flaps|too short|^All links|Packets are lost|Confirms stop",
    "cuts": r"cut|bridge|even split|disconnected|not heard|are parted|^Autoheal",
    "declarations, timeouts, counts": r"queues are declared|were declared while|^Each consumer|^A queue counts",
    "brokers that die or freeze": r"\bdies?\b|died|freezes|frozen|restarts$|dead leader|ends its stop|is killed",
    "settings and kinds of messages": r"own configuration|several kinds|to Khepri",
}
OTHER, ALL = "other", "all"
_ISSUE = re.compile(r"(?:[\w.-]+/)?[\w.-]+#\d+")


def family(title: str) -> str:
    """Return the family of a scenario."""
    return next((name for name, titles in FAMILIES.items() if re.search(titles, title)), OTHER)


def cells_of(
    lines: Iterable[Mapping[str, Any]], explained: Mapping[str, Mapping[str, str]], name: str, title: re.Pattern[str]
) -> dict[tuple[str, str, str], list[LedgerRun]]:
    """Return the runs of the family ``name``: by what the two groups of ``title`` find in their title, and by version.

    ``lines`` are those of the ledger. ``explained``: why runs did not end as they should."""
    cells: dict[tuple[str, str, str], list[LedgerRun]] = defaultdict(list)
    for run in runs_of(lines, explained):
        found = title.fullmatch(str(run.verdict["title"]))
        if found is not None and family(found.string) == name:
            first, second = found.groups()
            cells[first, second, str(run.verdict["broker_version"])].append(run)
    return cells


def not_valid(cells: Mapping[Any, Sequence[LedgerRun]]) -> list[LedgerRun]:
    """Return the runs of all cells that are not VALID, by their names."""
    runs = (run for found in cells.values() for run in found)
    return sorted((run for run in runs if run.verdict["verdict"] != "VALID"), key=lambda run: run.name)


def evidence(lines: Iterable[Mapping[str, Any]], explained: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page as Markdown, made of lines of the ledger: the newest version first."""
    runs = runs_of(lines, explained)
    cells: dict[tuple[str, str], list[LedgerRun]] = defaultdict(list)
    for run in runs:
        version = str(run.verdict["broker_version"])
        cells[family(str(run.verdict["title"])), version].append(run)
        cells[ALL, version].append(run)
    versions = newest_first(version for _, version in cells)
    rows = [name for name in (*FAMILIES, OTHER, ALL) if any((name, version) in cells for version in versions)]
    return markdown(
        TEMPLATES / "evidence.md.j2",
        versions=versions,
        rows=rows,
        cells={key: Counts.of(found) for key, found in cells.items()},
        broken=[(version, *row) for version in versions for row in _broken(cells[ALL, version])],
    )


def newest_first(versions: Iterable[str]) -> list[str]:
    """Return the versions, each once, the newest first."""
    return sorted(set(versions), key=lambda version: list(map(int, re.findall(r"\d+", version))), reverse=True)


def _broken(runs: Sequence[LedgerRun]) -> list[tuple[str, int, int, str]]:
    """Return (cause, INVALID runs, UNKNOWN runs, public issues) for the runs that did not end as they should, most runs
    first."""
    odd = [run for run in runs if not run.held]
    found = []
    for blamed, _ in Counter(run.blamed for run in odd).most_common():
        mine = [run for run in odd if run.blamed == blamed]
        words = Counter(run.word for run in mine)
        issues = Counter(issue for run in mine for issue in {*_ISSUE.findall(run.why)})
        named = ", ".join(f"{issue} ({count})" for issue, count in sorted(issues.items(), key=_most_first)) or NOTHING
        found.append((blamed, words["INVALID"], words["UNKNOWN"], named))
    return found


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]


def main() -> None:
    """Print the page."""
    argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0]).parse_args()
    print(evidence(read_ledger(), read_explained()), end="")


if __name__ == "__main__":
    main()
