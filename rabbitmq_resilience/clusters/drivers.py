"""What runs the brokers, and what each driver lets faults act on. A new driver is one line in ``DRIVERS``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rabbitmq_resilience.clusters.broker.environment import open_files
from rabbitmq_resilience.clusters.broker.plugins import require_plugins
from rabbitmq_resilience.clusters.broker.versions import require_features, require_maintenance_mode, require_ram_nodes
from rabbitmq_resilience.clusters.processes.cluster import LocalCluster
from rabbitmq_resilience.tools.distributions import BrokerHome, find_broker, find_haproxy, find_prometheus
from rabbitmq_resilience.tools.image_names import PROMETHEUS
from rabbitmq_resilience.tools.locations import OPTION

#: The broker version that is played in containers where nothing else is asked for.
DEFAULT_VERSION = "3.10.8"


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


def _local(wanted: str | None) -> OpenDriver:
    """``wanted``: the version that must be there, or the folder of another one."""
    if wanted is not None and "/" in wanted:
        broker, wanted = find_broker(Path(wanted)), None
    else:
        broker = find_broker()
    if wanted is not None and wanted != broker.version:
        raise WrongBrokerError(
            f"{OPTION}broker {wanted}: the driver local plays {broker.version}, which it found in {broker.home}. Name "
            f"another one by its folder ({OPTION}rabbitmq-home), or take {OPTION}driver docker, which has versions as "
            "images"
        )
    return OpenDriver(
        broker.version, partial(LocalCluster.form, broker=broker), find_prometheus, partial(_require, broker)
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
        )


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
