"""Keep one cluster from scenario to scenario while it is healthy and matches the requested topology."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.node_options import NONE, NodeOptions
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.management import ALARMS, ApiError, ApiUnreachable
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.sut.running import RunningCluster
from rabbitmq_resilience.tools.closing import Closing
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_VHOSTS_OF_FRESH_CLUSTER = ("/",)


class ClusterPool(Closing):
    """A pool that hands out one cluster at a time; ``close`` (or leaving the context) ends the kept cluster."""

    def __init__(self, form: Callable[..., Any] = LocalCluster.form, *, keeps: bool = True) -> None:
        """Create an empty pool. ``form`` returns a cluster, as ``RunningCluster.formed_on`` and ``Attachment.form`` do.
        ``keeps`` is False for attached clusters: the pool attaches to them again for each scenario."""
        self._form = form
        self._keeps = keeps
        self._kept: RunningCluster | None = None

    def acquire(
        self,
        topology: Topology,
        proxied: Collection[Link] = (),
        equipment: NodeOptions = NONE,
        *,
        logs_of_failure: Path | None = None,
    ) -> RunningCluster:
        """Return a healthy cluster of ``topology``: the kept one if it fits, otherwise a new one.

        The cluster has proxies on exactly the links in ``proxied``, as each proxy costs throughput. ``proxied`` holds
        both directions of each pair. The cluster has exactly this ``equipment``. If a new cluster does not form, the
        brokers' logs are copied to ``logs_of_failure``.
        """
        kept = self._kept
        if kept is not None and not (
            self._keeps and kept.equipment == equipment and self._fits(kept, topology, frozenset(proxied))
        ):
            self.close()
        if self._kept is None:
            self._kept = self._form(topology, proxied=proxied, equipment=equipment, logs_of_failure=logs_of_failure)
        return self._kept

    def close(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    @staticmethod
    def _fits(cluster: RunningCluster, topology: Topology, proxied: frozenset[Link]) -> bool:
        return cluster.topology == topology and proxied == cluster.links.proxied and not unfit_reason(cluster)


def unfit_reason(cluster: RunningCluster) -> str:
    """Return why the cluster must not serve another scenario; empty if it may.

    The cluster may serve again if no link is cut or delayed and no virtual host of an earlier run is left. In addition,
    every node must see all nodes running, report its statistics, and show no partition and no alarm.
    """
    if cluster.reconfigured:
        return "nodes were given other settings"
    if not cluster.links.clean:
        return "links are still cut or delayed"
    try:
        cluster.await_formed(timeout_s=10.0)
        troubles = (text for node in cluster.topology.node_names if (text := _trouble(cluster, node)))
        if found := next(troubles, ""):
            return found
        if cluster.topology.definitions is None:
            left = set(cluster.api(cluster.topology.node_names[0]).vhosts()) - set(_VHOSTS_OF_FRESH_CLUSTER)
            return f"virtual hosts were left behind: {', '.join(sorted(left))}" if left else ""
    except (ClusterError, ApiError, ApiUnreachable) as error:
        return str(error)
    return ""


def _trouble(cluster: RunningCluster, node: str) -> str:
    if not reports_statistics(cluster, node):
        return f"{node} reports no statistics: they have ended"
    members = cluster.api(node).nodes()
    columns = ("partitions", *ALARMS.values())
    return next((f"{node} reports {column}" for column in columns if any(row.get(column) for row in members)), "")


def reports_statistics(cluster: RunningCluster, node: str) -> bool:
    """Return whether ``node`` reports its own statistics.

    RabbitMQ 3.10.8 may end its statistics after a cut, if they fail too often; only a restart of the broker brings them
    back. A broker that has just been started reports statistics after one interval, so this waits for that.
    """
    name, interval_s = cluster.broker_name(node), cluster.topology.statistics_interval_s or 1

    def reports() -> bool:
        return name not in cluster.api(node).silent_nodes()

    try:
        return wait_until(reports, timeout_s=5.0 + 2 * interval_s, what=f"the statistics of {node}")
    except WaitTimeout:
        return False
