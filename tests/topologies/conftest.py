"""One three-node cluster of each driver, every link of it proxied, for all tests of drivers that need a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from topologies.distributions import ToolMissingError
from topologies.drivers import DRIVERS
from topologies.running import RunningCluster
from topologies.spec import Topology

THREE = Topology(name="driver_tests", zones={"a": 1, "b": 1, "c": 1})


@pytest.fixture(scope="package", params=sorted(DRIVERS, reverse=True))
def formed(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    try:
        driver = DRIVERS[request.param].open(None)
    except ToolMissingError as error:
        pytest.skip(str(error))
    with driver.form(THREE, proxied=THREE.links) as cluster:
        yield cluster


@pytest.fixture
def cluster(formed: RunningCluster) -> RunningCluster:
    """The shared cluster, whole again after the test before."""
    formed.await_formed(timeout_s=60)
    return formed
