"""What a scenario asks of services and routings, beside what a workload refuses by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.workload.routing import HASH_PLUGIN
from tests.messages import Messages

ROOT = Path(__file__).resolve().parents[2]

SANE: dict[str, Any] = {
    "version": 1,
    "title": "Two services",
    "topology": "three_nodes_three_zones",
    "workload": {
        "publishers": 2,
        "services": [{"name": "billing", "queues": 2, "consumers": 2}, {"name": "audit"}],
        "routing": {
            "exchanges": [{"name": "orders", "type": "direct"}, {"name": "shards", "type": "consistent_hash"}],
            "bindings": [
                {"exchange": "orders", "queues": "audit-1", "routing_key": "a"},
                {"exchange": "orders", "to_exchange": "shards", "routing_key": "b"},
                {"exchange": "shards", "queues": "service:billing"},
            ],
            "publish": [{"exchange": "orders", "routing_key": key} for key in "ab"],
        },
    },
    "phases": {"chaos_s": 10},
    "invariants": {"no_loss": {}, "order": {}},
}


def stated(*changes: tuple[tuple[str, ...], Any]) -> str:
    plain = yaml.safe_load(yaml.safe_dump(SANE))
    for path, value in changes:
        place = plain
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value
    return yaml.safe_dump(plain)


def service(**changed: Any) -> tuple[tuple[str, ...], Any]:
    return ("workload", "services"), [{"name": "billing", "queues": 2}, {"name": "audit", **changed}]


def killed(client: str) -> tuple[tuple[str, ...], Any]:
    return ("schedule",), [{"at_s": 1, "for_s": 5, "fault": "kill_client", "client": client}]


AVAILABLE: tuple[tuple[str, ...], Any] = (("invariants",), {"availability": {}})


def test_brokers_are_given_the_plugin_that_a_load_uses() -> None:
    scenario = fault_file.parse(stated())
    assert scenario.equipment.plugins == {HASH_PLUGIN}
    assert f"plugin {HASH_PLUGIN}" in scenario.needs
    assert (scenario.generated.queues, scenario.generated.consumers) == (3, 3)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ([service(consumers=2)], ("workload.services[1].consumers", "1 queues")),
        (
            [service(variable_processing=[{"processing_ms": 5, "for_s": 11}])],
            ("workload.services[1].variable_processing", "11 s"),
        ),
        ([service(processing_ms=2000)], ("workload.services[1].processing_ms", "50 messages", "100 s")),
        (
            [(("workload", "publishers"), 1), AVAILABLE, killed("publisher:0")],
            ("audit-1, billing-1, billing-2",),
        ),
        (
            [AVAILABLE, killed("publisher:1")],
            ("to billing-1, billing-2",),
        ),
        ([service(queue=7)], ("workload.services[1].queue",)),
    ],
)
def test_what_could_only_end_unknown_is_refused(changes: Any, parts: tuple[str, ...], message: Messages) -> None:
    with pytest.raises(fault_file.FaultFileError) as refused:
        fault_file.parse(stated(*changes))
    for part in parts:
        assert part in str(refused.value)
    message(refused.value)


@pytest.mark.parametrize("name", ["fan_out", "shards"])
def test_an_example_is_a_scenario(name: str) -> None:
    path = ROOT / "faults" / "examples" / f"{name}.fault.yaml"
    scenario = fault_file.load(path)
    assert scenario.generated.routing is not None
    assert fault_file.parse(fault_file.dump(scenario)) == scenario
