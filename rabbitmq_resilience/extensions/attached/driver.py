"""Provide attached clusters to the core: the driver of a cluster file, and what that file lets scenarios do."""

from __future__ import annotations

from pathlib import Path

from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.on_clusters import check, fitted
from rabbitmq_resilience.extensions.attached.plan import plan
from rabbitmq_resilience.sut.drivers import OpenDriver
from rabbitmq_resilience.tools.distributions import find_prometheus

__all__ = ["attach", "check", "fitted", "plan"]


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
