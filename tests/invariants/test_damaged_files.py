"""Losses after a stored file was damaged: permitted where no majority of whole copies is known to have the message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from tests.invariants.literal import (
    THREE,
    cluster,
    deliver,
    event,
    fault,
    history,
    node_states,
    phases,
    publish,
    queues,
    us,
)
from tests.messages import Messages

Damage = tuple[float, float, str]
STATES = ("injecting", "injected", "proven", "healing", "healed", "heal_proven")


def judged(
    sent_s: Sequence[float],
    lost: Sequence[int],
    *damages: Damage,
    kind: str = "quorum",
    states: Sequence[str] = STATES,
    of_type: str = "",
    emptied: bool = False,
    more: Sequence[Any] = (),
) -> Finding:
    """Judge a run in which messages were sent at ``sent_s``, of which those in ``lost`` never arrived. Each node is
    damaged, or emptied, from when to when, and up 2 s after that."""
    steps = [
        fault(
            start_s,
            end_s,
            step=number,
            name="lose_disk" if emptied else "damage_file",
            down=[node],
            damaged=[] if emptied else [node],
            emptied=[node] if emptied else [],
            type_damaged=of_type,
            states=states,
        )
        for number, (start_s, end_s, node) in enumerate(damages)
    ]
    away = {node: [(start_s, end_s + 2, "down")] for start_s, end_s, node in damages}
    members = THREE if kind != "classic" else ["b1"]
    events = [cluster(), queues("q1", kind=kind, members=members), phases(), node_states(unlike=away), *steps, *more]
    rows = [publish(number, at_s) for number, at_s in enumerate(sent_s)]
    arrived = [deliver(number, at_s + 0.1) for number, at_s in enumerate(sent_s) if number not in lost]
    return NoLoss().check(history(rows, arrived, events))


ONE = (20, 40, "b1")


@pytest.mark.parametrize(
    ("kind", "sent_s", "verdict"),
    [
        ("quorum", (1, 5, 30, 50), Verdict.INVALID),
        ("quorum", (1, 5, 50), Verdict.VALID),
        ("mirrored", (1, 5, 30, 50), Verdict.INVALID),
        ("mirrored", (1, 5, 50), Verdict.VALID),
        ("classic", (1, 5, 50), Verdict.VALID),
    ],
)
def test_a_confirm_without_the_node_shows_another_copy(kind: str, sent_s: Sequence[float], verdict: Verdict) -> None:
    """A classic queue has none."""
    finding = judged(sent_s, [1], ONE, kind=kind)
    assert (finding.verdict, finding.numbers["lost"]) == (verdict, int(verdict is Verdict.INVALID))


@pytest.mark.parametrize(("kind", "sent_s"), [("quorum", 80), ("classic", 80), ("classic", 42.5)])
def test_what_is_sent_after_the_node_is_up_again_is_not_lost_by_it(kind: str, sent_s: float) -> None:
    assert judged((1, sent_s, 85), [1], ONE, kind=kind).verdict is Verdict.INVALID


def test_copies_that_were_damaged_before_are_no_majority() -> None:
    """The log of a member that was damaged earlier lists messages that it may no longer have."""
    sent_s = (1, 20, 35, 80)
    twice = judged(sent_s, [0], (15, 25, "a1"), (30, 40, "b1"))
    assert (twice.verdict, twice.numbers["lost_permitted"]) == (Verdict.VALID, 1)
    assert judged(sent_s, [0], (15, 25, "a1"), (30, 40, "a1")).verdict is Verdict.INVALID


def test_a_message_that_was_only_written_shows_no_majority() -> None:
    rates = {"rate_per_s": 1, "variable_rate": [], "processing_ms": 0, "variable_processing": [], "priorities": []}
    load = event(0, "load", begins_us=us(0), **rates, publishers=1, in_flight=None)
    finding = judged((1, 5, 30, 50), [1], ONE, more=[load])
    assert (finding.verdict, finding.numbers["lost_permitted"]) == (Verdict.VALID, 1)


def test_a_step_that_failed_may_have_damaged_a_file() -> None:
    finding = judged((1, 5, 50), [1], ONE, states=("injecting", "unproven", "healing", "healed"))
    assert "b1 may have been damaged" in finding.summary


@pytest.mark.parametrize(
    ("kind", "of_type", "verdict"),
    [
        ("quorum", "quorum", Verdict.VALID),
        ("quorum", "classic", Verdict.INVALID),
        ("classic", "classic", Verdict.VALID),
        ("classic", "quorum", Verdict.INVALID),
    ],
)
def test_a_damaged_file_takes_nothing_from_queues_of_another_type(kind: str, of_type: str, verdict: Verdict) -> None:
    assert judged((1, 5, 50), [1], ONE, kind=kind, of_type=of_type).verdict is verdict


@pytest.mark.parametrize(
    ("kind", "sent_s", "verdict"),
    [
        ("quorum", (1, 5, 30, 50), Verdict.INVALID),
        ("quorum", (1, 5, 50), Verdict.VALID),
        ("classic", (1, 5, 30, 50), Verdict.VALID),
    ],
)
def test_an_emptied_node_takes_what_it_alone_may_have_had(
    kind: str, sent_s: Sequence[float], verdict: Verdict, message: Messages
) -> None:
    finding = judged(sent_s, [1], ONE, kind=kind, emptied=True)
    assert finding.verdict is verdict
    message(finding.summary)


def test_a_node_that_was_emptied_before_is_whole_again() -> None:
    """It lists nothing that it does not have, so a majority with it has all that came before."""
    assert judged((1, 20, 35, 80), [0], (15, 25, "a1"), (30, 40, "b1"), emptied=True).verdict is Verdict.INVALID
