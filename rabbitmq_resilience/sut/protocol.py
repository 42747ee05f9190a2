"""Define the protocol of a whole cluster, as every driver forms it: the combination of small ones.

``link_protocol`` and ``node_protocol`` have the parts. What only some drivers can do is in protocols of its own:
``node_protocol.Upgradable`` and ``StoredData``, ``container_protocol``, and ``orchestration``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rabbitmq_resilience.model.alert_rules import RuleFile
from rabbitmq_resilience.sut.link_protocol import Links
from rabbitmq_resilience.sut.node_protocol import (
    BrokerChanges,
    BrokerTools,
    Endpoints,
    LoadBalancers,
    NodeData,
    NodeObservation,
    NodeRestarts,
    NodeSettings,
    ProcessKills,
    ProcessPauses,
)
from rabbitmq_resilience.sut.round_trip_probes import RoundTrips


@dataclass(frozen=True)
class PrometheusRequest:
    """What a Prometheus server keeps and evaluates: the named ``series`` (None: all), and the alerting ``rules``."""

    series: Collection[str] | None = None
    rules: Sequence[RuleFile] = ()


class Scraping(Protocol):
    """A Prometheus server that scrapes a cluster."""

    @property
    def url(self) -> str:
        """Return the base URL for queries."""
        ...

    def await_scraping(self, *, nodes: int) -> None:
        """Wait until ``nodes`` nodes have answered a scrape. Scraping begins some seconds after the server's start."""
        ...

    def close(self) -> None: ...


class ClusterDescription(Protocol):
    """Describe how the cluster was formed."""

    @property
    def driver(self) -> str: ...

    @property
    def broker_version(self) -> str: ...

    @property
    def versions(self) -> Mapping[str, str]:
        """Return {node: version} if the brokers have different versions from the start, otherwise an empty mapping.
        With different versions, ``broker_version`` is the lowest."""
        ...

    @property
    def formed_in_s(self) -> float:
        """Return how long the cluster took to form, in seconds."""
        ...

    @property
    def replaced_settings(self) -> tuple[str, ...]:
        """Return the lines of the user's configuration that the harness replaced with its own."""
        ...


class RunScope(Protocol):
    """Keep a run, and each of its faults, within its bounds."""

    def vhost_of(self, run: str) -> str:
        """Return the virtual host of the run named ``run``."""
        ...

    def lasting(self, for_s: float) -> Cluster:
        """Return this cluster for a caller whose faults last ``for_s``. Faults that a driver ends by itself then end
        some time after that."""
        ...

    def check(self) -> None:
        """Raise ClusterError if the run must stop now because it would harm other users of the cluster."""
        ...


class ClusterLinks(Protocol):
    """Reach the links and the load balancers."""

    @property
    def links(self) -> Links: ...

    @property
    def balancers(self) -> LoadBalancers: ...


class ClusterEvidence(Protocol):
    """Collect what is recorded of the cluster."""

    def scraped(self, vhost: str, *, wanted: PrometheusRequest, data: Path) -> Scraping:
        """Start a Prometheus server that scrapes every node and the queues of ``vhost``, and keeps what is ``wanted``
        in the new folder ``data``. The caller closes the server; it ends with the cluster at the latest."""
        ...

    def logs(self) -> Mapping[str, Path]:
        """Return the log file of every node, of every balancer, and of programs that act on nodes, by name."""
        ...

    def configurations(self) -> Mapping[str, str]:
        """Return the texts of the balancers' configuration files, by file name."""
        ...

    def round_trips(self) -> RoundTrips | None: ...


class Cluster(
    ClusterDescription,
    Endpoints,
    NodeObservation,
    ProcessKills,
    ProcessPauses,
    NodeRestarts,
    ClusterLinks,
    BrokerTools,
    BrokerChanges,
    NodeSettings,
    NodeData,
    ClusterEvidence,
    RunScope,
    Protocol,
):
    """Running brokers of one topology. Node arguments are topology names (``a1``)."""
