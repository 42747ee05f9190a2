"""What proves that a link came and went, by hand: five periods in 3 s, each of which has a cut."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.faults.fault import Proof
from rabbitmq_resilience.faults.flapping import FlappingInjection


def proven(*, cuts: int, ended_s: float, watched: int = 1, seen: bool = True) -> Proof:
    nothing: Any = None
    flapped: Any = FlappingInjection(nothing, frozenset(), period_s=0.6, for_s=3)
    flapped._cuts, flapped._ended_s = cuts, ended_s
    flapped._watched = [SimpleNamespace(prove=lambda: Proof(seen, "answered all the time"))] * watched
    told: Proof = flapped._prove_all()
    return told


@pytest.mark.parametrize("ended_s", [3.0, 4.9, 60.0])
def test_no_more_is_demanded_where_it_is_healed_late(ended_s: float) -> None:
    assert proven(cuts=4, ended_s=ended_s).proven
    told = proven(cuts=3, ended_s=ended_s)
    assert not told.proven
    assert told.detail.endswith("where a period of 0.6 s demands 5")


def test_less_is_demanded_where_it_is_ended_early() -> None:
    assert proven(cuts=1, ended_s=1.0).proven


def test_what_nobody_watched_or_nobody_felt_is_not_proven() -> None:
    assert proven(cuts=5, ended_s=3.0, watched=0).detail == "5 cuts in 3.0 s, and none of those that were to be watched"
    assert not proven(cuts=5, ended_s=3.0, watched=0).proven
    assert not proven(cuts=5, ended_s=3.0, watched=2, seen=False).proven
