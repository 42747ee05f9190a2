"""A scenario is played on the first home that has what it needs, and says which that is and why."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from rabbitmq_resilience.runner.environments import Environment, Environments, first_home
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.sut.drivers import DRIVERS, Driver, OpenDriver
from rabbitmq_resilience.sut.pool import ClusterPool

HOMES = ("4.0.5", "4.3.6", "3.10.8")


def scenario(queue_type: str = "quorum", broker: str = "", workload: str = "", topology: str = "") -> Scenario:
    return fault_file.parse(
        f"""
        version: 1
        title: One
        {f'broker: "{broker}"' if broker else ""}
        topology: {{name: mine, zones: {{a: 1, b: 1, c: 1}}{topology}}}
        workload: {{queue_type: {queue_type}{workload}}}
        invariants: {{no_loss: {{}}}}
        """
    )


@pytest.mark.parametrize(
    ("asked", "version", "why"),
    [
        (scenario(), "4.0.5", ""),
        (scenario("classic"), "4.0.5", ""),
        (scenario("mirrored"), "3.10.8", "4.0.5 has no mirrored queues; 4.3.6 has no mirrored queues"),
        (scenario(broker=">=4.2"), "4.3.6", "it is for >=4.2"),
        (scenario(broker="<4"), "3.10.8", "it is for <4"),
        (scenario("classic", workload=", lazy: true"), "3.10.8", "4.0.5 has no lazy queues; 4.3.6 has no lazy queues"),
        (scenario(broker=">=4.3", workload=", priorities: [1, 2]"), "4.3.6", "it is for >=4.3"),
        (scenario(broker=">=5"), "4.0.5", ""),  # none can: the first one says so
    ],
)
def test_it_is_the_first_home_that_has_what_a_scenario_needs(asked: Scenario, version: str, why: str) -> None:
    assert first_home([asked], HOMES) == (version, why)


def test_several_scenarios_are_played_on_one_home() -> None:
    assert first_home([scenario(), scenario("mirrored")], HOMES)[0] == "3.10.8"
    assert first_home([scenario(), scenario(broker=">=4.2")], HOMES) == ("4.3.6", "it is for >=4.2")


class Formed:
    """Stands in for clusters: it counts how often they were ended."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def grounds(
    homes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Environments, list[str | None]]:
    """Return what a session plays on, and the list that gets what is asked for when a driver is opened."""
    asked: list[str | None] = []

    def opened(wanted: str | None) -> OpenDriver:
        asked.append(wanted)
        return OpenDriver(wanted or "4.0.5", lambda: None, lambda: None, homes=() if wanted else homes)

    monkeypatch.setitem(DRIVERS, "local", Driver(frozenset(), opened))
    driver, clusters = opened(None), ClusterPool(lambda: None)
    own = Environment(driver, clusters, RunContext(clusters, tmp_path, io.StringIO()))
    return Environments(lambda: own), asked


def test_each_home_is_opened_once_and_only_when_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session, asked = grounds(HOMES, tmp_path, monkeypatch)
    with session:
        assert session.of(scenario()).description == "RabbitMQ 4.0.5, at home"
        for _ in range(2):
            mirrored = session.of(scenario("mirrored"))
            assert mirrored.description == (
                "RabbitMQ 3.10.8, at home, as 4.0.5 has no mirrored queues; 4.3.6 has no mirrored queues"
            )
        assert session.of(scenario()).opened.broker_version == "4.0.5"
    assert asked == [None, "3.10.8"]


def test_a_cluster_stays_as_long_as_its_home_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session, _ = grounds(HOMES, tmp_path, monkeypatch)
    with session:
        kept = session.of(scenario("mirrored")).clusters
        formed = Formed()
        monkeypatch.setattr(kept, "_kept", formed)
        session.of(scenario("mirrored"))
        assert formed.closed == 0
        session.of(scenario())
        assert formed.closed == 1


def test_a_named_broker_is_played_whatever_is_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session, asked = grounds((), tmp_path, monkeypatch)
    with session:
        assert session.of(scenario("mirrored")).opened.broker_version == "4.0.5"
    assert asked == [None]
