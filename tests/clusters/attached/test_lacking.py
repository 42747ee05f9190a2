"""What a cluster lacks for a fault is told before anything is started."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.clusters.attached.lacking import untreated
from rabbitmq_resilience.clusters.attached.packet_rules import LOST
from rabbitmq_resilience.faults.catalogue import FAULTS

CHAOS_MESH = LOST | {("netem", "loss"), ("netem", "delay")}


@pytest.mark.parametrize(
    ("fault", "fields", "by_rules"),
    [
        ("packet_loss", {"percent": 10, "by": "iptables"}, True),
        ("packet_loss", {"percent": 10, "by": "netem"}, False),
        ("packet_delay", {"delay_ms": 50}, False),
        ("latency", {"latency_ms": 50}, True),
    ],
)
def test_packets_are_treated_by_what_is_there(fault: str, fields: dict[str, object], by_rules: bool) -> None:
    step = FAULTS[fault].model_validate({"fault": fault, "at_s": 1, "for_s": 5, "links": "a1<->b1", **fields})
    assert (untreated(step.needs, LOST) == []) is by_rules
    assert untreated(step.needs, CHAOS_MESH) == []
