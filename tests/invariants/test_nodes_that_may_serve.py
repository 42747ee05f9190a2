"""Nodes whose disks fail: they may die of it, stand still, or go on as if nothing was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.partition_mode import PartitionMode
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from tests.invariants.literal import cluster, deliver, fault, history, node_states, phases, publish, queues

Unlike = Mapping[str, Sequence[tuple[float, float, str]]]


def errors(*nodes: str, may_serve: bool = True) -> Any:
    return fault(20, 50, name="disk_errors", down=nodes, may_serve=may_serve)


def judged(*more: Any, unlike: Unlike | None = None, until_s: float = 60, kind: str = "quorum") -> Finding:
    """Judge pauses where a message is confirmed through a1 each second."""
    sent_s = [float(at_s) for at_s in range(5, int(until_s))]
    rows = [publish(number, at_s) for number, at_s in enumerate(sent_s)]
    arrived = [deliver(number, at_s + 0.1) for number, at_s in enumerate(sent_s)]
    members = ["a1"] if kind == "classic" else ["a1", "b1", "c1"]
    events = [cluster(), phases(), queues("q1", kind=kind, members=members), node_states(unlike=unlike), *more]
    return PartitionMode(margin_s=5).check(history(rows, arrived, events))


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_who_goes_on_may_confirm(kind: str) -> None:
    assert judged(errors("a1"), kind=kind).verdict is Verdict.VALID
    assert judged(errors("a1", may_serve=False), kind=kind).verdict is Verdict.INVALID


def test_who_sees_the_others_need_not_pause() -> None:
    assert judged(errors("b1", "c1")).verdict is Verdict.VALID


def test_who_died_is_away_from_then_on() -> None:
    dies: Unlike = {"a1": [(30, 52, "down")]}
    assert judged(errors("a1"), unlike=dies, until_s=29).verdict is Verdict.VALID
    assert judged(errors("a1"), unlike=dies, until_s=45).verdict is Verdict.INVALID


def test_a_queue_may_stand_still_with_its_only_node() -> None:
    """It is up, and nothing can be written there."""
    rows = [publish(number, float(at_s)) for number, at_s in enumerate([*range(5, 20), *range(52, 90)])]
    events = [cluster(), phases(), queues("q1", kind="classic", members=["b1"]), node_states(), errors("b1")]
    assert Availability(stall_s_max=15).check(history(rows, (), events)).verdict is Verdict.VALID
