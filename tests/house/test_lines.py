"""The page of lines has each room. Its numbers are of the commit at which it was made."""

from __future__ import annotations

from tests.house.lines import counted, page, rooms
from tests.house.structure import ROOT


def heads(text: str) -> list[str]:
    """Return the first cell of each row."""
    return [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]


def test_each_line_of_the_package_is_in_one_room() -> None:
    found = counted()
    assert set(rooms()) == found.keys() - {"the core", "all"}
    assert sum(found[room] for room in rooms()) == found["all"]


def test_the_page_that_is_kept_has_the_same_rooms() -> None:
    assert heads((ROOT / "reports" / "lines.md").read_text(encoding="utf-8")) == heads(page())
