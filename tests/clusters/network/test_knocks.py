"""Answers to many tried connections belong to the links over which they came."""

from __future__ import annotations

from collections.abc import Sequence

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.sut.network.knocks import knocked

A_TO_B, A_TO_C, B_TO_A = Link("a1", "b1"), Link("a1", "c1"), Link("b1", "a1")
PORTS = {"a1": 25671, "b1": 25672, "c1": 25672}


def test_each_source_knocks_once_at_all_targets_of_a_port() -> None:
    asked: dict[str, Sequence[str]] = {}

    def run(source: str, words: Sequence[str]) -> str:
        asked[source] = words
        return "at-b1 1500\nat-b1 500\n" if source == "a1" else ""

    took = knocked(
        [A_TO_B, A_TO_C, B_TO_A],
        times=2,
        at_once=1,
        wait_s=0.5,
        counts="any",
        end_of=lambda link: (f"at-{link.target}", PORTS[link.target]),
        run=run,
    )
    assert took == {A_TO_B: [1.5, 0.5], A_TO_C: [], B_TO_A: []}
    assert asked == {
        "a1": ("25672", "2", "1", "500", "any", "at-b1", "at-c1"),
        "b1": ("25671", "2", "1", "500", "any", "at-a1"),
    }
