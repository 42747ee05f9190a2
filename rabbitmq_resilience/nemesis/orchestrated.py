"""A helper for faults on brokers that an orchestrator keeps running."""

from __future__ import annotations

from rabbitmq_resilience.sut.orchestration import OrchestratedActs
from rabbitmq_resilience.sut.protocol import Cluster


def orchestrated(cluster: Cluster) -> OrchestratedActs:
    assert isinstance(cluster, OrchestratedActs), "what a driver does not offer is refused before"
    return cluster
