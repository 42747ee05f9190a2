"""Provide attached clusters to the core: their brokers, their driver, and what a cluster file lets scenarios do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.node_backends import reached
from rabbitmq_resilience.extensions.attached.on_clusters import check, fitted
from rabbitmq_resilience.extensions.attached.plan import plan
from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.sut.drivers import OpenDriver
from rabbitmq_resilience.tools.distributions import find_prometheus

__all__ = ["attach", "brokers", "check", "fitted", "plan"]


def attach(file: Path) -> OpenDriver:
    """Return the driver of the cluster that a cluster file describes. Raise ClusterFileError if the file is wrong.
    Raise ClusterError if the cluster differs from its description, or if another run uses it."""
    attachment = Attachment(load(file))
    return OpenDriver(
        attachment.found.version,
        attachment.form,
        find_prometheus,
        attachment.require,
        not_whole=attachment.not_whole,
        close=attachment.close,
        keeps=False,
        origin=f"on the cluster of {file.name}",
    )


@contextmanager
def brokers(file: Path) -> Iterator[tuple[Mapping[str, Endpoint], str | None]]:
    """Yield where programs on this machine reach each broker, by its Erlang name, and the file of the authorities that
    its certificate is checked with. Raise ClusterFileError, or ClusterError if pods are not reached."""
    with reached(load(file)) as known:
        yield {node.name: node.endpoint for node in known.stated.nodes}, known.access.ca
