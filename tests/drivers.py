"""Clusters of each driver for the tests that want the same of all."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager

import pytest

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.drivers import DRIVERS
from rabbitmq_resilience.sut.running import RunningCluster
from tests.needs import skipped_without

#: For the parameters of a fixture.
DRIVEN = ["local", pytest.param("docker", marks=pytest.mark.engine)]


@contextmanager
def formed_by(driver: str, topology: Topology, *, proxied: Collection[Link]) -> Iterator[RunningCluster]:
    """Skips where the driver, or something that the topology needs, is missing."""
    with skipped_without():
        opened = DRIVERS[driver].open(None)
    with closing(opened):
        with skipped_without():
            opened.require(topology.needs)
        with opened.form(topology, proxied=proxied) as cluster:
            yield cluster
