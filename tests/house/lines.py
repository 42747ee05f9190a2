"""Count the lines of Python of each room of the package.

.venv/bin/python -m tests.house.lines > reports/lines.md
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.house.structure import PACKAGE, ROOMS, ROOT

#: The lines at commit 8407f5f, before the package was parted; rooms have the names that they have now.
BEFORE = {
    "plugin": 1866,
    "explore": 790,
    "runner": 1786,
    "scenario": 2128,
    "nemesis": 5227,
    "workload": 5703,
    "checkers": 10768,
    "report": 1793,
    "history": 2112,
    "sut": 7575,
    "tools": 2945,
    "modules without a room": 307,
    "extensions/sweeps": 4067,
    "extensions/jobs": 1019,
    "extensions/nights": 2002,
    "extensions/incidents": 1503,
    "extensions/tables": 999,
    "extensions/attached": 8083,
    "all": 60365,
}
_NOT_PARTED = {"model": "in others", "tap": "not there", "extensions/setup": "in `tools`", "the core": "not parted"}
_EXTENSIONS = ("sweeps", "jobs", "nights", "incidents", "tables", "attached", "setup")
_HEAD = """\
# Lines of the package, room by room

Lines of Python, with docstrings and blank lines: before the package was parted into a core and extensions (commit
8407f5f), and after. What one room had before may be in several now. [What is in each](../docs/what-is-where.md).
`python -m tests.house.lines` makes this page.

| room | before | after |
|---|---|---|
"""


def rooms() -> list[str]:
    """Return the names of the rows for rooms, from the top of the core, and then the extensions."""
    core = [room for level in ROOMS for room in sorted(level) if room != "extensions"]
    return [*core, "modules without a room", *(f"extensions/{name}" for name in _EXTENSIONS)]


def counted() -> Mapping[str, int]:
    """Return the lines of each room, of the core and of all."""
    found: Counter[str] = Counter()
    package = ROOT / PACKAGE
    for file in package.rglob("*.py"):
        lines = len(file.read_text(encoding="utf-8").splitlines())
        room = _room_of(file.relative_to(package))
        found[room] += lines
        found["all"] += lines
        if not room.startswith("extensions/"):
            found["the core"] += lines
    return found


def _room_of(file: Path) -> str:
    first, *rest = file.parts
    if not rest:
        return "modules without a room"
    if first == "extensions" and len(rest) > 1:
        return f"extensions/{rest[0]}"
    return "modules without a room" if first == "extensions" else first


def page() -> str:
    """Return the page as Markdown."""
    now = counted()
    rows = []
    for room in (*rooms(), "the core", "all"):
        before = f"{BEFORE[room]:,}" if room in BEFORE else _NOT_PARTED[room]
        rows.append(f"| {room} | {before} | {now[room]:,} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    print(page(), end="")
