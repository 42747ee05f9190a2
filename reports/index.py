"""All runs on one page: newest first, and how throughput and recovery of each scenario went over time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from reports.page import ASSETS
from reports.run_directory import RunDirectory, RunDirectoryError, write_whole
from reports.words import NOTHING, WORDS, duration_text, expectation_text, verdict_word

INDEX_FILE = "index.html"
VERDICTS_SHOWN = 20
SPARK_WIDTH, SPARK_HEIGHT = 120, 26


@dataclass(frozen=True)
class _Row:
    """One run as the index shows it; ``kept_ratio`` is the throughput under faults against the steady one."""

    run: RunDirectory
    verdict: Mapping[str, Any]
    trouble: str

    @property
    def scenario(self) -> str:
        return str(self.verdict.get("title") or re.sub(r"^\d{8}T\d{6}Z-|-\d+$", "", self.run.name))

    @property
    def kept_ratio(self) -> float | None:
        return _number(self.verdict, "throughput", "ratio")

    @property
    def recovery_s(self) -> float | None:
        return _number(self.verdict, "recovery", "recovered_after_s")


def write_index(runs_root: Path) -> Path:
    """Write ``index.html`` into ``runs_root`` and return its path. A run without a verdict is listed as such."""
    folders = (path for path in runs_root.iterdir() if path.is_dir() and not path.name.startswith("."))
    rows = [_row(RunDirectory(folder)) for folder in sorted(folders, key=_age)]
    words = Counter(verdict_word(row.verdict) for row in rows)
    page = Template((ASSETS / "index.html").read_text(encoding="utf-8")).substitute(
        style=(ASSETS / "report.css").read_text(encoding="utf-8"),
        count=f"{len(rows)} runs: " + ", ".join(f"{words[word]} {word}" for word in WORDS),
        trends=_trends(rows),
        runs=_table(
            ("Verdict", "Run", "Broker", "Driver", "Seed", "Duration", "Throughput kept", "Recovery"),
            (_run_cells(row) for row in reversed(rows)),
        ),
    )
    write_whole(runs_root / INDEX_FILE, page)
    return runs_root / INDEX_FILE


def _age(folder: Path) -> tuple[str, str, int]:
    """Time, name, and which of those that share both."""
    time, _, name = folder.name.partition("-")
    name, _, number = name.rpartition("-") if re.search(r"-\d+$", name) else (name, "", "1")
    return time, name, int(number)


def _row(run: RunDirectory) -> _Row:
    try:
        return _Row(run, run.read_verdict(), "")
    except RunDirectoryError as error:
        return _Row(run, {}, str(error))


def _number(verdict: Mapping[str, Any], invariant: str, name: str) -> float | None:
    finding = (verdict.get("invariants") or {}).get(invariant) or {}
    value = (finding.get("numbers") or {}).get(name)
    return float(value) if isinstance(value, int | float) else None


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """``rows`` are cells of ready HTML."""
    head = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    if not body:
        return '<p class="quiet">There is no run yet.</p>'
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _run_cells(row: _Row) -> list[str]:
    word, verdict = verdict_word(row.verdict), row.verdict
    target = row.run.report if row.run.report.exists() else row.run.path
    link = quote(str(target.relative_to(row.run.path.parent)))
    title = escape(row.scenario)
    duration_s = verdict.get("duration_s")
    return [
        f'<span class="chip {word}">{word}</span>{_whether_expected(verdict)}',
        f'<a href="{link}">{title}</a><br><small class="quiet">{escape(row.trouble or row.run.name)}</small>',
        *(escape(str(verdict.get(key, NOTHING))) for key in ("broker_version", "driver", "seed")),
        f'<span class="short">{duration_text(float(duration_s))}</span>'
        if isinstance(duration_s, int | float)
        else NOTHING,
        _percent(row.kept_ratio),
        _seconds(row.recovery_s),
    ]


def _whether_expected(verdict: Mapping[str, Any]) -> str:
    told = expectation_text(verdict)
    return f'<br><small class="quiet">{escape(told)}</small>' if told else ""


def _trends(rows: Sequence[_Row]) -> str:
    scenarios: dict[str, list[_Row]] = {}
    for row in rows:
        scenarios.setdefault(row.scenario, []).append(row)
    return _table(
        ("Scenario", "Runs", "Verdicts", "Throughput kept", "Recovery"),
        (
            [
                escape(scenario),
                str(len(runs)),
                _dots(runs[-VERDICTS_SHOWN:]),
                _trend([run.kept_ratio for run in runs], _percent),
                _trend([run.recovery_s for run in runs], _seconds),
            ]
            for scenario, runs in sorted(scenarios.items())
        ),
    )


def _dots(rows: Iterable[_Row]) -> str:
    """One mark a run; its shape differs as well as its colour."""
    words = [verdict_word(row.verdict) for row in rows]
    return f'<div class="dots">{"".join(f"""<i class="{word}" title="{word}"></i>""" for word in words)}</div>'


def _trend(values: Sequence[float | None], text: Any) -> str:
    known = [value for value in values if value is not None]
    return f'<div class="trend">{_sparkline(known)}{text(known[-1])}</div>' if known else NOTHING


def _sparkline(values: Sequence[float]) -> str:
    """A curve from 0 up to the highest value, its last point marked."""
    top, steps = max(*values, 1e-9) if len(values) > 1 else max(values[0], 1e-9), max(len(values) - 1, 1)
    points = [
        (3 + i * (SPARK_WIDTH - 6) / steps, SPARK_HEIGHT - 3 - max(value, 0) / top * (SPARK_HEIGHT - 6))
        for i, value in enumerate(values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    return (
        f'<svg class="spark" width="{SPARK_WIDTH}" height="{SPARK_HEIGHT}" aria-hidden="true">'
        f'<polyline points="{line}"/><circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"/></svg>'
    )


def _percent(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.0%}"


def _seconds(value_s: float | None) -> str:
    return NOTHING if value_s is None else f"{value_s:.1f} s"
