"""A node that runs as a process becomes the broker of another folder, and keeps what it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.node_protocol import Upgradable
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.distributions import BrokerHome
from rabbitmq_resilience.tools.waiting import wait_until

pytestmark = pytest.mark.brokers


def test_a_node_becomes_the_broker_of_another_folder(broker: BrokerHome, tmp_path: Path) -> None:
    """The same broker under another name: what is always a supported upgrade."""
    other = tmp_path / "other"
    other.symlink_to(broker.home)
    (tmp_path / "empty").mkdir()
    with LocalCluster.form(topology_catalogue.load("one_node"), broker=broker) as cluster:
        assert isinstance(cluster, Upgradable)
        (node,) = cluster.topology.node_names
        cluster.api(node).put("vhosts/kept", {})
        with pytest.raises(ClusterError, match="only a node whose process is gone"):
            cluster.upgrade(node, str(other))
        cluster.stop(node)
        assert cluster.version_named(str(other)) == broker.version
        with pytest.raises(ClusterError, match="no broker in"):
            cluster.version_named(str(tmp_path / "empty"))
        with pytest.raises(ClusterError, match="no broker in"):
            cluster.upgrade(node, str(tmp_path / "empty"))
        cluster.upgrade(node, str(other))
        cluster.start(node)
        wait_until(lambda: cluster.state(node) == "up", timeout_s=60, what="the node to be up")
        assert cluster.version_of(node) == cluster.api(node).version() == broker.version
        assert "kept" in cluster.api(node).vhosts()
        assert cluster.pids().keys() == {node}
        assert cluster.reconfigured
