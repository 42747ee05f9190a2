"""Compare quorum and mirrored queues, made from run directories: what kills, restarts and backlogs cost each of them.

.venv/bin/python -m rabbitmq_resilience.extensions.tables.queue_types reports/runs [MORE ...] > reports/comparison.md
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rabbitmq_resilience.extensions.tables import TEMPLATES
from rabbitmq_resilience.extensions.tables.run_verdicts import recorded
from rabbitmq_resilience.report.impact import longest_outage_s
from rabbitmq_resilience.report.markdown_tables import markdown
from rabbitmq_resilience.report.wording import NOTHING, short_verdict

KINDS = ("quorum", "mirrored")


class ComparedNumber(NamedTuple):
    """A column: the place of its number in verdict.json (an invariant and a name), and its format."""

    title: str
    invariant: str
    name: str
    text: Callable[[float], str]


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _seconds(value: float) -> str:
    return f"{value:.1f} s"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _megabytes(value: float) -> str:
    return f"{value / 1e6:,.0f} MB"


MEASURES = (
    ComparedNumber("Kept", "throughput", "kept_ratio", _percent),
    ComparedNumber("Stall", "availability", "stall_s", _seconds),
    ComparedNumber("Recovered", "recovery", "recovered_after_s", _seconds),
    ComparedNumber("Backlog", "backlog", "backlog_peak", _count),
    ComparedNumber("Drained", "backlog", "drained_after_s", _seconds),
    ComparedNumber("Memory", "", "memory_ratio_max", _percent),
    ComparedNumber("Replicated", "", "replicated_bytes", _megabytes),
)


@dataclass(frozen=True, order=True)
class ComparedScenario:
    """A row: one scenario on one topology and one version of the broker."""

    name: str
    topology: str
    version: str


def comparison(verdicts: Iterable[Mapping[str, Any]]) -> str:
    """Return the page as Markdown, made of the verdicts of measured runs, in the order of the runs."""
    rows: dict[ComparedScenario, dict[str, Mapping[str, Any]]] = {}
    for verdict in verdicts:
        kind = str(verdict.get("queue_type"))
        if verdict.get("numbers") and kind in KINDS:
            name = str(verdict.get("name") or verdict["title"])
            row = ComparedScenario(name, str(verdict["topology"]), str(verdict["broker_version"]))
            rows.setdefault(row, {})[kind] = verdict
    texts = (short_verdict, _outage, *map(_of, MEASURES))
    return markdown(
        TEMPLATES / "comparison.md.j2",
        measures=MEASURES,
        rows={row: [_pair(found, text) for text in texts] for row, found in sorted(rows.items())},
    )


def _pair(found: Mapping[str, Mapping[str, Any]], text: Callable[[Mapping[str, Any]], str]) -> list[str]:
    return [text(found[kind]) if kind in found else NOTHING for kind in KINDS]


def _outage(verdict: Mapping[str, Any]) -> str:
    length_s = longest_outage_s(verdict)
    return NOTHING if length_s is None else _seconds(length_s)


def _of(measure: ComparedNumber) -> Callable[[Mapping[str, Any]], str]:
    def text(verdict: Mapping[str, Any]) -> str:
        finding = (verdict.get("invariants") or {}).get(measure.invariant) or {}
        numbers = finding.get("numbers") if measure.invariant else verdict.get("numbers")
        value = (numbers or {}).get(measure.name)
        return measure.text(value) if isinstance(value, int | float) else NOTHING

    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare quorum and mirrored queues, as Markdown.")
    parser.add_argument("folders", nargs="+", type=Path, help="folders that hold run directories")
    print(comparison(recorded(parser.parse_args().folders)), end="")


if __name__ == "__main__":
    main()
