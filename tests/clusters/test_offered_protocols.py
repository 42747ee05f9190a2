"""Each driver implements the protocols of what it offers to faults, and none of the others."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.extensions.attached.attached_cluster import AttachedCluster
from rabbitmq_resilience.model.packets import PacketActs
from rabbitmq_resilience.sut.container_protocol import Disks, NodeClocks, ResourceLimits, Stressing
from rabbitmq_resilience.sut.containers.container_cluster import DockerCluster
from rabbitmq_resilience.sut.drivers import DRIVERS
from rabbitmq_resilience.sut.node_protocol import StoredData, Upgradable
from rabbitmq_resilience.sut.orchestration import MachineDraining, RollingRestarts
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster

PROTOCOLS: dict[str, list[type]] = {
    "versions": [Upgradable],
    "data": [StoredData],
    "packets": [PacketActs],
    "disks": [Disks],
    "containers": [ResourceLimits, Stressing, NodeClocks],
    "orchestrator": [MachineDraining, RollingRestarts],
}


@pytest.mark.parametrize(
    ("driver", "cluster"), [("local", LocalCluster), ("docker", DockerCluster), ("attached", AttachedCluster)]
)
def test_a_driver_implements_what_it_offers_and_no_more(driver: str, cluster: type) -> None:
    implemented = {offer for offer, protocols in PROTOCOLS.items() if all(issubclass(cluster, p) for p in protocols)}
    assert implemented == DRIVERS[driver].offers & PROTOCOLS.keys()
