"""Check that a scenario's topology fits an existing cluster, and map its nodes to the cluster's."""

from __future__ import annotations

from collections.abc import Mapping

from rabbitmq_resilience.extensions.attached.cluster_model import AttachedNode, ClusterFile
from rabbitmq_resilience.model.topology import Topology


class ShapeError(Exception):
    """The cluster has another shape than the scenario needs; the text says how it differs."""


def matched(topology: Topology, cluster: ClusterFile) -> Mapping[str, AttachedNode]:
    """Return the cluster's node for each node of the topology. Raise ShapeError if the topology does not fit.

    A zone is mapped to the cluster's zone of the same name if that has as many nodes, otherwise to the next free zone
    that has. Zones are taken in the order in which they are written.
    """
    if differing := _difference(topology, cluster):
        raise ShapeError(f"{topology.name} {differing}")
    members: dict[str, list[AttachedNode]] = {}
    for node in cluster.nodes:
        members.setdefault(node.zone, []).append(node)
    sizes = {zone: len(nodes) for zone, nodes in members.items()}
    if sorted(sizes.values()) != sorted(topology.zones.values()):
        has = ", ".join(f"{zone}: {size}" for zone, size in sizes.items())
        wants = ", ".join(f"{zone}: {size}" for zone, size in topology.zones.items())
        raise ShapeError(f"{topology.name} has zones of other sizes ({wants}) than this cluster ({has})")
    taken = {zone: zone for zone, size in topology.zones.items() if sizes.get(zone) == size}
    for zone in topology.zones.keys() - taken.keys():
        taken[zone] = ""
    for zone, size in topology.zones.items():
        free = (name for name, nodes in sizes.items() if name not in taken.values() and nodes == size)
        taken[zone] = taken[zone] or next(free)
    return {
        node: member
        for zone, count in topology.zones.items()
        for node, member in zip([f"{zone}{i}" for i in range(1, count + 1)], members[taken[zone]], strict=True)
    }


def fitted(topology: Topology, cluster: ClusterFile) -> Topology:
    """Return the topology with the cluster's ``net_ticktime``. Raise ShapeError if it does not fit."""
    named = matched(topology, cluster)
    if topology.pause_if_all_down is not None and cluster.pause_if_all_down is not None:
        wanted = {named[node].name for node in topology.pause_if_all_down.nodes}
        if wanted != {*cluster.pause_if_all_down.nodes}:
            raise ShapeError(
                f"{topology.name} prefers {', '.join(sorted(wanted))}, but this cluster prefers other nodes"
            )
        if topology.pause_if_all_down.recover != cluster.pause_if_all_down.recover:
            raise ShapeError(
                f"{topology.name} recovers by {topology.pause_if_all_down.recover}, but this cluster does not"
            )
    return topology.model_copy(update={"net_ticktime_s": cluster.net_ticktime_s})


def _difference(topology: Topology, cluster: ClusterFile) -> str:
    """Return, in words, how the cluster differs from the topology; empty if it does not. Zones are not compared."""
    if topology.partition_handling != cluster.partition_handling:
        return f"is played with {topology.partition_handling}, but this cluster has {cluster.partition_handling}"
    owned = {
        "balancers": "load balancers",
        "network": "a network of its own",
        "ram_nodes": "RAM nodes",
        "rabbitmq_conf": "a configuration of its own (rabbitmq_conf)",
        "settings": "settings of its own",
        "advanced_config": "a configuration of its own (advanced_config)",
        "definitions": "definitions of its own",
        "broker_size": "a size for its brokers",
        "enable_feature_flags": "feature flags to enable",
        "statistics_interval_s": "an interval of statistics of its own",
    }
    having = [text for field, text in owned.items() if getattr(topology, field)]
    if having:
        return f"has {' and '.join(having)}, which an existing cluster is not given"
    if len(topology.nodes) != len(cluster.nodes):
        return f"has {len(topology.nodes)} nodes, but this cluster has {len(cluster.nodes)}"
    return ""
