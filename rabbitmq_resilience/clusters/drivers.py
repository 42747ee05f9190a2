"""What runs the brokers, and what each driver lets faults act on. A new driver is one line in ``DRIVERS``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rabbitmq_resilience.clusters.broker.environment import open_files
from rabbitmq_resilience.clusters.broker.plugins import require_plugins
from rabbitmq_resilience.clusters.broker.versions import require_features, require_maintenance_mode, require_ram_nodes
from rabbitmq_resilience.clusters.processes.cluster import LocalCluster
from rabbitmq_resilience.tools import releases
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
from rabbitmq_resilience.tools.progress import Failed

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


def _local(wanted: str | None) -> OpenDriver:
    """Open the driver of processes. ``wanted`` is a version or a series that is at home, or the folder of a broker."""
    homes: Sequence[str] = ()
    if wanted is not None and "/" in wanted:
        broker, origin = find_broker(Path(wanted)), f"in {wanted}"
    elif wanted is not None:
        broker, origin = _of_version(wanted), AT_HOME
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
        origin=origin,
        homes=homes,
    )


def _of_version(wanted: str) -> BrokerHome:
    """Return the broker of that version or series, such as 4.3: the one that RABBITMQ_HOME names, one at home, or else
    RabbitMQ's own release of it, which is downloaded.

    Raises WrongBrokerError where there is none, and ToolMissingError where there is no Erlang for it.
    """
    there = brokers_at_home() if named_broker() is None else [find_broker()]
    if not re.fullmatch(r"\d+\.\d+(\.\d+(-\w+\.\d+)?)?", wanted):
        raise _wrong(wanted, there, "It is neither a version, such as 4.2.2, nor a series, such as 4.2")
    for home in there:
        if f"{home.version}.".startswith(f"{wanted}."):
            return home
    if named_broker() is not None:
        raise _wrong(wanted, there, "RABBITMQ_HOME names another one")
    try:
        return find_broker(releases.provide(wanted if wanted.count(".") > 1 else releases.newest(wanted)))
    except Failed as error:
        raise _wrong(wanted, there, f"RabbitMQ's release could not be had: {error}") from error


def _wrong(wanted: str, there: Sequence[BrokerHome], why: str) -> WrongBrokerError:
    known = ", ".join(f"{home.version} ({home.home})" for home in there) or "none"
    return WrongBrokerError(
        f"{OPTION}broker {wanted}: at home as processes: {known}. {why}. Name a broker by its folder "
        f"({OPTION}rabbitmq-home), or take {OPTION}driver containers, which has versions as images"
    )


def _require(broker: BrokerHome, needs: Collection[str]) -> None:
    """Raises ToolMissingError with what a topology or a load needs and is missing (see ``spec.Topology.needs``)."""
    if "haproxy" in needs:
        find_haproxy()
    require_ram_nodes(broker.version, needs)
    require_maintenance_mode(broker.version, needs)
    require_features(broker.version, needs)
    require_plugins(broker, needs)


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


class WrongBrokerError(Exception):
    """The driver has no such broker; the text says what to ask for instead."""


@dataclass(frozen=True)
class Driver:
    """``offers`` is what faults may act on: links: connections between brokers, and of clients to them; processes:
    brokers; clients: publishers and consumers; balancers: load balancers before the brokers; packets: what brokers send
    each other; disks: what brokers store on; containers: what brokers run in; orchestrator: what keeps brokers running
    that run in pods.
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
        close=attachment.close,
        keeps=False,
        origin=f"on the cluster of {file.name}",
    )


DRIVERS: Mapping[str, Driver] = {
    "local": Driver(frozenset({"links", "processes", "clients", "balancers"}), _local, open_files),
    "docker": Driver(
        frozenset({"links", "processes", "clients", "balancers", "packets", "disks", "containers"}), _docker
    ),
    "attached": Driver(frozenset({"links", "processes", "clients", "packets", "disks", "orchestrator"}), _attached),
}

#: Those that form their clusters, and can be asked for by name.
FORMING: Mapping[str, Driver] = {name: driver for name, driver in DRIVERS.items() if name != "attached"}
