"""Open the ways to the machines of a cluster: ``_OPENED`` has each way that a cluster file can offer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Self

from rabbitmq_resilience.extensions.attached.changing import ChangedBroker
from rabbitmq_resilience.extensions.attached.cluster_file import KnownCluster
from rabbitmq_resilience.extensions.attached.cluster_model import AttachedNode, forwarded_port
from rabbitmq_resilience.extensions.attached.commanded import (
    CommandedBroker,
    CommandedLinks,
    OurMachine,
    Surroundings,
    key_of,
)
from rabbitmq_resilience.extensions.attached.delays import Delays
from rabbitmq_resilience.extensions.attached.disk_filling import RemoteDisk
from rabbitmq_resilience.extensions.attached.foreign_broker import ForeignBroker, RemoteBroker
from rabbitmq_resilience.extensions.attached.held_links import HeldLinks
from rabbitmq_resilience.extensions.attached.journal import cluster_state
from rabbitmq_resilience.extensions.attached.logs import FileLog, Log
from rabbitmq_resilience.extensions.attached.machine import Machine
from rabbitmq_resilience.extensions.attached.orchestrator import Orchestrator
from rabbitmq_resilience.extensions.attached.packet_rules import PacketRules, Rules
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.tools.closing import Closing
from rabbitmq_resilience.tools.extras import install_command


@dataclass
class Ways(Closing):
    """What can be acted on at each node whose machine can be reached, by Erlang name."""

    machines: Mapping[str, Machine] = field(default_factory=dict)
    #: The machines on which watchdogs run, by their names for people.
    keepers: Mapping[str, Machine] = field(default_factory=dict)
    brokers: Mapping[str, ForeignBroker] = field(default_factory=dict)
    rules: Mapping[str, Rules] = field(default_factory=dict)
    logs: Mapping[str, Log] = field(default_factory=dict)
    delays: Mapping[str, Delays] = field(default_factory=dict)
    disks: Mapping[str, RemoteDisk] = field(default_factory=dict)
    #: Brokers that RabbitMQ's own tools can change, with a watchdog that changes them back.
    changed: Mapping[str, ChangedBroker] = field(default_factory=dict)
    distribution_only: bool = False
    #: The machines from whose network links between brokers are probed; None: that is ``machines``.
    network: Mapping[str, Machine] | None = None
    #: Returns the addresses at which nodes find each other, if their machines are not asked for them. Its argument has
    #: the nodes by their names in a topology.
    addresses: Callable[[Mapping[str, AttachedNode]], Mapping[Link, Sequence[str]]] | None = None
    #: Whether brokers come back by themselves, maybe before they are given back.
    restarted: bool = False
    #: Returns, in words, what differs from the cluster file.
    contrary: Callable[[], list[str]] = list
    #: Returns the links if they are not cut by rules. Its argument has the nodes by their names in a topology.
    links: Callable[[Mapping[str, AttachedNode]], HeldLinks] | None = None
    #: The orchestrator that keeps the brokers running, if it can be asked to act.
    orchestrator: Orchestrator | None = None
    #: Where the nodes are, for people; needed if nodes elsewhere may have the same names.
    place: str = ""
    stack: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of(cls, known: KnownCluster) -> Self:
        """Return the ways that the cluster file offers; nothing is connected yet.

        Raise ClusterError if a library for a way is missing here.
        """
        way = known.stated.offers.way
        return cls(**vars(_OPENED[way](known))) if way else cls()

    def close(self) -> None:
        self.stack.close()


@contextmanager
def reached(known: KnownCluster) -> Iterator[KnownCluster]:
    """Yield the same cluster, with addresses that programs on this machine can reach.

    Raise ClusterError if they cannot be reached.
    """
    if all(forwarded_port(text) is None for one in known.stated.nodes for text in one.addresses):
        yield known
        return
    with client_module("tunnels").forwarded(known) as found:
        yield found


def _by_ssh(known: KnownCluster) -> Ways:
    way = _needing("ssh", "rabbitmq_resilience.extensions.attached.ssh")
    ssh = known.stated.offers.ssh
    assert ssh is not None, "only what is offered is opened"
    folder = known.path.resolve().parent
    with ExitStack() as stack:
        loop = stack.enter_context(way.SshLoop())
        machines: dict[str, Machine] = {}
        for node in known.stated.nodes:
            host = ssh.host_of(node.name)
            machines[node.name] = stack.enter_context(way.SshMachine(loop, ssh, host=host, folder=folder))
        keys = {name: key_of(name) for name in machines}
        brokers = {name: RemoteBroker(machines[name], ssh.broker, node=name, key=key) for name, key in keys.items()}
        return Ways(
            machines,
            machines,
            brokers,
            {name: PacketRules(machines[name], key=key) for name, key in keys.items()},
            {name: FileLog(machines[name], ssh.log_of(name)) for name in keys},
            disks={
                name: RemoteDisk(machines[name], brokers[name], ssh.disk, key)
                for name, key in keys.items()
                if ssh.disk is not None
            },
            delays={name: Delays(machines[name], ssh.port, key) for name, key in keys.items()},
            changed={name: ChangedBroker(machines[name], brokers[name], name, key) for name, key in keys.items()},
            distribution_only=ssh.cut == "distribution",
            stack=stack.pop_all(),
        )


def _by_commands(known: KnownCluster) -> Ways:
    commands = known.stated.offers.commands
    assert commands is not None, "only what is offered is opened"
    keeper = OurMachine.of_user(cluster_state(known.stated.cluster))
    folder = known.path.resolve().parent
    brokers = {
        node.name: CommandedBroker(node.name, commands, keeper, Surroundings.of(node, folder))
        for node in known.stated.nodes
    }
    links = None if commands.cut is None else partial(CommandedLinks, commands.cut, keeper, folder)
    taking = [commands.kill, commands.stop, commands.pause]
    by_itself = any(act is not None and act.ends == "itself" for act in taking)
    return Ways(keepers={keeper.description: keeper}, brokers=brokers, links=links, restarted=by_itself)


def _by_kubernetes(known: KnownCluster) -> Ways:
    ways: Ways = client_module("way").by_kubernetes(known)
    return ways


def client_module(module: str) -> Any:
    """Return a module that needs the client of Kubernetes."""
    return _needing("kubernetes", f"rabbitmq_resilience.extensions.attached.kubernetes.{module}")


def _needing(extra: str, module: str) -> Any:
    """Return a module that needs the libraries of an optional part of this package."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ClusterError(f"offers.{extra} needs {error.name}: {install_command(extra)}") from error


_OPENED: Mapping[str, Callable[[KnownCluster], Ways]] = {
    "ssh": _by_ssh,
    "commands": _by_commands,
    "kubernetes": _by_kubernetes,
}
