"""``between`` and ``links`` say the same of every fault of links, in fault files and in their schema."""

from __future__ import annotations

from typing import Any

import fastjsonschema
import pytest

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.scenario import fault_file, schema
from rabbitmq_resilience.scenario.model import Scenario
from tests.messages import Messages

FILE = """
version: 1
title: Two forms
topology: five_nodes_three_zones
workload: {{queue_type: quorum, queues: 1, rate_per_s: 100}}
phases: {{steady_s: 2, recovery_s: 60, settled_s: 1}}
schedule:
  - {{at_s: 1, for_s: 10, {step}}}
invariants: {{no_loss: {{}}}}
"""
FAULTS = {
    "partition": "",
    "disconnect": "",
    "flapping": "period_s: 2, ",
    "latency": "latency_ms: 80, ",
    "netem": "loss_percent: 5, ",
}


def read(step: str) -> Scenario:
    driver = "docker" if "netem" in step else "local"
    return fault_file.parse(FILE.format(step=step), source="two.yaml", driver=driver)


def touched(scenario: Scenario) -> frozenset[Link]:
    (step,) = scenario.schedule
    footprint = step.footprint(scenario.topology)
    return footprint.links | footprint.packets


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("between", "links"),
    [
        ('["zone:c", rest]', "zone:c <-> rest"),
        ('["zone:a", "zone:b", c1]', "zone:a <-> zone:b <-> c1"),
        ("[a1, b1]", "a1<->b1"),
    ],
)
def test_both_forms_are_the_same_step(fault: str, between: str, links: str) -> None:
    more = f"fault: {fault}, {FAULTS[fault]}"
    one, other = read(f"{more}between: {between}"), read(f'{more}links: "{links}"')
    assert touched(one) == touched(other) != frozenset()
    assert fault_file.parse(fault_file.dump(other), driver=None) == other


@pytest.mark.parametrize("fault", ["partition", "flapping", "latency", "netem"])
def test_one_direction_is_the_same_too(fault: str) -> None:
    more = f"fault: {fault}, {FAULTS[fault]}"
    one = read(f'{more}between: ["zone:c", rest], one_way: true').schedule[0]
    other = read(f'{more}links: "zone:c -> rest"').schedule[0]
    assert one == other


def test_rest_is_what_the_other_sides_leave() -> None:
    scenario = read('fault: latency, latency_ms: 80, links: "zone:c -> rest"')
    assert {link.source for link in touched(scenario)} == {"c1"}
    assert {link.target for link in touched(scenario)} == {"a1", "a2", "b1", "b2"}


@pytest.mark.parametrize(
    "step",
    [
        'fault: latency, latency_ms: 80, links: "a1 <-> rest", between: [a1, rest]',
        "fault: latency, latency_ms: 80, between: a1",
        "fault: latency, latency_ms: 80, between: [a1, b1, c1], one_way: true",
        'fault: latency, latency_ms: 80, links: "a1 -> b1 -> c1"',
        'fault: latency, latency_ms: 80, links: "a1 <-> b1 -> c1"',
        'fault: latency, latency_ms: 80, links: "rest <-> rest"',
        "fault: latency, latency_ms: 80",
        'fault: disconnect, links: "a1 -> b1"',
        "fault: partition, links: [a1, b1]",
        "fault: partition",
    ],
)
def test_what_is_wrong_is_reported(step: str, message: Messages) -> None:
    with message.of(fault_file.FaultFileError):
        read(step)


def test_the_schema_takes_either_and_not_both() -> None:
    valid = fastjsonschema.compile(schema.schema())
    stated: dict[str, Any] = {
        "version": 1,
        "title": "t",
        "topology": "five_nodes_three_zones",
        "workload": {"queue_type": "quorum"},
        "invariants": {"no_loss": {}},
        "schedule": [{"at_s": 1, "for_s": 1, "fault": "latency", "latency_ms": 80, "links": "a1 <-> rest"}],
    }
    valid(stated)
    step = stated["schedule"][0]
    stated["schedule"] = [{**step, "between": ["a1", "rest"]}]
    with pytest.raises(fastjsonschema.JsonSchemaException):
        valid(stated)
    del step["links"]
    with pytest.raises(fastjsonschema.JsonSchemaException):
        valid({**stated, "schedule": [step]})
    valid({**stated, "schedule": [{**step, "between": ["a1", "rest"]}]})
