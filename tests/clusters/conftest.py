"""One three-node cluster of each driver, every link of it proxied, for all tests of drivers that need a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.running import RunningCluster
from tests.drivers import DRIVEN, formed_by
from tests.whole import await_whole

THREE = Topology(name="driver_tests", zones={"a": 1, "b": 1, "c": 1})


@pytest.fixture(scope="package", params=DRIVEN)
def formed(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    with formed_by(request.param, THREE, proxied=THREE.links) as cluster:
        yield cluster


@pytest.fixture
def cluster(formed: RunningCluster) -> RunningCluster:
    """The shared cluster, whole again after the test before."""
    await_whole(formed)
    return formed
