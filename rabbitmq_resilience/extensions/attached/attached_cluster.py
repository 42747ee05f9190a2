"""Present an existing cluster to scenarios, with its nodes by their names in the topology."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rabbitmq_resilience.extensions.attached.disk_filling import HeldDisk
from rabbitmq_resilience.extensions.attached.disturbing import Knocker, treated_packets
from rabbitmq_resilience.extensions.attached.fault_budget import BlastRadius
from rabbitmq_resilience.extensions.attached.foreign_broker import MachineProcess
from rabbitmq_resilience.extensions.attached.machine_links import AttachedLinks, BrokerLinks
from rabbitmq_resilience.extensions.attached.nodes import AttachedNodes
from rabbitmq_resilience.extensions.attached.orchestrator import Claims, Orchestrator
from rabbitmq_resilience.model.access import Access, Endpoint
from rabbitmq_resilience.model.actions import ACTIONS
from rabbitmq_resilience.model.broker_changes import BrokerChange
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import ANY_CLIENT, Link
from rabbitmq_resilience.model.node_options import NodeOptions
from rabbitmq_resilience.model.packets import Disturbance, DisturbedPackets
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.handshake import accepts
from rabbitmq_resilience.sut.broker.management import ManagementApi
from rabbitmq_resilience.sut.broker_host import Host
from rabbitmq_resilience.sut.node_protocol import LoadBalancers, NodeState, ProcessState
from rabbitmq_resilience.sut.prometheus_server import PrometheusServer, scraping
from rabbitmq_resilience.sut.protocol import PrometheusRequest
from rabbitmq_resilience.tools.closing import Closing

DRIVER = "attached"

#: The acts that take a broker away, and those of them that end its process.
_TAKING = tuple(verb for verb, action in ACTIONS.items() if action.takes_broker)
_ENDING = tuple(verb for verb, action in ACTIONS.items() if action.ends_process)


@dataclass(frozen=True)
class AttachedEnvironment:
    """What this machine gives to a scenario's cluster: a folder, free ports, programs, and the links."""

    host: Host
    folder: Path
    prometheus_port: int
    #: The port of the proxy that lets clients in, for each link that has one.
    link_ports: Mapping[Link, int]
    links: AttachedLinks
    #: Raises ClusterError if the run must not go on.
    check: Callable[[], None]


class AttachedCluster(Closing):
    """The ``protocol.Cluster`` of an existing cluster's nodes, by their names in the topology.

    Each act on brokers needs the permission of ``hands`` first. It ends by itself some time after ``for_s``, see
    ``lasting``.
    """

    def __init__(
        self,
        topology: Topology,
        nodes: AttachedNodes,
        ground: AttachedEnvironment,
        hands: BlastRadius,
        *,
        equipment: NodeOptions,
        stack: ExitStack,
    ) -> None:
        self.topology = topology
        self.equipment = equipment
        self.formed_in_s = 0.0
        self.replaced_settings: tuple[str, ...] = ()
        self._nodes = nodes
        self._ground = ground
        self._hands = hands
        self._stack = stack
        self._for_s = 0.0
        #: The changes that are not changed back yet, each with its node.
        self._changes: set[tuple[str, BrokerChange]] = set()

    @property
    def driver(self) -> str:
        """Return the name of the driver with the way to the machines, as results of several ways differ."""
        way = self._hands.stated.offers.way
        return f"{DRIVER} by {way}" if way else DRIVER

    @property
    def broker_version(self) -> str:
        return self._nodes.version

    @property
    def versions(self) -> Mapping[str, str]:
        versions = self._nodes.versions
        return versions if len(set(versions.values())) > 1 else {}

    @property
    def access(self) -> Access:
        return self._nodes.access

    @property
    def links(self) -> AttachedLinks:
        return self._ground.links.lasting(self._for_s)

    @property
    def balancers(self) -> LoadBalancers:
        raise ClusterError("an existing cluster has no load balancers of ours")

    def vhost_of(self, run: str) -> str:
        return self._nodes.given_vhost or run

    def lasting(self, for_s: float) -> Self:
        """Return the same cluster, whose acts are to last ``for_s`` and end by themselves a little later."""
        view = copy.copy(self)
        view._for_s = for_s
        return view

    def check(self) -> None:
        self._ground.check()

    def broker_name(self, node: str) -> str:
        return self._nodes.stated[node].name

    def amqp_endpoint(self, node: str, *, client: str | None = None) -> Endpoint:
        endpoint = self._nodes.stated[node].endpoint
        own = [] if client is None else [Link(client, node), Link(ANY_CLIENT, node)]
        port = next((port for link in own if (port := self._ground.link_ports.get(link)) is not None), None)
        return endpoint if port is None else Endpoint(self._ground.host.net.listen, port, endpoint.tls_name)

    def api(self, node: str) -> ManagementApi:
        return self._nodes.apis[node]

    def process(self, node: str) -> ProcessState:
        """Return the state of the broker's process.

        If there is no way to its machine, a broker that accepts clients counts as running.
        """
        broker = self._nodes.broker(node)
        if broker is not None:
            return broker.state()
        return "running" if self._accepts(node) else "gone"

    def life(self, node: str) -> str | None:
        broker = self._nodes.broker(node)
        found = None if broker is None else broker.process()
        return None if found is None else found.name

    def exit_status(self, node: str) -> int | None:  # noqa: ARG002 - it is unknown
        return None

    def pids(self) -> Mapping[str, int]:
        return {}

    @property
    def restarts_brokers(self) -> bool:
        return self._nodes.restarted

    def state(self, node: str) -> NodeState:
        process = self.process(node)
        if process != "running":
            return "down" if process == "gone" else "suspended"
        return "up" if self._accepts(node) else "paused"

    def kill(self, node: str) -> None:
        self._take("kill", node, lambda: self._nodes.backends[node].broker.kill(for_s=self._for_s))

    def stop(self, node: str) -> None:
        self._take("stop", node, lambda: self._nodes.backends[node].broker.stop(for_s=self._for_s))

    def pause(self, node: str) -> None:
        self._take("pause", node, lambda: self._nodes.backends[node].broker.pause(for_s=self._for_s))

    def start(self, node: str) -> None:
        self._give_back(node)

    def resume(self, node: str) -> None:
        self._give_back(node)

    def change(self, node: str, change: BrokerChange) -> None:
        self._hands.take(change.act, [self.broker_name(node)], for_s=self._for_s)
        if change.alarm:
            self._hands.alarming(self.broker_name(node), change.alarm)
        self._changes.add((node, change))
        self._nodes.changed(node).change(change, for_s=self._for_s)

    def change_back(self, node: str, change: BrokerChange) -> None:
        self._nodes.changed(node).change_back(change)
        self._changes.discard((node, change))
        self._hands.calmed(self.broker_name(node), change.alarm)
        if change.act not in {one.act for there, one in [*self._changes] if there == node}:
            self._hands.leave(change.act, [self.broker_name(node)])

    def disk(self, node: str) -> HeldDisk:
        """Return the disk of a node whose machine offers one."""
        nodes = self._nodes
        return HeldDisk(nodes.disk(node), self._hands, nodes.apis[node], self.broker_name(node), self._for_s)

    def disturb(self, links: Collection[Link], disturbance: Disturbance, *, for_s: float) -> DisturbedPackets:
        return treated_packets(self._ground.links.lasting(for_s), links, disturbance)

    def try_connections(
        self, links: Collection[Link], *, times: int, at_once: int, wait_s: float
    ) -> Mapping[Link, Sequence[float]]:
        of_brokers = self._ground.links.of_brokers
        assert isinstance(of_brokers, BrokerLinks), "acts that are not offered were refused before"
        found = {link.source: self._nodes.backends[link.source].broker.process() for link in links}
        pids = {node: process.pid for node, process in found.items() if isinstance(process, MachineProcess)}
        ends = of_brokers.ends
        knocker = Knocker(self._nodes.machines, pids, ends.addresses, ends.distribution_ports)
        there = [link for link in links if link.source in pids]
        return knocker.knock(there, times=times, at_once=at_once, wait_s=wait_s)

    def refusals(self, node: str) -> int:  # noqa: ARG002 - probes go to open ports only
        return 0

    def lose_data(self, node: str) -> None:
        self._take("lose_data", node, self._claims(node).delete)

    def stored_bytes(self, node: str) -> int:
        """Return how many bytes the broker has that it had stored before its data was lost."""
        return self._claims(node).stored_bytes()

    def configure(self, node: str, settings: Mapping[str, str]) -> None:  # noqa: ARG002 - of the protocol
        raise ClusterError(f"{node} is not ours: its configuration is left alone")

    def enable_feature_flag(self, node: str, flag: str) -> None:
        """Raise ClusterError: a flag cannot be disabled again."""
        raise ClusterError(f"{node} is not ours: {flag} is left alone")

    def run_tool(self, node: str, tool: str, *arguments: str, timeout_s: float = 60.0) -> str:
        return self._nodes.run_tool(node, tool, *arguments, timeout_s=timeout_s)

    def drain_machines(self, nodes: Collection[str], *, whole_zones: bool) -> None:
        names = self._names(nodes)
        self._hands.take("drain_node", names, for_s=self._for_s)
        self._orchestrator.draining.drain(names, whole_zones=whole_zones, for_s=self._for_s)

    def undrain_machines(self, nodes: Collection[str]) -> None:
        self._orchestrator.draining.uncordon(self._names(nodes))
        for node in nodes:
            self._nodes.backends[node].broker.give_back()
        self._hands.leave("drain_node", self._names(nodes))

    def open_machines(self, nodes: Collection[str]) -> Sequence[str]:
        return list(self._orchestrator.draining.open(self._names(nodes)))

    def misplaced(self, nodes: Collection[str]) -> Sequence[str]:
        stated = [self._nodes.stated[node] for node in nodes]
        return list(self._orchestrator.draining.misplaced({one.name: one.zone for one in stated}))

    def restart_all(self) -> None:
        self._hands.take("restart_all", self._names(self.topology.node_names), for_s=self._for_s, counted=1)
        self._orchestrator.rollout.begin()

    def not_restarted(self) -> Sequence[str]:
        left = list(self._orchestrator.rollout.left())
        if not left:
            self._hands.leave("restart_all", self._names(self.topology.node_names))
        return left

    def scraped(self, vhost: str, *, wanted: PrometheusRequest, data: Path) -> PrometheusServer:
        return scraping(
            self._ground.host,
            self._nodes.metrics_endpoints(),
            vhost=vhost,
            wanted=wanted,
            port=self._ground.prometheus_port,
            data=data,
        )

    def logs(self) -> Mapping[str, Path]:
        """Return a copy of each broker's log since the beginning of this scenario, by node."""
        return self._nodes.copied_logs(self._ground.folder)

    def configurations(self) -> Mapping[str, str]:
        return {}

    def round_trips(self) -> None:
        """Measure nothing: only a topology with a network of its own needs it, and an existing cluster has none."""

    def close(self) -> None:
        """Heal what is not healed yet, also what came back by itself or could not be healed before."""
        with self._stack, ExitStack() as each:
            held, full = self._hands.held(_TAKING), self._hands.held(["fill_disk"])
            for node in self.topology.node_names:
                if self.broker_name(node) in held:
                    each.callback(self._give_back, node)
                if self.broker_name(node) in full:
                    each.callback(self.disk(node).empty)
            for node, change in self._changes:
                each.callback(self.change_back, node, change)
            drained = self._hands.held(["drain_node"])
            if nodes := [node for node in self.topology.node_names if self.broker_name(node) in drained]:
                each.callback(self.undrain_machines, nodes)  # before brokers are given back

    @property
    def _orchestrator(self) -> Orchestrator:
        assert self._nodes.orchestrator is not None, "acts that are not offered were refused before"
        return self._nodes.orchestrator

    def _claims(self, node: str) -> Claims:
        if self._nodes.orchestrator is None:
            raise ClusterError(f"{node} is not ours: its data is left alone")
        return self._nodes.orchestrator.claims[self.broker_name(node)]

    def _names(self, nodes: Collection[str]) -> list[str]:
        return sorted(map(self.broker_name, nodes))

    def _accepts(self, node: str) -> bool:
        endpoint = self._nodes.stated[node].endpoint
        return accepts(endpoint.host, endpoint.port)

    def _take(self, act: str, node: str, take: Callable[[], None]) -> None:
        self._hands.take(act, [self.broker_name(node)], for_s=self._for_s)
        take()

    def _give_back(self, node: str) -> None:
        """Give the broker back, and record its acts as healed once it is seen to run."""
        self._nodes.backends[node].broker.give_back()
        name = self.broker_name(node)
        for change in [one for there, one in self._changes if there == node and name in self._hands.held(_ENDING)]:
            self.change_back(node, change)  # the change ended with the process that had it
        for act in _TAKING:
            self._hands.leave(act, [name])
