"""Steps that make links slow: which are refused, as nobody could tell them apart or see them act."""

from __future__ import annotations

import pytest
import yaml

from rabbitmq_resilience.scenario import fault_file
from tests.messages import Messages
from tests.scenarios.test_fault_file import SANE, changed, refused


def test_latency_steps_that_may_meet_on_a_link(message: Messages) -> None:
    plain = changed(("schedule", 2), {**SANE["schedule"][1], "when": {"node_is": {"node": "b1", "state": "paused"}}})
    del plain["schedule"][2]["at_s"]
    told = refused(plain)
    message(told)
    assert "schedule[2].when: step 1 " in told
    assert "a1->c1" in told
    assert "a2->c1" in told


@pytest.mark.parametrize(
    ("links", "latency_ms", "most_ms"),
    [("a1 <-> b1", 6500, 6500), ("publisher:0 -> a1", 9500, 9500), ("zone:a -> zone:c", 6500, 6500)],
)
def test_latency_that_no_broker_would_wait_for(links: str, latency_ms: int, most_ms: int, message: Messages) -> None:
    step = {"at_s": 2, "for_s": 60, "fault": "latency", "links": links, "latency_ms": latency_ms}
    fault_file.parse(yaml.safe_dump(changed(("schedule",), [step])))
    for longer in ({"latency_ms": latency_ms + 1}, {"latency_ms": latency_ms - 9, "jitter_ms": 10}):
        told = refused(changed(("schedule",), [step | longer]))
        assert "schedule[0].latency_ms: " in told
        assert f" {most_ms} ms" in told
        message(told)


def test_latency_adds_to_that_of_the_network(message: Messages) -> None:
    topology = {"name": "apart", "zones": {"a": 2, "b": 2, "c": 1}}
    network = {"network": {"between_zones": {"latency_ms": 100, "jitter_ms": 10}}}
    step = {"at_s": 2, "for_s": 60, "fault": "latency", "links": "a1 <-> b1", "latency_ms": 6400}
    plain = changed(("schedule",), [step])
    fault_file.parse(yaml.safe_dump(plain | {"topology": topology}))
    told = refused(plain | {"topology": topology | network})
    message(told)
    assert "6390 ms" in told
    assert "a1->b1" in told
