"""A steady phase that does not come near its target: who kept it from that."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.checkers.throughput import Throughput
from rabbitmq_resilience.checkers.verdict import Verdict
from tests.invariants.literal import cluster, event, history, node_states, phases, publish, queues, us
from tests.messages import Messages


@pytest.mark.parametrize("in_flight", [1, 100])
def test_who_kept_the_steady_phase_from_its_target(in_flight: int, message: Messages) -> None:
    """Of 10 messages/s that were due 5 are sent, each as soon as the one before it is confirmed."""
    rows = [publish(n, n / 5) | {"due_us": us(n / 10), "outcome_us": us((n + 1) / 5)} for n in range(450)]
    events = [
        event(0, "worker", worker="publisher-0", event="connected", node="a1", detail="", life=0),
        event(0, "load", rate_per_s=10, variable_rate=[], publishers=1, in_flight=in_flight, begins_us=0),
    ]
    finding = Throughput().check(history(rows, (), [cluster(), queues("q1"), phases(), node_states(), *events]))
    assert finding.verdict is Verdict.UNKNOWN
    assert "5 of 10" in finding.summary
    assert ("97%" in finding.summary) is (in_flight == 100)
    message(finding.summary)
