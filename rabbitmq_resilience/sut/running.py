"""Run a cluster: everything that does not depend on whether brokers are processes or containers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import ANY_CLIENT, Link, is_balancer
from rabbitmq_resilience.model.node_options import NONE, NodeOptions
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.balancing import RunningBalancers
from rabbitmq_resilience.sut.broker.environment import joining_folder
from rabbitmq_resilience.sut.broker.handshake import accepts
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.sut.broker_host import Host, output_of
from rabbitmq_resilience.sut.finishing import finish
from rabbitmq_resilience.sut.formed import Formed
from rabbitmq_resilience.sut.last_words import cause_of, last_words
from rabbitmq_resilience.sut.linking import round_trips, start_links
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK, default_root, take_claim
from rabbitmq_resilience.sut.machine.reaper import Reaper
from rabbitmq_resilience.sut.network.proxied_links import ConnectionTraffic, ToxiproxyLinks
from rabbitmq_resilience.sut.node_protocol import NodeState, ProcessState
from rabbitmq_resilience.sut.port_layout import PortLayout, broker_name, ports_needed
from rabbitmq_resilience.sut.preload.preloaded_disk import PreloadedDisk
from rabbitmq_resilience.sut.prometheus_server import PrometheusServer, scraping
from rabbitmq_resilience.sut.protocol import PrometheusRequest
from rabbitmq_resilience.sut.round_trip_probes import RoundTrips
from rabbitmq_resilience.sut.starting import start_in_turns
from rabbitmq_resilience.tools.distributions import BrokerHome
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until


class RunningCluster(Formed):
    """One cluster on its host; ``close`` (or leaving the context) ends its processes and removes its folder.

    Node arguments are names of the topology (``a1``). Methods raise ``ClusterError`` if a node does not reach the
    requested state.
    """

    def __init__(self, host: Host, layout: PortLayout, broker: BrokerHome) -> None:
        """Prepare the cluster without writing or starting anything. Callers use ``formed_on``."""
        self.topology = layout.topology
        #: Whether a node ever got other settings than those of the topology.
        self.reconfigured = False
        self.equipment = NONE
        #: The seconds from the start of the first program until every node saw all others.
        self.formed_in_s = 0.0
        self.broker_version = broker.version
        self._broker = broker
        self._host = host
        self._layout = layout
        self._apis = {n: ManagementApi(f"http://{LOOPBACK}:{ports.management}") for n, ports in layout.ports.items()}
        self._brokers = {n: host.broker(n, f, layout.environ(n), layout.ports[n]) for n, f in layout.files.items()}
        self.balancers = RunningBalancers(host, layout)
        self._links: ToxiproxyLinks | None = None
        self._stack = ExitStack()

    @classmethod
    def formed_on(
        cls,
        opened: Callable[[Path], Host],
        topology: Topology,
        broker: BrokerHome,
        ebin: Path,
        *,
        proxied: Collection[Link] = (),
        equipment: NodeOptions = NONE,
        logs_of_failure: Path | None = None,
        root: Path | None = None,
        timeout_s: float = 120.0,
    ) -> Self:
        """Start a cluster and return when it has formed.

        ``opened`` returns the cluster's host for a given folder. ``ebin``: this project's Erlang modules, compiled for
        ``broker``. ``proxied``: the links that must carry a proxy; the other direction of each gets one too.
        ``equipment``: the options of nodes; the host provides disks and clocks. ``root``: the parent of cluster
        folders; leftovers of dead runs are removed from it first. ``logs_of_failure``: the folder to which the brokers'
        logs are copied if the cluster does not form. Raise ClusterError then.
        """
        if unknown := [link for link in proxied if not topology.has_link(link)]:
            raise ClusterError(f"{topology.name} has no link {', '.join(map(str, sorted(unknown)))}")
        claim = take_claim(root or default_root(), ports=ports_needed(topology, proxied))
        with ExitStack() as stack:
            stack.callback(Reaper(claim.folder, claim.lock_file, claim.claim_fds).close)
            host = opened(claim.folder)
            stack.callback(host.close)
            layout = PortLayout(topology, frozenset(proxied), broker, claim, host.net, preloaded=equipment.preloaded)
            cluster = cls(host, layout, broker)
            for api in cluster._apis.values():
                stack.callback(api.close)
            stack.callback(cluster._end_processes)
            failed = stack.enter_context(ExitStack())
            if logs_of_failure is not None:
                failed.callback(cluster._copy_logs, logs_of_failure)
            cluster.equipment = equipment
            cluster._layout.write(ebin, plugins=equipment.plugins)
            begun_s = time.monotonic()
            cluster._links = start_links(host, cluster._layout, cluster, stack)
            cluster._boot(timeout_s=timeout_s)
            for node in equipment.preloaded:  # a cluster in use was formed long ago
                cluster.write_back(node)
            cluster.balancers.start_all(stack)
            cluster.formed_in_s = time.monotonic() - begun_s
            cluster._links.begin_network()
            failed.pop_all()
            cluster._stack = stack.pop_all()
        return cluster

    def close(self) -> None:
        """End every process and remove the folder. Return when both are gone."""
        self._stack.close()

    @property
    def driver(self) -> str:
        return self._host.driver

    @property
    def replaced_settings(self) -> tuple[str, ...]:
        return self._layout.replaced_settings

    @property
    def links(self) -> ToxiproxyLinks:
        assert self._links is not None, "the links exist once the cluster has been started"
        return self._links

    def broker_name(self, node: str) -> str:
        return broker_name(node)

    def node_of(self, broker_name: str) -> str:
        """Return the topology's name of an Erlang node."""
        return broker_name.partition("@")[0]

    def amqp_endpoint(self, node: str, *, client: str | None = None) -> Endpoint:
        direct = self.balancers.port(node) if is_balancer(node) else self._layout.ports[node].amqp
        own = [] if client is None else [Link(client, node), Link(ANY_CLIENT, node)]
        proxies = (self._layout.link_ports[link] for link in own if link in self._layout.link_ports)
        return Endpoint(LOOPBACK, next(proxies, direct))

    def management_port(self, node: str) -> int:
        return self._layout.ports[node].management

    def port_behind(self, link: Link) -> int:
        if is_balancer(link.target):
            return self.balancers.port(link.target)
        ports = self._layout.ports[link.target]
        return ports.distribution if link.client is None else ports.amqp

    def api(self, node: str) -> ManagementApi:
        return self._apis[node]

    def address(self, name: str) -> str:
        return self._host.address(name)

    def process(self, node: str) -> ProcessState:
        return self._brokers[node].state()

    def life(self, node: str) -> str | None:
        return self._brokers[node].life

    @property
    def restarts_brokers(self) -> bool:
        return False

    def pids(self) -> Mapping[str, int]:
        return {}

    def exit_status(self, node: str) -> int | None:
        return self._brokers[node].exit_status

    def state(self, node: str) -> NodeState:
        process = self.process(node)
        if process == "gone":
            return "down"
        if process == "suspended":
            return "suspended"
        return "up" if accepts(self.address(node), self._layout.ports[node].amqp) else "paused"

    def kill(self, node: str) -> None:
        self._brokers[node].kill()

    def stop(self, node: str, *, timeout_s: float = 60.0) -> None:
        self._brokers[node].stop(timeout_s=timeout_s)

    def start(self, node: str) -> None:
        self._layout.prepare_disk(node)
        self._brokers[node].start()

    def lose_data(self, node: str) -> None:
        if self.process(node) != "gone":
            raise ClusterError(f"{node} is {self.process(node)}: only a node whose process is gone can lose its data")
        shutil.rmtree(self._layout.files[node].data)
        self._layout.settle_disk(node)

    def data_folder(self, node: str) -> Path:
        """Return the folder of all files that a node stores. The cluster then serves no further scenario."""
        self.reconfigured = True
        return self._layout.files[node].data

    def preloaded_disk(self, node: str) -> PreloadedDisk:
        """Return the disk of a node among ``NodeOptions.preloaded``. The cluster then serves no further scenario."""
        self.reconfigured = True
        return self._layout.preloaded_disks[node]

    def settle(self, node: str) -> None:
        self._layout.settle_disk(node)

    def write_back(self, node: str) -> None:
        # Locks in the library's record are held by thread numbers, which differ between a container and its machine.
        environ, folder = self._layout.environ(node), self._layout.files[node].folder
        output_of(self._host, node, ["sync"], environ, folder=folder, call=f"sync for {node}", timeout_s=60)

    def stored_bytes(self, node: str) -> int:
        return self._layout.files[node].stored_bytes()

    def enable_feature_flag(self, node: str, flag: str) -> None:
        """Enable a flag; the cluster then serves no further scenario. Raise ApiError or ApiUnreachable if it fails."""
        self.reconfigured = True
        self._apis[node].enable_feature_flag(flag)

    def configure(self, node: str, settings: Mapping[str, str]) -> None:
        self.reconfigured = True
        self._layout.configure(node, settings)

    def run_tool(self, node: str, tool: str, *arguments: str, timeout_s: float = 60.0) -> str:
        command = [str(self._layout.homes[node].home / "sbin" / tool), "-n", self.broker_name(node), *arguments]
        call = f"{tool} {' '.join(arguments)} for {node}"
        environ, folder = self._layout.tool_environ(node), self._layout.files[node].folder
        return output_of(self._host, node, command, environ, folder=folder, call=call, timeout_s=timeout_s)

    def pause(self, node: str) -> None:
        self._brokers[node].pause()

    def resume(self, node: str) -> None:
        self._brokers[node].resume()

    def scraped(self, vhost: str, *, wanted: PrometheusRequest, data: Path) -> PrometheusServer:
        name_of, layout = self._host.net.name_of, self._layout
        endpoints = {n: f"{name_of(n)}:{ports.prometheus}" for n, ports in layout.ports.items()}
        return scraping(self._host, endpoints, vhost=vhost, wanted=wanted, port=layout.prometheus_port, data=data)

    def logs(self) -> Mapping[str, Path]:
        powers = {f"{n}-power": disk.log for n, disk in self._layout.preloaded_disks.items()}
        return {n: files.log for n, files in self._layout.files.items()} | self.balancers.logs() | powers

    def round_trips(self) -> RoundTrips | None:
        return round_trips(self._layout)

    def configurations(self) -> Mapping[str, str]:
        return self.balancers.configurations

    def traffic(self, node: str) -> Mapping[str, ConnectionTraffic]:
        """Return {peer: the traffic that ``node`` counts} for each connection that ``node`` considers alive. The
        counters are at most 0.2 s old."""
        if self.process(node) == "gone":
            return {}
        try:
            lines = self._layout.files[node].traffic.read_text().splitlines()
        except FileNotFoundError:
            return {}
        rows = (line.split() for line in lines)
        return {
            self.node_of(peer): ConnectionTraffic(connection, *map(int, counts)) for peer, connection, *counts in rows
        }

    def await_formed(self, *, timeout_s: float) -> None:
        """Wait until every node accepts AMQP and sees all nodes running. Raise ClusterError after ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        for node in self.topology.node_names:
            self._await_whole_view(node, timeout_s=deadline - time.monotonic())

    def _await_whole_view(self, node: str, *, timeout_s: float) -> None:
        all_names = frozenset(map(self.broker_name, self.topology.node_names))

        def lacks() -> str:
            self._raise_if_one_ended()
            if self.state(node) != "up":
                return f"{node} is {self.state(node)}"
            if not self._brokers[node].has_booted:
                return f"{node} has not completed its start"
            try:
                missing = all_names - self._apis[node].running_nodes()
            except (ApiError, ApiUnreachable) as error:
                return str(error)
            return f"{node} does not see {', '.join(sorted(missing))}" if missing else ""

        try:
            wait_until(
                lacks, timeout_s=timeout_s, poll_s=0.1, what=f"{node} to join its cluster", until=lambda s: not s
            )
        except WaitTimeout as error:
            raise ClusterError(f"{error}; {self._story(node)}") from error

    def _story(self, node: str) -> str:
        return last_words(node, self._log_or_output(node))

    def _log_or_output(self, node: str) -> Path:
        """Return the log of a node, or the output of its process if there is no log."""
        files = self._layout.files[node]
        return files.log if files.log.exists() else files.output

    def _copy_logs(self, folder: Path) -> None:
        logs = {node: self._log_or_output(node) for node in self._layout.files} | self.balancers.logs()
        for name, file in logs.items():
            if file.exists():
                shutil.copy(file, folder / f"{name}.log")

    def _boot(self, *, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        try:
            start_in_turns(
                self._brokers,
                release=self._broker.release,
                ram_nodes=self.topology.ram_nodes,
                joining=joining_folder(self._layout.folder),
                check=self._raise_if_one_ended,
                timeout_s=timeout_s,
            )
        except WaitTimeout as error:
            raise ClusterError(f"{error}; {self._story(next(iter(self._layout.files)))}") from error
        self.await_formed(timeout_s=deadline - time.monotonic())
        finish(self.topology, self._apis[self.topology.node_names[0]])

    def _raise_if_one_ended(self) -> None:
        for node, broker in self._brokers.items():
            if (status := broker.exit_status) is not None:
                cause = cause_of(status, self._layout.files[node].output)
                raise ClusterError(f"{node} ended with status {status}{cause}; {self._story(node)}")

    def _end_processes(self) -> None:
        """End the process of each node, even if that of another node does not end."""
        with ExitStack() as each:
            for node in self._brokers:
                each.callback(self._end_process, node)

    def _end_process(self, node: str) -> None:
        if self.process(node) == "gone":
            return
        try:
            self._brokers[node].kill()
        except ClusterError:
            if self.process(node) != "gone":  # the process may have ended by itself just now
                raise
