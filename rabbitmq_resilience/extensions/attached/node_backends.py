"""Open the backends of a cluster's nodes: ``_OPENED`` has each that a cluster file can offer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from rabbitmq_resilience.extensions.attached.offers import Ssh
from rabbitmq_resilience.extensions.attached.orchestrator import Orchestrator
from rabbitmq_resilience.extensions.attached.packet_rules import PacketRules, Rules
from rabbitmq_resilience.model.actions import ActionWay
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.tools.closing import Closing
from rabbitmq_resilience.tools.extras import install_command


@dataclass(frozen=True)
class NodeBackend:
    """What can be acted on at one node. A part is None where its backend does not have it."""

    broker: ForeignBroker
    machine: Machine | None = None
    rules: Rules | None = None
    log: Log | None = None
    delays: Delays | None = None
    disk: RemoteDisk | None = None
    #: Changes of the broker by RabbitMQ's own tools, with a watchdog that changes it back.
    changed: ChangedBroker | None = None

    def lacking(self, way: ActionWay, *, stored_in: str, peers: Collection[str]) -> list[str]:
        """Return, in words, what the machine lacks for an action that is done this way. Raise MachineError if it
        cannot be asked.

        ``stored_in``: the folder of the broker's data. ``peers``: the addresses of the other nodes.
        """
        if way.needs == "packet_rules" and self.rules is not None:
            return [] if self.rules.tool else ["there is neither nft nor iptables that we may use"]
        if way.needs == "delays" and self.delays is not None:
            return self.delays.lacking(peers)
        if way.needs == "tools" and self.changed is not None:
            return self.changed.lacking(way.programs)
        if way.needs == "service" and isinstance(self.broker, RemoteBroker):
            return self.broker.lacking()
        if way.needs == "disk" and self.disk is not None and isinstance(self.broker, RemoteBroker):
            return [*self.broker.lacking(), *self.disk.lacking(stored_in=stored_in)]
        assert not way.needs, "only nodes that are reached by ssh need anything, and have it all"
        return []


@dataclass(frozen=True)
class LinkBackend:
    """How links between brokers are treated and probed, where that differs from rules on the nodes' machines.

    ``addresses``, ``commanded``: functions of the nodes by their names in a topology.
    """

    distribution_only: bool = False
    #: The machines from whose network links are probed; None: those of the nodes.
    network: Mapping[str, Machine] | None = None
    #: Returns the addresses at which nodes find each other, if their machines are not asked for them.
    addresses: Callable[[Mapping[str, AttachedNode]], Mapping[Link, Sequence[str]]] | None = None
    #: Returns the links if they are not cut by rules.
    commanded: Callable[[Mapping[str, AttachedNode]], HeldLinks] | None = None


@dataclass
class NodeBackends(Closing):
    """What can be acted on in a cluster: ``nodes`` has each node that can be reached, by Erlang name."""

    nodes: Mapping[str, NodeBackend] = field(default_factory=dict)
    links: LinkBackend = LinkBackend()
    #: The machines on which watchdogs run, by their names for people.
    keepers: Mapping[str, Machine] = field(default_factory=dict)
    #: The orchestrator that keeps the brokers running, if it can be asked to act.
    orchestrator: Orchestrator | None = None
    #: Whether brokers come back by themselves, maybe before they are given back.
    restarted: bool = False
    #: Returns, in words, what differs from the cluster file.
    config_mismatch: Callable[[], list[str]] = list
    #: Where the nodes are, for people; needed if nodes elsewhere may have the same names.
    place: str = ""
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def machines(self) -> dict[str, Machine]:
        return {name: node.machine for name, node in self.nodes.items() if node.machine is not None}

    @property
    def brokers(self) -> dict[str, ForeignBroker]:
        return {name: node.broker for name, node in self.nodes.items()}

    @classmethod
    def of(cls, known: KnownCluster) -> Self:
        """Return the backends that the cluster file offers; nothing is connected yet.

        Raise ClusterError if a library for one is missing here.
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


def _by_ssh(known: KnownCluster) -> NodeBackends:
    client = _needing("ssh", "rabbitmq_resilience.extensions.attached.ssh")
    ssh = known.stated.offers.ssh
    assert ssh is not None, "only what is offered is opened"
    folder = known.path.resolve().parent
    with ExitStack() as stack:
        loop = stack.enter_context(client.SshLoop())
        nodes: dict[str, NodeBackend] = {}
        for name in (node.name for node in known.stated.nodes):
            machine = stack.enter_context(client.SshMachine(loop, ssh, host=ssh.host_of(name), folder=folder))
            nodes[name] = _on_machine(machine, ssh, name)
        keepers = {name: node.machine for name, node in nodes.items() if node.machine is not None}
        links = LinkBackend(distribution_only=ssh.cut == "distribution")
        return NodeBackends(nodes, links, keepers, stack=stack.pop_all())


def _on_machine(machine: Machine, ssh: Ssh, name: str) -> NodeBackend:
    """Return what can be acted on at a node whose machine is reached by ssh. ``name``: its Erlang name."""
    key = key_of(name)
    broker = RemoteBroker(machine, ssh.broker, node=name, key=key)
    return NodeBackend(
        broker,
        machine,
        PacketRules(machine, key=key),
        FileLog(machine, ssh.log_of(name)),
        Delays(machine, ssh.port, key),
        None if ssh.disk is None else RemoteDisk(machine, broker, ssh.disk, key),
        ChangedBroker(machine, broker, name, key),
    )


def _by_commands(known: KnownCluster) -> NodeBackends:
    commands = known.stated.offers.commands
    assert commands is not None, "only what is offered is opened"
    keeper = OurMachine.of_user(cluster_state(known.stated.cluster))
    folder = known.path.resolve().parent
    nodes = {
        node.name: NodeBackend(CommandedBroker(node.name, commands, keeper, Surroundings.of(node, folder)))
        for node in known.stated.nodes
    }
    cut = None if commands.cut is None else partial(CommandedLinks, commands.cut, keeper, folder)
    taking = [commands.kill, commands.stop, commands.pause]
    by_itself = any(act is not None and act.ends == "itself" for act in taking)
    return NodeBackends(nodes, LinkBackend(commanded=cut), {keeper.description: keeper}, restarted=by_itself)


def _by_kubernetes(known: KnownCluster) -> NodeBackends:
    backends: NodeBackends = client_module("pod_backends").by_kubernetes(known)
    return backends


def client_module(module: str) -> Any:
    """Return a module that needs the client of Kubernetes."""
    return _needing("kubernetes", f"rabbitmq_resilience.extensions.attached.kubernetes.{module}")


def _needing(extra: str, module: str) -> Any:
    """Return a module that needs the libraries of an optional part of this package."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ClusterError(f"offers.{extra} needs {error.name}: {install_command(extra)}") from error


_OPENED: Mapping[str, Callable[[KnownCluster], NodeBackends]] = {
    "ssh": _by_ssh,
    "commands": _by_commands,
    "kubernetes": _by_kubernetes,
}
