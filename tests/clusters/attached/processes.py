"""A cluster of processes as one that is there already: its cluster file."""

from __future__ import annotations

from pathlib import Path

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster

TOPOLOGY = topology_catalogue.load("three_nodes_three_zones")


def written(cluster: LocalCluster, folder: Path, *, name: str = "", besides: str = "") -> Path:
    """With the user mine, who must be there. ``besides``: more lines."""
    rows = "".join(
        f"  - {{name: {cluster.broker_name(node)}, zone: {zone}, amqp: 'amqp://127.0.0.1:{endpoint.port}', "
        f"management: 'http://127.0.0.1:{cluster.management_port(node)}'}}\n"
        for node, zone in TOPOLOGY.nodes
        for endpoint in [cluster.amqp_endpoint(node)]
    )
    name = name or str(cluster.api("a1").overview()["cluster_name"])
    (folder / "name").write_text("mine\n")
    (folder / "password").write_text("of mine\n")
    path = folder / "cluster.yaml"
    path.write_text(
        f"version: 1\ncluster: {name}\nuser: {{file: name}}\npassword: {{file: password}}\n{besides}"
        f"partition_handling: pause_minority\nnet_ticktime_s: {TOPOLOGY.net_ticktime_s}\nnodes:\n{rows}"
    )
    return path
