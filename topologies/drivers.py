"""What runs the brokers, and what each driver lets faults act on. A new driver is one line in ``DRIVERS``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from topologies.distributions import find_broker, find_prometheus
from topologies.images import PROMETHEUS
from topologies.local import LocalCluster
from topologies.running import RunningCluster

#: The broker version that is played in containers where nothing else is asked for.
DEFAULT_VERSION = "3.10.8"


@dataclass(frozen=True)
class Opened:
    """A driver that has found its broker. ``form`` starts a cluster of it, as ``RunningCluster.formed_on``;
    ``find_prometheus`` raises ``ToolMissingError`` if there is none for scenarios that are measured, ``require`` if
    something is missing that faults need."""

    broker_version: str
    form: Callable[..., RunningCluster]
    find_prometheus: Callable[[], object]
    require: Callable[[Collection[str]], None] = lambda _: None
    #: Of a version or image that is asked for. Raises ToolMissingError or ImageNameError.
    version_of: Callable[[str], str] = lambda wanted: wanted


def _local(wanted: str | None) -> Opened:
    broker = find_broker()
    if wanted is not None and wanted != broker.version:
        raise WrongBrokerError(
            f"--broker {wanted}: the driver local plays {broker.version}, which it found in {broker.home}. Name "
            "another one by its folder (--rabbitmq-home), or take --driver docker, which has versions as images"
        )
    return Opened(broker.version, partial(LocalCluster.form, broker=broker), find_prometheus)


def _docker(wanted: str | None) -> Opened:
    # Only who asks for containers waits for what speaks to their engine.
    from topologies.docker import DockerCluster  # noqa: PLC0415
    from topologies.engine import connect, find_broker_image, find_image  # noqa: PLC0415
    from topologies.provisions import require  # noqa: PLC0415

    client = connect()
    image = find_broker_image(client, wanted or DEFAULT_VERSION)
    form = partial(DockerCluster.form, image=image)
    find_prometheus = partial(find_image, client, PROMETHEUS)

    def version_of(wanted: str) -> str:
        return find_broker_image(client, wanted).broker.version

    return Opened(image.broker.version, form, find_prometheus, partial(require, client, image), version_of)


class WrongBrokerError(Exception):
    """The driver has no such broker; the text says what to ask for instead."""


@dataclass(frozen=True)
class Driver:
    """``offers`` is what faults may act on: links: connections between brokers, and of clients to them; processes:
    brokers; clients: publishers and consumers; packets: what brokers send each other; containers: what brokers run in.
    ``open`` finds the broker that is asked for, and raises ``ToolMissingError`` or ``WrongBrokerError``."""

    offers: frozenset[str]
    open: Callable[[str | None], Opened]


DRIVERS: Mapping[str, Driver] = {
    "local": Driver(frozenset({"links", "processes", "clients"}), _local),
    "docker": Driver(frozenset({"links", "processes", "clients", "packets", "containers"}), _docker),
}
