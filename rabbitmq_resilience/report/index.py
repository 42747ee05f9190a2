"""Write the page of all runs: newest first, with throughput, recovery and outages of each scenario over time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rabbitmq_resilience.history.run_directory import RunDirectory, RunDirectoryError
from rabbitmq_resilience.history.whole_files import write_whole
from rabbitmq_resilience.report.html import render
from rabbitmq_resilience.report.impact import longest_outage_s
from rabbitmq_resilience.report.wording import WORDS, duration_text, expectation_text, verdict_word
from rabbitmq_resilience.tools.percentages import percent_text

INDEX_FILE = "index.html"
VERDICTS_SHOWN = 20
SPARK_WIDTH, SPARK_HEIGHT = 120, 26


@dataclass(frozen=True)
class RunRow:
    """A run as the index shows it; texts are empty if nothing is known."""

    run: RunDirectory
    verdict: Mapping[str, Any]
    trouble: str

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def scenario(self) -> str:
        return str(self.verdict.get("title") or re.sub(r"^\d{8}T\d{6}Z-|-\d+$", "", self.name))

    @property
    def link(self) -> str:
        target = self.run.report if self.run.report.exists() else self.run.path
        return str(target.relative_to(self.run.path.parent))

    @property
    def word(self) -> str:
        return verdict_word(self.verdict)

    @property
    def expectation(self) -> str:
        return expectation_text(self.verdict)

    @property
    def duration(self) -> str:
        duration_s = self.verdict.get("duration_s")
        return duration_text(float(duration_s)) if isinstance(duration_s, int | float) else ""

    @property
    def throughput_ratio(self) -> float | None:
        """Return the throughput during faults divided by that of the steady phase; None if not known."""
        return _number(self.verdict, "throughput", "ratio")

    @property
    def kept(self) -> str:
        """Return ``throughput_ratio`` as text."""
        return "" if self.throughput_ratio is None else percent_text(self.throughput_ratio)

    @property
    def outage_s(self) -> float | None:
        """Return the longest outage of a queue in seconds; None if not known."""
        return longest_outage_s(self.verdict)

    @property
    def outage(self) -> str:
        return "" if self.outage_s is None else _seconds(self.outage_s)

    @property
    def recovery_s(self) -> float | None:
        return _number(self.verdict, "recovery", "recovered_after_s")

    @property
    def recovery(self) -> str:
        return "" if self.recovery_s is None else _seconds(self.recovery_s)


@dataclass(frozen=True)
class Sparkline:
    """A curve from 0 up to the highest value, as points of a picture, with its last value as text."""

    points: Sequence[tuple[float, float]]
    last: str
    width: int = SPARK_WIDTH
    height: int = SPARK_HEIGHT


@dataclass(frozen=True)
class ScenarioRuns:
    """The results of the runs of one scenario, from the oldest to the newest."""

    title: str
    runs: int
    words: Sequence[str]
    kept: Sparkline | None
    recovery: Sparkline | None
    outage: Sparkline | None


def write_index(runs_root: Path) -> Path:
    """Write ``index.html`` into ``runs_root`` and return its path. A run without a verdict is listed as such."""
    folders = (path for path in runs_root.iterdir() if path.is_dir() and not path.name.startswith("."))
    runs = [_row(RunDirectory(folder)) for folder in sorted(folders, key=_age)]
    words = Counter(run.word for run in runs)
    counts = {word: words[word] for word in WORDS}
    write_whole(runs_root / INDEX_FILE, render("index.html", counts=counts, trends=_trends(runs), runs=runs))
    return runs_root / INDEX_FILE


def renew_index(runs_root: Path) -> None:
    """Write ``index.html`` again if it exists, after a run was judged again."""
    if (runs_root / INDEX_FILE).exists():
        write_index(runs_root)


def _age(folder: Path) -> tuple[str, str, int]:
    """Return the time, the name, and the number among runs that share both, as a key for sorting."""
    time, _, name = folder.name.partition("-")
    name, _, number = name.rpartition("-") if re.search(r"-\d+$", name) else (name, "", "1")
    return time, name, int(number)


def _row(run: RunDirectory) -> RunRow:
    try:
        return RunRow(run, run.read_verdict(), "")
    except RunDirectoryError as error:
        return RunRow(run, {}, str(error))


def _number(verdict: Mapping[str, Any], invariant: str, name: str) -> float | None:
    finding = (verdict.get("invariants") or {}).get(invariant) or {}
    value = (finding.get("numbers") or {}).get(name)
    return float(value) if isinstance(value, int | float) else None


def _trends(rows: Iterable[RunRow]) -> list[ScenarioRuns]:
    scenarios: dict[str, list[RunRow]] = {}
    for row in rows:
        scenarios.setdefault(row.scenario, []).append(row)
    repeated = {title: runs for title, runs in scenarios.items() if len(runs) > 1}  # one run shows no trend
    return [
        ScenarioRuns(
            title=title,
            runs=len(runs),
            words=[run.word for run in runs[-VERDICTS_SHOWN:]],
            kept=_trend([run.throughput_ratio for run in runs], percent_text),
            recovery=_trend([run.recovery_s for run in runs], _seconds),
            outage=_trend([run.outage_s for run in runs], _seconds),
        )
        for title, runs in sorted(repeated.items())
    ]


def _trend(values: Iterable[float | None], text: Callable[[float], str]) -> Sparkline | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    top, steps = max(*known, 1e-9), max(len(known) - 1, 1)
    points = [
        (3 + i * (SPARK_WIDTH - 6) / steps, SPARK_HEIGHT - 3 - max(value, 0) / top * (SPARK_HEIGHT - 6))
        for i, value in enumerate(known)
    ]
    return Sparkline(points, text(known[-1]))


def _seconds(value_s: float) -> str:
    return f"{value_s:.1f} s"
