"""What facts make of events: here, which cuts part brokers."""

from __future__ import annotations

from typing import Any

import pytest

from invariants.facts import Facts


def cut(*links: list[str]) -> dict[str, Any]:
    effect = {"nodes_down": [], "links_cut": list(links), "links_slow": []}
    return {"t_us": 1, "kind": "fault", "step": 0, "fault": "partition", "state": "injected", "effect": effect}


@pytest.mark.parametrize(
    ("links", "parted"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([["a1", "b1"]], [("a1", "b1")], id="one_way"),
        pytest.param([["a1", "b1"], ["b1", "a1"]], [("a1", "b1")], id="both_ways"),
        pytest.param([["publisher:0", "a1"], ["a1", "publisher:0"]], [], id="client_alone"),
        pytest.param([["b1", "consumer:1"], ["a1", "b1"]], [("a1", "b1")], id="client_and_brokers"),
    ],
)
def test_a_cut_parts_brokers_and_a_client_is_none(links: list[list[str]], parted: list[tuple[str, str]]) -> None:
    (step,) = Facts([cut(*links)]).steps
    assert step.cut == set(map(frozenset, parted))
