"""What explains lost messages of mirrored queues: a moment at which all nodes with a copy were away."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.scenario.expectations import Expectation
from tests.invariants.literal import cluster, deliver, history, node_states, phases, publish, queues

BY_DESIGN = Expectation(
    broker="", verdict=Verdict.INVALID, invariant="no_loss", trace="all_mirrors_were_away", documentation="settings"
)
AWAY = {"a1": [(20, 40, "paused")], "b1": [(25, 45, "down")], "c1": [(30, 50, "paused")]}


def lost(at_s: float, *, kind: str = "mirrored", away: Any = AWAY) -> Finding:
    """Judge a run in which the message of ``at_s`` is lost; all three nodes are away from 30 to 40 s."""
    events = [cluster(), queues("q1", kind=kind), phases(), node_states(unlike=away)]
    return NoLoss().check(history([publish(0), publish(1, at_s)], [deliver(0)], events))


@pytest.mark.parametrize(("at_s", "explained"), [(10, True), (39, True), (41, False)])
def test_a_moment_without_any_copy_explains_what_was_sent_before(at_s: float, explained: bool) -> None:
    finding = lost(at_s)
    assert finding.verdict is Verdict.INVALID
    assert finding.numbers["lost_with_a_mirror_up"] == (not explained)
    assert BY_DESIGN.is_shown_by({"no_loss": finding}, tuple) is explained


def test_one_copy_that_stayed_up_explains_nothing() -> None:
    assert lost(10, away={"a1": AWAY["a1"], "b1": AWAY["b1"]}).numbers["lost_with_a_mirror_up"] == 1
    one_after_another = {"a1": [(20, 30, "down")], "b1": [(30, 40, "down")], "c1": [(40, 50, "down")]}
    assert lost(10, away=one_after_another).numbers["lost_with_a_mirror_up"] == 1


def test_other_queues_have_no_such_number() -> None:
    finding = lost(10, kind="quorum")
    assert "lost_with_a_mirror_up" not in finding.numbers
    assert not BY_DESIGN.is_shown_by({"no_loss": finding}, tuple)
