"""A file whose phases are too short for what it demands is refused, with what would do."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from tests.messages import Messages


def demanding(invariants: dict[str, Any], phases: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "version": 1,
        "title": "Zone b is cut off",
        "topology": "three_nodes_three_zones",
        "workload": {"queues": 2, "publishers": 6},
        "phases": phases or {},
        "schedule": [{"at_s": 2, "for_s": 20, "fault": "partition", "between": ["zone:b", "rest"]}],
        "invariants": invariants,
    }


def refused(plain: dict[str, Any]) -> str:
    with pytest.raises(FaultFileError) as caught:
        fault_file.parse(yaml.safe_dump(plain))
    return str(caught.value)


@pytest.mark.parametrize(
    ("invariants", "phase", "short_s", "least_s"),
    [
        ({"recovery": {"within_s": 30}}, "recovery_s", 29.9, 30),
        ({"recovery": {}}, "recovery_s", 59, 60),
        ({"throughput": {"window_s": 4}}, "settled_s", 3.9, 4),
        ({"backlog": {"drained_within_s": 90}}, "drain_s", 60, 90),
    ],
)
def test_phases_that_are_too_short_for_the_bounds_are_refused(
    invariants: dict[str, Any], phase: str, short_s: float, least_s: float, message: Messages
) -> None:
    short, long = demanding(invariants, {phase: short_s}), demanding(invariants, {phase: least_s})
    told = refused(short)
    assert f"phases.{phase}: {next(iter(invariants))} " in told
    assert f"{short_s:g} s" in told
    assert f"{least_s:g}" in told
    message(told)
    assert fault_file.parse(yaml.safe_dump(long))
    assert fault_file.parse(yaml.safe_dump(short), driver=None), "it was played already"


def test_recovery_of_exclusive_queues_needs_a_load_that_goes_on(message: Messages) -> None:
    exclusive = {"queues": 2, "publishers": 6, "exclusive": True, "queue_type": "classic", "durable": False}
    short = demanding({"recovery": {}}, {"settled_s": 1}) | {"workload": {**exclusive, "persistent": False}}
    told = refused(short)
    message(told)
    assert "phases.settled_s: " in told
    assert "1 s" in told
    long = {**short, "phases": {"settled_s": 2}}
    assert fault_file.parse(yaml.safe_dump(long)).settled_s == 2
    assert fault_file.parse(yaml.safe_dump(demanding({"recovery": {}}, {"settled_s": 1}))).settled_s == 1


@pytest.mark.parametrize(
    ("invariants", "phases", "settled_s"),
    [
        ({"no_loss": {}}, {}, 5),
        ({"throughput": {}}, {}, 21),
        ({"throughput": {"grace_s": 1, "window_s": 2}}, {}, 5),
        ({"throughput": {}}, {"settled_s": 5}, 5),
        ({"no_loss": {}}, {"settled_s": 0}, 0),
    ],
)
def test_the_load_goes_on_for_as_long_as_the_invariants_need(
    invariants: dict[str, Any], phases: dict[str, Any], settled_s: float
) -> None:
    scenario = fault_file.parse(yaml.safe_dump(demanding(invariants, phases)))
    assert scenario.settled_s == settled_s
    assert fault_file.parse(fault_file.dump(scenario)).settled_s == settled_s


def test_uptime_states_an_objective(message: Messages) -> None:
    bounds: list[dict[str, float]] = [{}, {"outage_s_max": 0.5}]
    for stated in bounds:
        told = refused(demanding({"uptime": stated}))
        assert "invariants.uptime" in told
        assert "outage_s_max" in told
        message(told)
    assert fault_file.parse(yaml.safe_dump(demanding({"uptime": {"ratio_min": 0.99}})))
