"""What runs the brokers, and what each driver lets faults act on. A new driver is one line in ``DRIVERS``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rabbitmq_resilience.clusters.broker.environment import open_files
from rabbitmq_resilience.clusters.broker.erlang_modules import compiled_erlang
from rabbitmq_resilience.clusters.broker.plugins import require_plugins
from rabbitmq_resilience.clusters.broker.versions import (
    ANY_IMAGE,
    UPGRADE_TO,
    require_features,
    require_maintenance_mode,
    require_ram_nodes,
    require_supported,
)
from rabbitmq_resilience.clusters.processes.cluster import LocalCluster
from rabbitmq_resilience.clusters.processes.homes import WrongBrokerError, of_version
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

#: The broker versions that are played in containers where no other is asked for, in the order in which scenarios take
#: them.
IMAGES_AT_HOME = ("4.0.5", "4.3.6", "3.10.8")
DEFAULT_VERSION = IMAGES_AT_HOME[0]


AT_HOME = "at home"


@dataclass(frozen=True)
class OpenDriver:
    """A driver that has found its broker. ``form`` gives a cluster of it, as ``RunningCluster.formed_on`` or
    ``Attachment.form``;
    ``find_prometheus`` raises ``ToolMissingError`` if there is none for scenarios that are measured, ``require`` if
    something is missing that faults need."""

    broker_version: str
    form: Callable[..., Any]
    find_prometheus: Callable[[], object]
    require: Callable[[Collection[str]], None] = lambda _: None
    #: Of a version or image that is asked for. Raises ToolMissingError or ImageNameError.
    version_of: Callable[[str], str] = lambda wanted: wanted
    #: Nothing of it is of use afterwards.
    close: Callable[[], None] = lambda: None
    #: Whether a cluster may serve one scenario after another without being formed anew.
    keeps: bool = True
    #: Where the broker comes from, such as "named by RABBITMQ_HOME".
    origin: str = AT_HOME
    #: Where no broker was named: which versions scenarios may be played on instead, in the order in which they take
    #: them.
    homes: Sequence[str] = ()
    #: What is wrong with a cluster that runs already, and is not whole; empty otherwise.
    not_whole: Callable[[], str] = lambda: ""


def _local(wanted: str | None) -> OpenDriver:
    """Open the driver of processes. ``wanted`` is a version or a series that is at home, or the folder of a broker."""
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
    """Raises ToolMissingError with what a topology or a load needs and is missing (see ``spec.Topology.needs``)."""
    if "haproxy" in needs:
        find_haproxy()
    require_ram_nodes(broker.version, needs)
    require_maintenance_mode(broker.version, needs)
    require_features(broker.version, needs)
    require_plugins(broker, needs)
    later = {kind: _ready(needs, kind) for kind in (ANY_IMAGE, UPGRADE_TO)}
    require_supported(broker.version, later[UPGRADE_TO])


def _ready(needs: Collection[str], kind: str) -> list[str]:
    """Return the versions that nodes are to become, all of which are there now."""
    found = [of_version(need.removeprefix(kind)) for need in needs if need.startswith(kind)]
    for broker in found:
        compiled_erlang(broker)
    return [broker.version for broker in found]


def _docker(wanted: str | None) -> OpenDriver:
    # Only who asks for containers waits for what speaks to their engine.
    from rabbitmq_resilience.clusters.containers.cluster import DockerCluster  # noqa: PLC0415 - for containers only
    from rabbitmq_resilience.clusters.containers.engine import connected, find_broker_image, find_image  # noqa: PLC0415 - for containers only
    from rabbitmq_resilience.clusters.containers.requirements import require  # noqa: PLC0415 - for containers only

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
    """Return the versions at home of ``local`` or ``docker``, in the order in which scenarios take them; none where
    RABBITMQ_HOME names a broker for processes."""
    if driver == "docker":
        return IMAGES_AT_HOME
    return [home.version for home in brokers_at_home()] if driver == "local" and named_broker() is None else ()


@dataclass(frozen=True)
class Driver:
    """``offers`` is what faults may act on: links: connections between brokers, and of clients to them; processes:
    brokers; versions: what brokers become when they are upgraded; clients: publishers and consumers; balancers: load
    balancers before the brokers; packets: what brokers send each other; disks: what brokers store on; containers: what
    brokers run in; orchestrator: what keeps brokers running that run in pods.
    ``open`` finds the broker that is asked for, and raises ``ToolMissingError`` or ``WrongBrokerError``."""

    offers: frozenset[str]
    open: Callable[[str | None], OpenDriver]
    #: How many files each of its brokers may open; None where that is not for this machine to say.
    open_files: Callable[[], int | None] = lambda: None


def _attached(wanted: str | None) -> OpenDriver:  # noqa: ARG001 - as all are opened
    raise WrongBrokerError(f"a cluster that is there already is named by its file: {OPTION}cluster FILE")


def attach(file: Path) -> OpenDriver:
    """The driver of the cluster that a cluster file describes. Raises ClusterFileError, and ClusterError where it is
    not there as described, or another run has it."""
    from rabbitmq_resilience.clusters.attached.attaching import Attachment  # noqa: PLC0415 - for such clusters only
    from rabbitmq_resilience.clusters.attached.cluster_file import load  # noqa: PLC0415 - for such clusters only

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


DRIVERS: Mapping[str, Driver] = {
    "local": Driver(frozenset({"links", "processes", "versions", "clients", "balancers"}), _local, open_files),
    "docker": Driver(
        frozenset({"links", "processes", "versions", "clients", "balancers", "packets", "disks", "containers"}), _docker
    ),
    "attached": Driver(frozenset({"links", "processes", "clients", "packets", "disks", "orchestrator"}), _attached),
}

#: Those that form their clusters, and can be asked for by name.
FORMING: Mapping[str, Driver] = {name: driver for name, driver in DRIVERS.items() if name != "attached"}
