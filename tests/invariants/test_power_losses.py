"""Which lost messages a power cut explains: those sent before it, to queues on a node without power."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.scenario.expectations import Expectation
from tests.invariants.literal import cluster, deliver, fault, history, phases, publish, queues

LOST_BY_DESIGN = Expectation(
    broker="", verdict=Verdict.INVALID, invariant="no_loss", trace="loses_with_power", documentation="settings"
)


def lost(at_s: float, *, holder: str = "b1", name: str = "power_cut") -> Finding:
    """Judge a run in which the message of ``at_s`` is lost, and b1 loses power from 20 s on."""
    events = [
        cluster(),
        queues("q1", kind="classic", members=[holder]),
        phases(),
        fault(20, 40, name=name, down=["b1"]),
    ]
    return NoLoss().check(history([publish(0), publish(1, at_s)], [deliver(0)], events))


@pytest.mark.parametrize(("at_s", "holder", "explained"), [(19, "b1", True), (21, "b1", False), (19, "a1", False)])
def test_a_power_cut_explains_what_a_node_without_power_had(at_s: float, holder: str, explained: bool) -> None:
    finding = lost(at_s, holder=holder)
    assert (finding.verdict, finding.numbers["lost"]) == (Verdict.INVALID, 1)
    assert finding.numbers["lost_without_power_cut"] == (not explained)
    assert LOST_BY_DESIGN.is_shown_by({"no_loss": finding}, tuple) is explained


def test_without_a_power_cut_none_explains_a_loss() -> None:
    finding = lost(19, name="kill")
    assert "lost_without_power_cut" not in finding.numbers
    assert not LOST_BY_DESIGN.is_shown_by({"no_loss": finding}, tuple)


def test_what_was_never_sent_is_no_loss_by_a_power_cut() -> None:
    events = [
        cluster(),
        queues("q1", kind="classic", members=["b1"]),
        phases(),
        fault(20, 40, name="power_cut", down=["b1"]),
    ]
    finding = NoLoss().check(history([publish(0), publish(1, 19)], [deliver(0), deliver(7)], events))
    assert not LOST_BY_DESIGN.is_shown_by({"no_loss": finding}, tuple)
