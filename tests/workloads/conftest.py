"""One three-node cluster for all tests of the load that need a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster


@pytest.fixture(scope="package")
def cluster() -> Iterator[LocalCluster]:
    topology = Topology(name="workload_tests", zones={"a": 1, "b": 1, "c": 1})
    with LocalCluster.form(topology) as formed:
        yield formed
