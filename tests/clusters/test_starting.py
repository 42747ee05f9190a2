"""The order in which nodes are started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.sut.starting import start_in_turns

NAMES = ("a1", "a2", "b1", "c1")


class Recorded:
    """The place of a node, which boots as soon as ``check`` was called twice more."""

    def __init__(self, name: str, started: list[str], looks: list[None]) -> None:
        self._name, self._started, self._looks = name, started, looks
        self._since = len(looks)

    def start(self) -> None:
        self._started.append(self._name)
        self._since = len(self._looks)

    @property
    def has_booted(self) -> bool:
        assert self._name in self._started, "a node that was not started has no output to look at"
        return len(self._looks) > self._since + 1


def started(release: tuple[int, int], ram_nodes: tuple[str, ...], joining: Path) -> tuple[list[str], int]:
    """The order of the starts, and how often it was looked."""
    looks: list[None] = []
    order: list[str] = []
    brokers: Any = {name: Recorded(name, order, looks) for name in NAMES}
    start_in_turns(
        brokers, release=release, ram_nodes=ram_nodes, joining=joining, check=lambda: looks.append(None), timeout_s=5
    )
    return order, len(looks)


def test_all_at_once_where_rabbitmq_chooses_the_first(tmp_path: Path) -> None:
    assert started((4, 0), (), tmp_path) == ([*NAMES], 1)


@pytest.mark.core
@pytest.mark.parametrize("ram_nodes", [("a1", "a2"), ("b1",), ("c1", "a1")])
def test_ram_nodes_are_started_when_the_others_have_booted(ram_nodes: tuple[str, ...], tmp_path: Path) -> None:
    order, looks = started((4, 0), ram_nodes, tmp_path)
    others = len(NAMES) - len(ram_nodes)
    assert set(order[:others]) == {*NAMES} - {*ram_nodes}
    assert looks == 3, "the others had booted at the third look"


def test_in_the_order_of_the_topology_where_they_join_in_order(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).touch()
    assert started((3, 10), ("a1",), tmp_path)[0] == [*NAMES]
