"""Steps that make links slow: which are refused, as nobody could tell them apart or see them act."""

from __future__ import annotations

import pytest
import yaml

from rabbitmq_resilience.scenarios import fault_file
from tests.scenarios.test_fault_file import SANE, changed, refused


def test_latency_steps_that_may_meet_on_a_link() -> None:
    plain = changed(("schedule", 2), {**SANE["schedule"][1], "when": {"node_is": {"node": "b1", "state": "paused"}}})
    del plain["schedule"][2]["at_s"]
    assert "schedule[2].when: step 1 acts on how fast a1->c1 is, or its way back, how fast a2->c1 is" in refused(plain)


@pytest.mark.parametrize(
    ("links", "latency_ms", "most_ms"),
    [("a1 <-> b1", 6500, 6500), ("publisher:0 -> a1", 9500, 9500), ("zone:a -> zone:c", 6500, 6500)],
)
def test_latency_that_no_broker_would_wait_for(links: str, latency_ms: int, most_ms: int) -> None:
    step = {"at_s": 2, "for_s": 60, "fault": "latency", "links": links, "latency_ms": latency_ms}
    fault_file.parse(yaml.safe_dump(changed(("schedule",), [step])))
    for longer in ({"latency_ms": latency_ms + 1}, {"latency_ms": latency_ms - 9, "jitter_ms": 10}):
        told = refused(changed(("schedule",), [step | longer]))
        assert f"schedule[0].latency_ms: with its jitter at most {most_ms} ms are possible on " in told


def test_latency_adds_to_that_of_the_network() -> None:
    topology = {"name": "apart", "zones": {"a": 2, "b": 2, "c": 1}}
    network = {"network": {"between_zones": {"latency_ms": 100, "jitter_ms": 10}}}
    step = {"at_s": 2, "for_s": 60, "fault": "latency", "links": "a1 <-> b1", "latency_ms": 6400}
    plain = changed(("schedule",), [step])
    fault_file.parse(yaml.safe_dump(plain | {"topology": topology}))
    assert "at most 6390 ms are possible on a1->b1: a broker" in refused(plain | {"topology": topology | network})
