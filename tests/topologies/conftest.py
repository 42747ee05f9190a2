"""One three-node cluster, every link of it proxied, for all tests of the driver that need a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from topologies.local import LocalCluster
from topologies.spec import Topology

THREE = Topology(name="driver_tests", zones={"a": 1, "b": 1, "c": 1})


@pytest.fixture(scope="package")
def formed() -> Iterator[LocalCluster]:
    with LocalCluster.form(THREE, proxied=THREE.links) as cluster:
        yield cluster


@pytest.fixture
def cluster(formed: LocalCluster) -> LocalCluster:
    """The shared cluster, whole again after the test before."""
    formed.await_formed(timeout_s=60)
    return formed
