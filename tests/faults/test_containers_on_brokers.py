"""Faults that only containers have, on real brokers: packets lost between zones, less CPU and memory for one node,
others that take them, a full disk, a clock that jumps, and another image on the same data."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from docker import DockerClient

from rabbitmq_resilience.history.events import FaultEvent
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.clock import Clock
from rabbitmq_resilience.nemesis.conditions import AfterStep, NotCritical, When
from rabbitmq_resilience.nemesis.disk_full import DiskFull
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.limit import Limit
from rabbitmq_resilience.nemesis.netem import Netem
from rabbitmq_resilience.nemesis.power_cut import PowerCut
from rabbitmq_resilience.nemesis.stop import Stop
from rabbitmq_resilience.nemesis.stress import Stress
from rabbitmq_resilience.nemesis.upgrade import Upgrade
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.known_defects import known_hangs
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.sut.containers.engine_client import find_broker_image
from rabbitmq_resilience.sut.drivers import DRIVERS, OpenDriver
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.workload.workload_model import Workload
from tests.needs import skipped_without
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.engine

#: Whole pages, as the kernel counts.
MEMORY_BYTES = 3 << 29


@pytest.fixture(scope="module")
def docker() -> Iterator[OpenDriver]:
    with skipped_without():
        driver = DRIVERS["docker"].open(None)
    with closing(driver):
        yield driver


def played(docker: OpenDriver, runs: Path, *schedule: AnyFault) -> Result:
    demanded: dict[str, dict[str, int]] = {"no_loss": {}, "recovery": {"within_s": 60}}
    workload = Workload(queues=2, publishers=2, consumers=2, rate_per_s=200)
    scenario = Scenario(
        title="Only in containers",
        seed=7,
        topology=topology_catalogue.load("three_nodes_three_zones"),
        workload=workload,
        phases=Phases(steady_s=2, recovery_s=90, settled_s=5),
        schedule=schedule,
        invariants=Invariants.model_validate(demanded),
        expect=known_hangs(workload, demanded=list(demanded)),  # a node that comes back on 3.10 may hang, and says so
    )
    with skipped_without():
        docker.require(scenario.needs)
    with ClusterPool(docker.form) as pool:
        return run_validated(scenario, RunContext(pool, runs, io.StringIO(), driver="docker", require=docker.require))


def details(result: Result, state: str) -> list[str]:
    """What was told of each step when it got there, in their order."""
    there = [event for event in result.run.events() if isinstance(event, FaultEvent) and event.state == state]
    return [event.detail for event in sorted(there, key=lambda event: event.step)]


def test_stress_is_seen_and_ended(docker: OpenDriver, tmp_path: Path) -> None:
    taken = Stress(at_s=1, for_s=20, node="zone:b", cpu_workers=1, memory_bytes=64 * 2**20, io_workers=1)
    result = played(docker, tmp_path, taken)

    assert result.document["as_expected"], result.story()
    assert details(result, "proven")[0].startswith("stress-ng has used ")
    assert details(result, "heal_proven") == ["stress-ng is gone"]


def test_packets_are_lost_and_brokers_are_limited_and_both_are_healed(docker: OpenDriver, tmp_path: Path) -> None:
    result = played(
        docker,
        tmp_path,
        Netem(at_s=1, for_s=25, links="zone:a <-> zone:b", loss_percent=20, by="iptables"),
        Limit(at_s=2, for_s=15, node="c1", cpus=0.1, memory_bytes=MEMORY_BYTES),
    )
    assert result.document["as_expected"], result.story()
    lost, limited = details(result, "proven")
    assert lost.startswith("a1->b1: ")
    assert "b1->a1: " in lost
    assert "c1 waited" in limited
    assert f"of {MEMORY_BYTES:,} bytes" in limited
    whole, free = details(result, "heal_proven")
    assert whole == "no rule is left, and all of 100 probes over each link are answered"
    assert free == "c1 has no limit"
    assert "stopping iptables" in (result.run.logs / "pumba.log").read_text()


def test_a_disk_is_filled_and_a_clock_turned_and_both_are_healed(docker: OpenDriver, tmp_path: Path) -> None:
    """A broker whose log found no room does not write it any more until it is started again."""
    result = played(
        docker,
        tmp_path,
        Clock(at_s=1, for_s=25, node="a1", jump_s=3600),
        DiskFull(at_s=2, for_s=15, node="b1"),
        Stop(when=When(after_step=AfterStep(step=1, wait_s=2)), for_s=2, node="b1"),
    )
    assert result.document["as_expected"], result.story()
    ahead, full, _ = details(result, "proven")
    assert ahead.startswith("the clock of a1 is +3")
    assert full == "the disk of b1 takes nothing more"
    healed = details(result, "heal_proven")
    (back_s,) = re.findall(r"the clock of a1 is ([+-]\d+\.\d) s", "\n".join(healed))
    assert abs(float(back_s)) < 60  # as exactly as a busy machine answers
    assert any(detail.endswith(" bytes of b1 are free") for detail in healed)


def test_a_broker_with_a_clock_of_its_own_loses_power(docker: OpenDriver, tmp_path: Path) -> None:
    """Two libraries are preloaded."""
    result = played(
        docker,
        tmp_path,
        Clock(at_s=1, for_s=10, node="a1", jump_s=3600),
        PowerCut(when=When(after_step=AfterStep(step=0, wait_s=2)), for_s=2, node="a1", written_back_after_s=2),
    )
    assert result.document["as_expected"], result.story()
    ahead, cut = details(result, "proven")
    assert ahead.startswith("the clock of a1 is +3")
    assert re.search(r"a1 lost [\d,]+ bytes of \d+ files, and \d+ names", cut)


@pytest.fixture
def renamed(engine: DockerClient, docker: OpenDriver) -> Iterator[str]:
    """The same broker under the name of another image: what is always a supported upgrade."""
    name = f"rabbitmq-resilience-test/rabbitmq:{docker.broker_version}-renamed"
    engine.images.get(find_broker_image(engine, docker.broker_version).name).tag(name)
    yield name
    engine.images.remove(name)


def test_nodes_become_another_image_one_after_another_and_keep_their_data(
    docker: OpenDriver, renamed: str, tmp_path: Path
) -> None:
    back = When(after_step=AfterStep(step=0, wait_s=2), not_critical=NotCritical(node="b1"))
    result = played(
        docker,
        tmp_path,
        Upgrade(at_s=1, for_s=2, node="a1", to=renamed),
        Upgrade(when=back, for_s=2, node="b1", to=renamed, drain=True, enable_feature_flags=True),
    )
    assert result.document["as_expected"], result.story()
    first, last = details(result, "heal_proven")
    assert first == f"a1 is of version {docker.broker_version} and sees all nodes that are up"
    assert last.endswith(", and all stable feature flags are enabled")
    assert result.document["upgraded_to"] == [docker.broker_version]
