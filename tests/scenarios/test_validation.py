"""A scenario is validated once, and again only if it was changed or another driver plays it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.runner.run import RunContext, run_scenario
from rabbitmq_resilience.scenario import fault_file, validation
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.problems import problems
from rabbitmq_resilience.scenario.validation import ValidatedScenario, validated
from tests.messages import Messages
from tests.scenarios.test_fault_file import SANE

CONTAINERS_ONLY = {"broker_size": {"cores": 1, "memory_mb": 512}}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The titles of scenarios, each time that one is validated."""
    seen: list[str] = []

    def counting(scenario: Scenario, driver: str | None) -> Any:
        seen.append(scenario.title)
        return problems(scenario, driver)

    monkeypatch.setattr(validation, "problems", counting)
    return seen


def test_a_scenario_of_a_file_is_validated_once(found: list[str]) -> None:
    scenario = fault_file.parse(yaml.safe_dump(SANE), driver="docker")
    assert validated(scenario, driver="docker") is scenario
    assert scenario.driver == "docker"
    assert len(found) == 1


def test_a_scenario_made_in_python_is_validated_before_it_is_played(found: list[str]) -> None:
    made = Scenario.model_validate(SANE)
    assert not found
    scenario = validated(made, driver="local")
    assert validated(scenario, driver="local") is scenario
    assert len(found) == 1
    assert scenario == made
    assert made == scenario


@pytest.mark.parametrize(
    "change",
    [
        lambda scenario: scenario.model_copy(update={"seed": 7}),
        lambda scenario: scenario.with_topology(net_ticktime_s=9),
        lambda scenario: scenario.on(topology_catalogue.load("three_nodes_three_zones")),
        lambda scenario: scenario.model_copy(),
    ],
    ids=["seed", "topology_field", "topology", "copy"],
)
def test_a_changed_copy_is_validated_again(change: Any, found: list[str]) -> None:
    changed = change(fault_file.parse(yaml.safe_dump(SANE)))
    assert not isinstance(changed, ValidatedScenario)
    again = validated(changed, driver="local")
    assert (type(again), again) == (ValidatedScenario, changed)
    assert len(found) == 2


def test_a_wrong_change_is_refused_with_the_field(message: Messages) -> None:
    scenario = fault_file.parse(yaml.safe_dump(SANE))
    with message.of(FaultFileError) as caught:
        validated(scenario.model_copy(update={"seed": -1}), driver="local")
    assert "seed: " in str(caught.value)


def test_another_driver_may_refuse_the_same_scenario() -> None:
    plain = {**SANE, "topology": {"name": "small", "zones": {"a": 3}, **CONTAINERS_ONLY}, "schedule": []}
    scenario = fault_file.parse(yaml.safe_dump(plain), driver="docker")
    with pytest.raises(FaultFileError):
        validated(scenario, driver="local")


def test_a_runner_takes_only_what_was_validated_for_its_driver(tmp_path: Path, message: Messages) -> None:
    class NoClusters:
        def acquire(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("nothing is started")

    testbed = RunContext(NoClusters(), tmp_path / "runs", io.StringIO(), driver="docker")
    with message.of(ValueError):
        run_scenario(fault_file.parse(yaml.safe_dump(SANE)), testbed)
    assert not (tmp_path / "runs").exists()


def test_the_path_of_a_topology_is_relative_to_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\nzones: {a: 1, b: 1, c: 1}\n")
    plain = {**SANE, "topology": "mine.yaml"}
    assert fault_file.parse(yaml.safe_dump(plain), folder=tmp_path).topology.name == "mine"
    monkeypatch.chdir(tmp_path)
    assert Scenario.model_validate(plain).topology.name == "mine"
