"""Define the drivers that run brokers, and what each lets faults act on. A new driver is one line in ``DRIVERS``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from rabbitmq_resilience.sut.broker.environment import open_files
from rabbitmq_resilience.sut.broker.erlang_modules import compiled_erlang
from rabbitmq_resilience.sut.broker.plugins import require_plugins
from rabbitmq_resilience.sut.broker.versions import (
    ANY_IMAGE,
    UPGRADE_TO,
    require_features,
    require_maintenance_mode,
    require_ram_nodes,
    require_supported,
)
from rabbitmq_resilience.sut.preload.library import find_build
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.sut.processes.version_homes import WrongBrokerError, of_version
from rabbitmq_resilience.tools.distributions import (
    BrokerHome,
    brokers_at_home,
    find_broker,
    find_haproxy,
    find_prometheus,
    named_broker,
)
from rabbitmq_resilience.tools.image_names import PROMETHEUS
from rabbitmq_resilience.tools.locations import OPTION

#: The broker versions for containers if the user names no version, in the order in which scenarios try them.
IMAGES_AT_HOME = ("4.0.5", "4.3.6", "3.10.8")
DEFAULT_VERSION = IMAGES_AT_HOME[0]


AT_HOME = "at home"


@dataclass(frozen=True)
class OpenDriver:
    """A driver that has found its broker. ``form`` returns a cluster, as ``RunningCluster.formed_on`` or
    ``Attachment.form`` do. ``find_prometheus`` raises ``ToolMissingError`` if there is no Prometheus for measured
    scenarios. ``require`` raises it if something that faults need is missing."""

    broker_version: str
    form: Callable[..., Any]
    find_prometheus: Callable[[], object]
    require: Callable[[Collection[str]], None] = lambda _: None
    #: Return the broker version of a version or image name. Raise ToolMissingError or ImageNameError.
    version_of: Callable[[str], str] = lambda wanted: wanted
    #: Release what the driver holds. The driver and its clusters cannot be used afterwards.
    close: Callable[[], None] = lambda: None
    #: Whether a cluster may serve one scenario after another without being formed again.
    keeps: bool = True
    #: Where the broker comes from, such as "named by RABBITMQ_HOME".
    origin: str = AT_HOME
    #: If the user named no broker: the available versions that scenarios may use, in the order in which they try
    #: them.
    homes: Sequence[str] = ()
    #: Return what is wrong with an attached cluster that is not whole; empty if it is whole.
    not_whole: Callable[[], str] = lambda: ""


def _local(wanted: str | None) -> OpenDriver:
    """Open the driver of processes. ``wanted`` is an installed version or series, or the folder of a broker."""
    homes: Sequence[str] = ()
    if wanted is not None:
        broker, origin = of_version(wanted), f"in {wanted}" if "/" in wanted else AT_HOME
    elif named_broker() is not None:
        broker, origin = find_broker(), "named by RABBITMQ_HOME"
    else:
        broker, origin = find_broker(), AT_HOME
        homes = [home.version for home in brokers_at_home()]
    return OpenDriver(
        broker.version,
        partial(LocalCluster.form, broker=broker),
        find_prometheus,
        partial(_require, broker),
        lambda other: of_version(other).version,
        origin=origin,
        homes=homes,
    )


def _require(broker: BrokerHome, needs: Collection[str]) -> None:
    """Raise ToolMissingError if something that a topology or a load needs is missing (see ``spec.Topology.needs``)."""
    if "haproxy" in needs:
        find_haproxy()
    if "disk-faults" in needs:
        find_build()
    require_ram_nodes(broker.version, needs)
    require_maintenance_mode(broker.version, needs)
    require_features(broker.version, needs)
    require_plugins(broker, needs)
    later = {kind: _ready(needs, kind) for kind in (ANY_IMAGE, UPGRADE_TO)}
    require_supported(broker.version, later[UPGRADE_TO], needs)


def _ready(needs: Collection[str], kind: str) -> list[str]:
    """Find the brokers of all needs of this ``kind``, compile our modules for them, and return their versions."""
    found = [of_version(need.removeprefix(kind)) for need in needs if need.startswith(kind)]
    for broker in found:
        compiled_erlang(broker)
    return [broker.version for broker in found]


def _docker(wanted: str | None) -> OpenDriver:
    # The client of the container engine is imported only if containers are requested, as the import is slow.
    from rabbitmq_resilience.sut.containers.container_cluster import DockerCluster  # noqa: PLC0415 - for containers only
    from rabbitmq_resilience.sut.containers.engine_client import connected, find_broker_image, find_image  # noqa: PLC0415 - for containers only
    from rabbitmq_resilience.sut.containers.requirements import require  # noqa: PLC0415 - for containers only

    with ExitStack() as opened:
        client = opened.enter_context(connected())
        image = find_broker_image(client, wanted or DEFAULT_VERSION)
        return OpenDriver(
            image.broker.version,
            partial(DockerCluster.form, image=image),
            partial(find_image, client, PROMETHEUS),
            partial(require, client, image),
            lambda other: find_broker_image(client, other).broker.version,
            opened.pop_all().close,
            homes=IMAGES_AT_HOME if wanted is None else (),
        )


def versions_at_home(driver: str) -> Sequence[str]:
    """Return the default versions of ``local`` or ``docker``, in the order in which scenarios try them. Return none if
    RABBITMQ_HOME names a broker for processes."""
    if driver == "docker":
        return IMAGES_AT_HOME
    return [home.version for home in brokers_at_home()] if driver == "local" and named_broker() is None else ()


@dataclass(frozen=True)
class Driver:
    """A driver of clusters.

    ``offers`` names what faults may act on: links: connections between brokers, and of clients to brokers; processes:
    brokers; versions: the versions to which brokers can be upgraded; clients: publishers and consumers; balancers: load
    balancers in front of the brokers; packets: packets between brokers; disks: the disks with the brokers' data;
    containers: the containers of brokers; data: the files that brokers
    store, and their calls to the disk; orchestrator: the controller that keeps brokers in pods running.
    ``open`` finds the requested broker, and raises ``ToolMissingError`` or ``WrongBrokerError``.
    """

    offers: frozenset[str]
    open: Callable[[str | None], OpenDriver]
    #: Return how many files each broker may open; None if this machine cannot know that.
    open_files: Callable[[], int | None] = lambda: None


def _attached(wanted: str | None) -> OpenDriver:  # noqa: ARG001 - as all are opened
    raise WrongBrokerError(f"to attach to a running cluster, name its cluster file: {OPTION}cluster FILE")


DRIVERS: Mapping[str, Driver] = {
    "local": Driver(frozenset({"links", "processes", "versions", "clients", "balancers", "data"}), _local, open_files),
    "docker": Driver(
        frozenset({"links", "processes", "versions", "clients", "balancers", "packets", "disks", "containers", "data"}),
        _docker,
    ),
    "attached": Driver(frozenset({"links", "processes", "clients", "packets", "disks", "orchestrator"}), _attached),
}

#: The drivers that form clusters, and that users can choose by name.
FORMING: Mapping[str, Driver] = {name: driver for name, driver in DRIVERS.items() if name != "attached"}
