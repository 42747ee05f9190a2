"""Keeps one cluster from scenario to scenario, as long as it is equal to what is asked and healthy."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Self

from topologies.cluster import ClusterError
from topologies.fittings import NONE, Fittings
from topologies.local import LocalCluster
from topologies.management import ApiError, ApiUnreachable
from topologies.running import RunningCluster
from topologies.spec import Link, Topology

_FOUND_FRESH = ("/",)


class ClusterPool:
    """Hands out clusters, one at a time; ``close`` (or leaving the context) ends the kept one."""

    def __init__(self, form: Callable[..., RunningCluster] = LocalCluster.form) -> None:
        """``form`` starts a cluster, as ``RunningCluster.formed_on`` does."""
        self._form = form
        self._kept: RunningCluster | None = None

    def acquire(
        self,
        topology: Topology,
        proxied: Collection[Link] = (),
        fittings: Fittings = NONE,
        *,
        logs_of_failure: Path | None = None,
    ) -> RunningCluster:
        """A healthy cluster of ``topology`` with proxies on ``proxied`` and no other link, as each costs throughput,
        and with those ``fittings`` and no other: the kept one or a new one. ``proxied`` holds both directions of each
        pair. The brokers' logs are copied to ``logs_of_failure`` if it does not form."""
        kept = self._kept
        if kept is not None and not (kept.fittings == fittings and self._fits(kept, topology, frozenset(proxied))):
            self.close()
        if self._kept is None:
            fitted = {} if fittings == NONE else {"fittings": fittings}  # only drivers that offer some know of them
            self._kept = self._form(topology, proxied=proxied, logs_of_failure=logs_of_failure, **fitted)
        return self._kept

    def close(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @staticmethod
    def _fits(cluster: RunningCluster, topology: Topology, proxied: frozenset[Link]) -> bool:
        return cluster.topology == topology and proxied == cluster.links.proxied and not unfit_reason(cluster)


def unfit_reason(cluster: RunningCluster) -> str:
    """Why the cluster must not serve another scenario; empty if it may.

    It may if nothing is cut or delayed, every node sees all nodes running, no partition and no alarm, and no
    virtual host is left that a fresh cluster would not have.
    """
    if cluster.reconfigured:
        return "nodes were given other settings"
    if not cluster.links.clean:
        return "links are still cut or delayed"
    try:
        cluster.await_formed(timeout_s=10.0)
        for node in cluster.topology.node_names:
            for trouble in ("partitions", "mem_alarm", "disk_free_alarm"):
                if any(member.get(trouble) for member in cluster.api(node).nodes()):
                    return f"{node} reports {trouble}"
        if cluster.topology.definitions is None:
            left = set(cluster.api(cluster.topology.node_names[0]).vhosts()) - set(_FOUND_FRESH)
            return f"virtual hosts were left behind: {', '.join(sorted(left))}" if left else ""
    except (ClusterError, ApiError, ApiUnreachable) as error:
        return str(error)
    return ""
