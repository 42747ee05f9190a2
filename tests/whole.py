"""Waiting for a cluster to be whole again after a test broke it."""

from __future__ import annotations

import re

from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.clusters.running import RunningCluster
from rabbitmq_resilience.scenarios.known_defects import HANGS_IN_GLOBAL_SYNC

FORMED_WITHIN_S = 90.0


def await_whole(cluster: RunningCluster) -> None:
    """A node that came back may hang for ever in its start, which RabbitMQ before 3.11 is known for. That is for a
    suite to show; where its log says so, it is started anew, as a person would."""
    try:
        cluster.await_formed(timeout_s=FORMED_WITHIN_S)
    except ClusterError:
        away = [node for node in cluster.topology.node_names if cluster.state(node) == "paused"]
        hung = [node for node in away if _hangs(cluster.logs()[node].read_text(errors="replace"))]
        if not hung:
            raise
        for node in hung:
            cluster.kill(node)
            cluster.start(node)
        cluster.await_formed(timeout_s=FORMED_WITHIN_S)


def _hangs(log: str) -> bool:
    assert HANGS_IN_GLOBAL_SYNC.log is not None
    return re.search(HANGS_IN_GLOBAL_SYNC.log, log, re.DOTALL) is not None
