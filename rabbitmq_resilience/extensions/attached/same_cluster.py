"""Check that all addresses of a cluster file lead to one and the same cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rabbitmq_resilience.extensions.attached.cluster_file import KnownCluster
from rabbitmq_resilience.extensions.attached.cluster_model import AttachedNode
from rabbitmq_resilience.model.errors import WrongClusterError
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.sut.broker.server_properties import server_properties

_ASK_TIMEOUT_S = 10.0
#: How far ages may differ: nodes are asked one after another, and what they report of each other is seconds old.
_APART_MS_MAX = 60_000

Rows = Sequence[Mapping[str, Any]]


def mixed(reported: Mapping[str, Rows]) -> Iterator[str]:
    """Yield, in words, which nodes are not of one cluster.

    ``reported``: the members of its cluster that each node lists (``/api/nodes``). Nodes of one cluster list the same
    names, processes and ages. Fields that a node does not report are not compared.
    """
    for (one, first), (other, second) in pairwise(reported.items()):
        ours, theirs = ({str(row["name"]): row for row in rows} for rows in (first, second))
        if ours.keys() != theirs.keys():
            yield f"{one} is in a cluster of {', '.join(sorted(ours))}, {other} in one of {', '.join(sorted(theirs))}"
        elif strangers := [name for name in ours if not _same(ours[name], theirs[name])]:
            yield f"{one} and {other} are of two clusters: {', '.join(sorted(strangers))} has other processes there"


def is_default_name(name: str, node: str) -> bool:
    """Return whether ``name`` is the default that the node makes (rabbit_nodes:cluster_name_default/0).

    The default holds the host as the node's machine resolves it. That host may differ from the one in the node's name,
    so only the parts before the @ are compared.
    """
    return name.partition("@")[0] == node.partition("@")[0]


def refuse_other_node(node: AttachedNode, overview: Mapping[str, Any]) -> None:
    """Raise WrongClusterError if ``overview``, which the node's management API gave, is that of another node."""
    if overview.get("node") != node.name:
        raise WrongClusterError(
            f"{node.management} is stated as that of {node.name}, but {overview.get('node')} answers there"
        )


def refuse_others(known: KnownCluster, apis: Sequence[ManagementApi]) -> None:
    """Raise WrongClusterError if another node, or a node of another cluster, answers at an address of the file.

    ``apis``: those of the file's nodes, in their order. Nodes that do not answer are left out.
    """
    for node, api in zip(known.stated.nodes, apis, strict=True):
        try:
            overview = api.overview()
        except (ApiError, ApiUnreachable):
            continue
        refuse_other_node(node, overview)
        name = str(overview.get("cluster_name"))
        if name != known.stated.cluster and not is_default_name(name, node.name):
            raise WrongClusterError(
                f"the file states the cluster {known.stated.cluster!r}, but {name!r} answers at {node.management}"
            )


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    pids = {str(row["os_pid"]) for row in (one, other) if "os_pid" in row}
    ages_ms = [int(row["uptime"]) for row in (one, other) if "uptime" in row]
    return len(pids) < 2 and (len(ages_ms) < 2 or abs(ages_ms[0] - ages_ms[1]) <= _APART_MS_MAX)


def strangers_by_amqp(known: KnownCluster, names: Collection[str]) -> Iterator[str]:
    """Yield, in words, the AMQP addresses at which another cluster answers than at the management API.

    ``names``: the cluster names that the management API reports. The check needs no login.
    """
    for node in known.stated.nodes:
        try:
            properties = server_properties(node.endpoint, known.access, timeout_s=_ASK_TIMEOUT_S)
        except OSError as error:  # ssl.SSLError is one
            yield f"{node.amqp} is stated as that of {node.name}, but no broker answers there: {error}"
            continue
        name = properties.get("cluster_name", b"")
        name = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
        if name not in names:
            yield f"{node.amqp} is stated as that of {node.name}, but the cluster {name!r} answers there"
