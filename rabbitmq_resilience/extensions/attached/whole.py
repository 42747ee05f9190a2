"""Check that a cluster that runs already is whole, and say what its owner can do if it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rabbitmq_resilience.model.links import largest_group


def not_whole(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what is wrong with the cluster and what mends it; empty if nothing is wrong.

    ``rows``: the nodes as the management API lists them, each with its ``name``, whether it is ``running``, and the
    ``partitions`` that it reports.
    """
    if away := sorted(str(row["name"]) for row in rows if not row.get("running")):
        return f"{', '.join(away)} does not run; start RabbitMQ there (rabbitmqctl start_app, or its service)"
    parted = {str(row["name"]): {str(peer) for peer in row["partitions"]} for row in rows if row.get("partitions")}
    if not parted:
        return ""
    lines = [f"{node} is partitioned from {', '.join(sorted(peers))}" for node, peers in sorted(parted.items())]
    restarted = ", ".join(to_restart(parted, {str(row["name"]) for row in rows}))
    return f"{'; '.join(lines)}; restart RabbitMQ on {restarted} (rabbitmqctl stop_app, then rabbitmqctl start_app)"


def to_restart(parted: Mapping[str, set[str]], nodes: set[str]) -> list[str]:
    """Return the nodes that have to restart: all except the largest group whose members all reach each other.

    Messages that they accepted during the partition are lost. ``parted``: the peers from which each node says that it
    is partitioned; it is enough if one of two nodes says so.
    """
    apart = {frozenset((node, peer)) for node, peers in parted.items() for peer in peers}
    return sorted(nodes - largest_group(nodes, apart))
