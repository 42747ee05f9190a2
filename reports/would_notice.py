"""What the suite noticed of set-ups that truly break a promise, made from the run directories of ``pytest -m unsafe``.

.venv/bin/python -m reports.would_notice reports/runs [MORE ...] > docs/would-notice.md
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from reports.table import Platform, platform, recorded, table_line
from reports.words import NOTHING

#: How the titles of such scenarios begin.
UNSAFE = "Unsafe: "
CORPUS = Path(__file__).resolve().parent.parent / "faults" / "unsafe"

_HEAD = """# Would it notice?

Generated from run directories by `python -m reports.would_notice`. Each set-up of `faults/unsafe/` truly breaks a
promise, and `pytest -m unsafe` plays it on real brokers, up to three times until that was seen. Noticed: in how many of
all recorded runs the verdict was INVALID by the invariant that the file names, and by no other that it does not.
"""


def would_notice(verdicts: Iterable[Mapping[str, Any]], corpus: Iterable[str]) -> str:
    """Markdown, of verdicts in the order of their runs; ``corpus`` are the titles that there are."""
    rows: dict[str, dict[Platform, list[Mapping[str, Any]]]] = {title: {} for title in sorted(corpus)}
    for verdict in verdicts:
        if verdict["title"] in rows:
            rows[verdict["title"]].setdefault(platform(verdict), []).append(verdict)
    head = ("Set-up", "Broker", "Noticed", "By", "What the last such run said", "Why RabbitMQ may do so")
    lines = [
        _line(title, str(where), runs) for title, found in rows.items() for where, runs in sorted(found.items())
    ] + [_line(title, NOTHING, ()) for title, found in rows.items() if not found]
    seen = {title for title, found in rows.items() if any(map(_noticed, found.values()))}
    told = f"{len(seen)} of {len(rows)} set-ups were noticed."
    return "\n".join([_HEAD, told, "", table_line(head), table_line(["---"] * len(head)), *lines]) + "\n"


def _noticed(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [run for run in runs if run["verdict"] == "INVALID" and run["as_expected"]]


def _line(title: str, where: str, runs: Sequence[Mapping[str, Any]]) -> str:
    name, noticed = title.removeprefix(UNSAFE), _noticed(runs)
    if not runs:
        return table_line((name, where, "never played", *[NOTHING] * 3))
    count = f"{len(noticed)} of {len(runs)}"
    if not noticed:
        return table_line((name, where, count, *[NOTHING] * 3))
    last = noticed[-1]
    broken = {invariant: f for invariant, f in last["invariants"].items() if f["verdict"] == "INVALID"}
    said = "; ".join(str(finding["summary"]) for finding in broken.values())
    return table_line((name, where, count, ", ".join(broken), said, f"[reference]({last['reference']})"))


def corpus_titles(folder: Path = CORPUS) -> list[str]:
    """Of the fault files, without their parsing: a report knows no faults."""
    return [str(yaml.safe_load(file.read_text(encoding="utf-8"))["title"]) for file in sorted(folder.glob("*.yaml"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("folders", nargs="+", type=Path, help="folders that hold run directories")
    print(would_notice(recorded(parser.parse_args().folders), corpus_titles()), end="")


if __name__ == "__main__":
    main()
