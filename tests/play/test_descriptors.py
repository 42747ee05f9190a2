"""A session that goes on for hours holds no more open at its end than after its first scenario."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis import flapping
from rabbitmq_resilience.nemesis.disconnect import Disconnect
from rabbitmq_resilience.nemesis.flapping import Flapping
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.latency import Latency
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.sut.drivers import DRIVERS
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.workload.workload_model import Workload
from tests.needs import skipped_without
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.plays

THREE = topology_catalogue.load("three_nodes_three_zones")

#: Whatever is probed, cut off and given up; the kill makes some of the others fail to connect, and to be proven.
SCHEDULE = (
    Flapping(at_s=0, for_s=2, between=("zone:a", "rest"), period_s=0.1),
    Partition(at_s=2.5, for_s=1.5, between=("a1", "b1", "c1")),
    Latency(at_s=4.5, for_s=3, links="a1 <-> b1", latency_ms=60),
    Disconnect(at_s=1, for_s=0.5, between=("publisher:0", "all")),
    Kill(at_s=1, for_s=1, node="c1"),
)
TIMES = 2


def held() -> dict[str, int]:
    process = psutil.Process()
    return {"descriptors": process.num_fds(), "threads": process.num_threads()}


def held_beside_pools(management_ports: set[int]) -> dict[str, int]:
    """But for the connections that clients of the management API and of the engine keep for the next question: as many
    as were asked at once."""
    process = psutil.Process()
    kept = [c for c in process.net_connections("tcp") if c.raddr and c.raddr.port in management_ports]
    kept += process.net_connections("unix")
    return {"descriptors": process.num_fds() - len(kept), "threads": process.num_threads()}


@pytest.mark.parametrize("name", ["local", pytest.param("docker", marks=pytest.mark.engine)])
def test_scenario_after_scenario_holds_as_much_open(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flapping, "CUTS_RATIO_MIN", 2)  # as on a machine that is too busy: nobody reads the probes
    scenario = Scenario(
        title="Held open",
        seed=5,
        topology=THREE,
        workload=Workload(queues=2, publishers=2, consumers=2, rate_per_s=100),
        phases=Phases(steady_s=1, recovery_s=60, settled_s=1),
        schedule=SCHEDULE,
        invariants=Invariants.model_validate({"no_loss": {}}),
    )
    with skipped_without():
        driver = DRIVERS[name].open(None)
    seen = []
    with closing(driver), ClusterPool(driver.form) as pool:
        before = held()
        for _ in range(TIMES):
            run_validated(scenario, RunContext(pool, tmp_path, io.StringIO(), driver=name, require=driver.require))
            cluster = pool.acquire(THREE, scenario.touched_links)
            seen.append(held_beside_pools({cluster.management_port(node) for node in THREE.node_names}))
        pool.close()
        after = held()
    assert seen[-1] == seen[0], seen
    assert after == before
