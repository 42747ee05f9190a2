"""One three-node cluster of each driver, every link of it proxied, for all tests of drivers that need a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from rabbitmq_resilience.clusters.drivers import DRIVERS
from rabbitmq_resilience.clusters.running import RunningCluster
from rabbitmq_resilience.clusters.spec import Topology
from tests.needs import skipped_without
from tests.whole import await_whole

THREE = Topology(name="driver_tests", zones={"a": 1, "b": 1, "c": 1})


@pytest.fixture(scope="package", params=["local", pytest.param("docker", marks=pytest.mark.engine)])
def formed(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    with skipped_without():
        driver = DRIVERS[request.param].open(None)
    with closing(driver), driver.form(THREE, proxied=THREE.links) as cluster:
        yield cluster


@pytest.fixture
def cluster(formed: RunningCluster) -> RunningCluster:
    """The shared cluster, whole again after the test before."""
    await_whole(formed)
    return formed
