"""One run as one page: self-contained, offline, verdict first.

Whatever a fault file or a broker said is escaped, and the page's own policy lets no script run but the one whose hash
it names, and nothing be loaded from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from reports.charts import charts
from reports.commands import recheck_command, rerun_command
from reports.history import HistoryError
from reports.run_directory import RunDirectory, RunDirectoryError, write_whole
from reports.series import Series, series
from reports.timeline import FaultWindow
from reports.words import NOTHING, duration_text, expectation_text, number_text, verdict_word

ASSETS = Path(__file__).parent / "assets"

#: More faults than these are folded away, but for those that are in doubt.
FAULTS_SHOWN_MAX = 30

MEANINGS = {
    "VALID": "Every promise held.",
    "INVALID": "A promise was broken.",
    "UNKNOWN": "This run cannot tell.",
}


def write_page(run: RunDirectory) -> Path:
    """Write ``report.html`` from whatever the run left, complete or not, and return its path.

    Without a verdict, or with a damaged history, the page says so and shows the rest.
    """
    troubles: list[str] = []
    try:
        verdict = run.read_verdict()
    except RunDirectoryError as error:
        verdict = {}
        troubles.append(str(error))
    try:
        seen = series(run.publishes, run.deliveries, run.events(), run.metrics)
    except (HistoryError, OSError, ValueError, KeyError, TypeError) as error:
        seen = series(tuple, tuple, [])
        troubles.append(f"The record of this run is damaged and is not drawn: {error}")
    write_whole(run.report, _page(run, verdict, seen, troubles))
    return run.report


def _page(run: RunDirectory, verdict: Mapping[str, Any], seen: Series, troubles: Iterable[str]) -> str:
    word = verdict_word(verdict)
    script = (ASSETS / "report.js").read_text(encoding="utf-8")
    return Template((ASSETS / "report.html").read_text(encoding="utf-8")).substitute(
        style=(ASSETS / "report.css").read_text(encoding="utf-8"),
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        script=f'<script type="application/json" id="run-data">{_script_data(charts(seen))}</script>\n'
        f"<script>{script}</script>",
        verdict=word,
        word=word,
        meaning=escape(_meaning(word, verdict)),
        title=escape(str(verdict.get("title") or run.name)),
        reasons=_reasons(verdict, troubles),
        facts=_facts(verdict, seen),
        invariants=_findings(verdict.get("invariants")),
        assumptions=_findings(verdict.get("assumptions")),
        timeline=_timeline(seen),
        faults=_faults(seen.timeline.faults),
        commands=_commands(run, verdict),
        fault_file=escape(_text(run.fault_file) or "This run left no fault.yaml."),
        files=_files(run),
    )


def _script_data(data: Mapping[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _meaning(word: str, verdict: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (MEANINGS[word], expectation_text(verdict))))


def _reasons(verdict: Mapping[str, Any], troubles: Iterable[str]) -> str:
    """The summaries of all that did not hold, and what else is worth telling: the first thing to read."""
    reasons = [
        f"<b>{escape(name)}</b>: {escape(str(finding.get('summary', '')))}"
        for kind in ("assumptions", "invariants")
        for name, finding in (verdict.get(kind) or {}).items()
        if verdict_word(finding) != "VALID" and verdict_word(finding) == verdict_word(verdict)
    ]
    items = "".join(
        f"<li>{reason}</li>" for reason in [*map(escape, troubles), *reasons, *map(escape, verdict.get("notes") or ())]
    )
    return f"<ul>{items}</ul>" if items else ""


def _facts(verdict: Mapping[str, Any], seen: Series) -> str:
    told = {
        "Broker": verdict.get("broker_version"),
        "Upgraded to": ", ".join(verdict.get("upgraded_to") or ()) or None,
        "Driver": verdict.get("driver"),
        "Seed": verdict.get("seed"),
        "Reference": verdict.get("reference"),
        "Started": verdict.get("started_at"),
        "Duration": duration_text(float(verdict.get("duration_s") or seen.duration_s)),
        "Sent": f"{seen.totals['sent']:,}",
        "Confirmed": f"{seen.totals['confirmed']:,}",
        "Received": f"{seen.totals['received']:,}",
    }
    return "".join(
        f"<div><dt>{name}</dt><dd>{escape(str(value))}</dd></div>" for name, value in told.items() if value is not None
    )


def _findings(findings: Mapping[str, Mapping[str, Any]] | None) -> str:
    if not findings:
        return '<p class="quiet">None was judged.</p>'
    worst_first = sorted(
        findings.items(), key=lambda item: ("INVALID", "UNKNOWN", "VALID").index(verdict_word(item[1]))
    )
    return f'<div class="findings">{"".join(_finding(name, finding) for name, finding in worst_first)}</div>'


def _finding(name: str, finding: Mapping[str, Any]) -> str:
    word = verdict_word(finding)
    numbers = "".join(
        "<span>{} <b>{}</b></span>".format(*map(escape, number_text(key, value)))
        for key, value in (finding.get("numbers") or {}).items()
    )
    examples = "".join(f"<li>{escape(str(example))}</li>" for example in finding.get("examples") or ())
    shown = " open" if word == "INVALID" else ""
    return (
        f'<div class="finding {word}"><span class="chip">{word}</span><span class="name">{escape(name)}</span>'
        f'<div class="what">{escape(str(finding.get("summary", "")))}'
        + (f'<div class="numbers">{numbers}</div>' if numbers else "")
        + (f"<details{shown}><summary>Examples</summary><ol>{examples}</ol></details>" if examples else "")
        + "</div></div>"
    )


def _timeline(seen: Series) -> str:
    if not charts(seen)["panels"]:
        return '<p class="quiet">Nothing was recorded.</p>'
    return (
        '<p class="hint">Shaded: a fault is active. Dashed: a phase begins. Drag to zoom, '
        '<button id="reset" type="button">show all</button> or double-click to go back.</p>'
        '<div class="timeline" id="timeline"><div id="tip"></div></div>'
    )


def _faults(faults: Sequence[FaultWindow]) -> str:
    if not faults:
        return '<p class="quiet">No fault was injected.</p>'
    if len(faults) <= FAULTS_SHOWN_MAX:
        return _fault_table(faults)
    doubtful = [f for f in faults if f.skipped or not (f.healed and f.proven and f.heal_proven)]
    all_of_them = f"<details><summary>All {len(faults)} faults</summary>{_fault_table(faults)}</details>"
    if not doubtful:
        return '<p class="quiet">Every fault and its healing was proven.</p>' + all_of_them
    shown = doubtful[:FAULTS_SHOWN_MAX]
    told = f'<p class="quiet">{len(doubtful)} of {len(faults)} faults are in doubt.</p>'
    return told + _fault_table(shown) + all_of_them


def _fault_table(faults: Iterable[FaultWindow]) -> str:
    rows = "".join(map(_fault_row, faults))
    heads = ("Step", "Fault", "What", "Injected", "Healed", "Lasted", "Injection", "Healing")
    numeric = {"Injected", "Healed", "Lasted"}
    head = "".join(f'<th class="number">{h}</th>' if h in numeric else f"<th>{h}</th>" for h in heads)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _fault_row(fault: FaultWindow) -> str:
    times = [f"{fault.start_s:.1f} s", f"{fault.end_s:.1f} s", f"{fault.end_s - fault.start_s:.1f} s"]
    if not fault.healed:
        times[1] = '<span class="bad">never</span>'
    injection, healing = _proof(fault.proven, fault.proof), _proof(fault.heal_proven, fault.heal_proof)
    if fault.skipped:
        times, injection, healing = [NOTHING] * 3, f'<span class="doubt">{escape(fault.proof)}</span>', NOTHING
    cells = "".join(f'<td class="number">{time}</td>' for time in times)
    return (
        f"<tr><td>{fault.step}</td><td><b>{escape(fault.fault)}</b></td><td>{escape(fault.detail)}</td>"
        f"{cells}<td>{injection}</td><td>{healing}</td></tr>"
    )


def _proof(proven: bool | None, how: str) -> str:
    if proven is None:
        return NOTHING
    word = '<span class="good">proven</span>' if proven else '<span class="doubt">not proven</span>'
    return f'{word}<br><small class="quiet">{escape(how)}</small>' if how else word


def _commands(run: RunDirectory, verdict: Mapping[str, Any]) -> str:
    commands = {
        "The same run": str(verdict.get("rerun") or rerun_command(run.path)),
        "Judge it again": recheck_command(run.path),
    }
    return "".join(
        f'<div class="command"><span>{name}</span><code>{escape(command)}</code>'
        '<button class="copy" type="button">Copy</button></div>'
        for name, command in commands.items()
    )


def _files(run: RunDirectory) -> str:
    files = [file for file in (run.verdict_file, run.events_file, run.fault_file) if file.exists()]
    files += sorted(file for file in run.logs.glob("**/*") if file.is_file())
    files += sorted(file for file in run.history.glob("*.log") if file.stat().st_size)
    links = [
        f'<a href="{escape(quote(name))}">{escape(name)}</a>' for name in (str(f.relative_to(run.path)) for f in files)
    ]
    return f"<p>{' · '.join(links)}</p>" if links else '<p class="quiet">This run left none.</p>'


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
