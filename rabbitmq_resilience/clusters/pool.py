"""Keeps one cluster from scenario to scenario, as long as it is equal to what is asked and healthy."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from rabbitmq_resilience.clusters.broker.management import ALARMS, ApiError, ApiUnreachable
from rabbitmq_resilience.clusters.equipment import NONE, Equipment
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.clusters.processes.cluster import LocalCluster
from rabbitmq_resilience.clusters.running import RunningCluster
from rabbitmq_resilience.clusters.spec import Link, Topology
from rabbitmq_resilience.tools.closing import Closing
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_FOUND_FRESH = ("/",)


class ClusterPool(Closing):
    """Hands out clusters, one at a time; ``close`` (or leaving the context) ends the kept one."""

    def __init__(self, form: Callable[..., Any] = LocalCluster.form, *, keeps: bool = True) -> None:
        """``form`` gives a cluster, as ``RunningCluster.formed_on`` and ``Attachment.form`` do. One that is there
        already is not kept, but looked at anew for each scenario: ``keeps`` is False."""
        self._form = form
        self._keeps = keeps
        self._kept: RunningCluster | None = None

    def acquire(
        self,
        topology: Topology,
        proxied: Collection[Link] = (),
        equipment: Equipment = NONE,
        *,
        logs_of_failure: Path | None = None,
    ) -> RunningCluster:
        """A healthy cluster of ``topology`` with proxies on ``proxied`` and no other link, as each costs throughput,
        and with those ``equipment`` and no other: the kept one or a new one. ``proxied`` holds both directions of each
        pair. The brokers' logs are copied to ``logs_of_failure`` if it does not form."""
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
    """Why the cluster must not serve another scenario; empty if it may.

    It may if nothing is cut or delayed, every node sees all nodes running, no partition and no alarm, and tells of
    itself, and no virtual host is left that a fresh cluster would not have.
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
            left = set(cluster.api(cluster.topology.node_names[0]).vhosts()) - set(_FOUND_FRESH)
            return f"virtual hosts were left behind: {', '.join(sorted(left))}" if left else ""
    except (ClusterError, ApiError, ApiUnreachable) as error:
        return str(error)
    return ""


def _trouble(cluster: RunningCluster, node: str) -> str:
    if not tells_of_itself(cluster, node):
        return f"{node} tells nothing of itself: its statistics have ended"
    members = cluster.api(node).nodes()
    told = ("partitions", *ALARMS.values())
    return next((f"{node} reports {trouble}" for trouble in told if any(row.get(trouble) for row in members)), "")


def tells_of_itself(cluster: RunningCluster, node: str) -> bool:
    """Statistics of 3.10.8 that have failed too often, as they may after a cut, end until the broker is started again.
    One that has just been started tells of itself after an interval."""
    name, interval_s = cluster.broker_name(node), cluster.topology.statistics_interval_s or 1

    def tells() -> bool:
        return name not in cluster.api(node).silent_nodes()

    try:
        return wait_until(tells, timeout_s=5.0 + 2 * interval_s, what=f"{node} to tell of itself")
    except WaitTimeout:
        return False
