"""Brokers that are held to a size once their cluster has formed, and to less for a while."""

from __future__ import annotations

from contextlib import closing

import pytest
from packaging.version import Version

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.containers.container_cluster import DockerCluster
from rabbitmq_resilience.sut.drivers import DRIVERS
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.tools.waiting import wait_until
from tests.needs import skipped_without

pytestmark = pytest.mark.engine


def test_a_broker_has_its_size_and_gets_it_back_after_a_limit() -> None:
    with skipped_without():
        driver = DRIVERS["docker"].open(None)
    plain = {"name": "sized", "zones": {"a": 1}, "broker_size": {"cores": 0.75, "memory_mb": 700}}
    topology = Topology.model_validate(plain)
    with closing(driver), ClusterPool(driver.form) as pool:
        cluster = pool.acquire(topology)
        assert isinstance(cluster, DockerCluster)
        assert cluster.resources("a1").memory_bytes == 700 * 2**20
        assert cluster.resources("a1").unlimited
        # A broker that is just up tells its limits only with its first numbers.
        (node,) = wait_until(
            cluster.api("a1").nodes,
            until=lambda rows: all("mem_limit" in row for row in rows),
            timeout_s=30,
            what="the broker to tell its memory limit",
        )
        share = 0.6 if Version(driver.broker_version) >= Version("4.0") else 0.4
        assert node["mem_limit"] == pytest.approx(share * 700 * 2**20, rel=0.01), "RabbitMQ's own share of what it has"

        cluster.limit("a1", cpus=0.5, memory_bytes=None)
        assert not cluster.resources("a1").unlimited
        assert cluster.resources("a1").memory_bytes == 700 * 2**20
        cluster.limit("a1", cpus=None, memory_bytes=None)
        assert cluster.resources("a1").unlimited

        cluster.kill("a1")
        cluster.upgrade("a1", cluster.version_of("a1"))
        cluster.start("a1")
        assert cluster.resources("a1").unlimited, "also in a container that was made when the cluster was there"
