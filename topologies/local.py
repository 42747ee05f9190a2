"""The local driver: real brokers as processes of this user on loopback, without root or containers."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from topologies.broker_process import BrokerProcess, tool_environ, turns_folder
from topologies.cluster import ClusterError, NodeState, ProcessState
from topologies.configuration import read_user_file, takes_turns
from topologies.distributions import BrokerHome, find_broker, find_prometheus, find_toxiproxy
from topologies.layout import Layout, broker_name, ports_needed
from topologies.links import ToxiproxyLinks, Traffic
from topologies.management import ApiError, ApiUnreachable, ManagementApi
from topologies.places import Place, claim_place, default_root
from topologies.prometheus import PrometheusServer, scrape_config
from topologies.reaper import Reaper
from topologies.spec import Link, Topology
from topologies.toxiproxy import ToxiproxyServer
from topologies.waiting import WaitTimeout, wait_until

_LISTENER_PROBE_TIMEOUT_S = 0.5


class LocalCluster:
    """A cluster of local processes; ``close`` (or leaving the context) ends them and removes its folder.

    Node arguments are names of the topology (``a1``). Raises ``ClusterError`` where a node cannot be
    brought to the asked state.
    """

    def __init__(self, topology: Topology, proxied: frozenset[Link], broker: BrokerHome, place: Place) -> None:
        """Use ``LocalCluster.form``; this only lays out folders and ports."""
        self.topology = topology
        #: Whether some node got other settings than the topology says.
        self.reconfigured = False
        self.broker_version = broker.version
        self._broker = broker
        self._layout = layout = Layout(topology, proxied, broker, place)
        self._apis = {n: ManagementApi(f"http://127.0.0.1:{ports.management}") for n, ports in layout.ports.items()}
        server = [str(broker.server)]
        self._processes = {n: BrokerProcess(n, server, layout.environ(n), f) for n, f in layout.files.items()}
        self._links: ToxiproxyLinks | None = None
        self._stack = ExitStack()

    @classmethod
    def form(
        cls,
        topology: Topology,
        *,
        proxied: Collection[Link] = (),
        broker: BrokerHome | None = None,
        toxiproxy: Path | None = None,
        logs_of_failure: Path | None = None,
        root: Path | None = None,
        timeout_s: float = 120.0,
    ) -> Self:
        """Start a cluster and return when it has formed.

        ``proxied``: the links that must carry a proxy (the other direction of each comes with it).
        ``logs_of_failure``: where the brokers' logs are copied if it does not form; its own folder is removed.
        ``root``: where clusters have their folders. Leftovers of dead runs are removed from it first.
        """
        broker = broker or find_broker()
        unknown = frozenset(proxied) - topology.links - _links_of_clients(proxied, topology)
        if unknown:
            raise ClusterError(f"{topology.name} has no link {', '.join(map(str, sorted(unknown)))}")
        place = claim_place(root or default_root(), ports=ports_needed(topology, proxied))
        with ExitStack() as stack:
            stack.callback(Reaper(place.folder, place.lock_file, place.lock_fd).close)
            cluster = cls(topology, frozenset(proxied), broker, place)
            stack.callback(cluster._end_processes)
            failed = stack.enter_context(ExitStack())
            if logs_of_failure is not None:
                failed.callback(cluster._copy_logs, logs_of_failure)
            cluster._layout.write()
            cluster._links = cluster._start_links(toxiproxy, stack)
            cluster._boot(timeout_s=timeout_s)
            failed.pop_all()
            cluster._stack = stack.pop_all()
        return cluster

    def close(self) -> None:
        """End every process, remove the folder; returns when both are gone."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def driver(self) -> Literal["local"]:
        return "local"

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
        """The topology's name of an Erlang node."""
        return broker_name.partition("@")[0]

    def amqp_port(self, node: str, *, client: str | None = None) -> int:
        direct = self._layout.ports[node].amqp
        return direct if client is None else self._layout.link_ports.get(Link(client, node), direct)

    def management_port(self, node: str) -> int:
        return self._layout.ports[node].management

    def port_behind(self, link: Link) -> int:
        ports = self._layout.ports[link.target]
        return ports.distribution if link.client is None else ports.amqp

    def api(self, node: str) -> ManagementApi:
        return self._apis[node]

    def pids(self) -> dict[str, int]:
        """The processes of the nodes that have one."""
        return {n: pid for n, process in self._processes.items() if (pid := process.pid) is not None}

    def process(self, node: str) -> ProcessState:
        return self._processes[node].state()

    def state(self, node: str) -> NodeState:
        process = self.process(node)
        if process == "gone":
            return "down"
        if process == "suspended":
            return "suspended"
        return "up" if _accepts(self._layout.ports[node].amqp) else "paused"

    def kill(self, node: str) -> None:
        self._processes[node].kill()

    def stop(self, node: str, *, timeout_s: float = 60.0) -> None:
        self._processes[node].stop(timeout_s=timeout_s)

    def start(self, node: str) -> None:
        self._processes[node].start()

    def lose_data(self, node: str) -> None:
        if self.process(node) != "gone":
            raise ClusterError(f"{node} is {self.process(node)}: only a node whose process is gone can lose its data")
        shutil.rmtree(self._layout.files[node].data)

    def stored_bytes(self, node: str) -> int:
        return sum(file.stat().st_size for file in self._layout.files[node].data.rglob("*") if file.is_file())

    def configure(self, node: str, settings: Mapping[str, str]) -> None:
        self.reconfigured = True
        self._layout.configure(node, settings)

    def run_tool(self, node: str, tool: str, *arguments: str, timeout_s: float = 60.0) -> str:
        command = [str(self._broker.home / "sbin" / tool), "-n", self.broker_name(node), *arguments]
        told = f"{tool} {' '.join(arguments)} for {node}"
        try:
            done = subprocess.run(
                command,
                env=tool_environ(self._layout.environ(node), self._layout.folder),
                cwd=self._layout.files[node].folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{told} gave no answer within {timeout_s:g} s") from error
        if done.returncode != 0:
            raise ClusterError(f"{told} failed with status {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def pause(self, node: str) -> None:
        self._processes[node].pause()

    def resume(self, node: str) -> None:
        self._processes[node].resume()

    def scraped(self, vhost: str, *, series: Collection[str], data: Path) -> PrometheusServer:
        endpoints = {n: ports.prometheus for n, ports in self._layout.ports.items()}
        config = scrape_config(endpoints, vhost=vhost, series=series)
        return PrometheusServer(
            find_prometheus(), config, port=self._layout.prometheus_port, data=data, cluster=self._layout.folder
        )

    def logs(self) -> Mapping[str, Path]:
        return {n: files.log for n, files in self._layout.files.items()}

    def traffic(self, node: str) -> Mapping[str, Traffic]:
        """What ``node`` counts on each connection that it considers alive (at most 0.2 s ago)."""
        if self._processes[node].pid is None:
            return {}
        try:
            lines = self._layout.files[node].traffic.read_text().splitlines()
        except FileNotFoundError:
            return {}
        rows = (line.split() for line in lines)
        return {self.node_of(peer): Traffic(connection, *map(int, counts)) for peer, connection, *counts in rows}

    def await_formed(self, *, timeout_s: float) -> None:
        """Wait until every node accepts AMQP and every node sees all nodes running."""
        deadline = time.monotonic() + timeout_s
        for node in self.topology.node_names:
            self._await_whole_view(node, timeout_s=deadline - time.monotonic())

    def _await_whole_view(self, node: str, *, timeout_s: float) -> None:
        all_names = frozenset(map(self.broker_name, self.topology.node_names))

        def lacks() -> str:
            self._raise_if_one_ended()
            if self.state(node) != "up":
                return f"{node} is {self.state(node)}"
            if not self._processes[node].has_booted:
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
        """The last lines of the node's log (or of the process's own output, where it got no log)."""
        files = self._layout.files[node]
        source = files.log if files.log.exists() else files.output
        text = source.read_text(errors="replace") if source.exists() else ""
        return f"{source.name} of {node} ends:\n" + "\n".join(text.splitlines()[-15:])

    def _copy_logs(self, folder: Path) -> None:
        for log in self.logs().values():
            if log.exists():
                shutil.copy(log, folder)

    def _start_links(self, toxiproxy: Path | None, stack: ExitStack) -> ToxiproxyLinks:
        if not self._layout.link_ports:
            return ToxiproxyLinks(None, {}, self)
        server = ToxiproxyServer(
            toxiproxy or find_toxiproxy(), port=self._layout.toxiproxy_port, folder=self._layout.folder
        )
        stack.callback(server.close)
        server.await_ready()
        return ToxiproxyLinks(server, self._layout.link_ports, self)

    def _boot(self, *, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        self._start_in_turns(timeout_s=timeout_s)
        self.await_formed(timeout_s=deadline - time.monotonic())
        if self.topology.definitions is not None:
            text = read_user_file(self.topology.definitions)
            try:
                self._apis[self.topology.node_names[0]].import_definitions(json.loads(text))
            except ValueError as error:
                raise ClusterError(f"{self.topology.definitions} is no JSON: {error}") from error
            except (ApiError, ApiUnreachable) as error:
                raise ClusterError(f"the broker refused {self.topology.definitions}: {error}") from error

    def _start_in_turns(self, *, timeout_s: float) -> None:
        """Start a few nodes, and another whenever one gets as far as joining.

        Joining is serial and cheap, getting there is parallel and costs most of the CPU. Started all at
        once they would all arrive together, and idle cores would watch them join.
        """
        waiting = list(self._processes)
        ahead = (os.cpu_count() or 1) + 1 if takes_turns(self._broker.release) else len(waiting)
        turns = turns_folder(self._layout.folder)

        def start_next() -> list[str]:
            self._raise_if_one_ended()
            arrived = sum(1 for _ in turns.iterdir())
            while waiting and len(self.pids()) - arrived < ahead:
                self._processes[waiting.pop(0)].start()
            return waiting

        try:
            wait_until(
                start_next,
                timeout_s=timeout_s,
                poll_s=0.02,
                what="all nodes to be started",
                until=lambda left: not left,
            )
        except WaitTimeout as error:
            raise ClusterError(f"{error}; {self._story(next(iter(self._layout.files)))}") from error

    def _raise_if_one_ended(self) -> None:
        for node, process in self._processes.items():
            if process.exit_status is not None:
                raise ClusterError(f"{node} ended with status {process.exit_status}; {self._story(node)}")

    def _end_processes(self) -> None:
        for process in self._processes.values():
            if process.pid is not None:
                process.kill()
        for api in self._apis.values():
            api.close()


def _links_of_clients(links: Collection[Link], topology: Topology) -> set[Link]:
    """Those that have a client at one end and a node of the topology at the other."""
    return {link for link in links if link.client is not None and {*link.nodes} & {*topology.node_names}}


def _accepts(port: int) -> bool:
    """Whether somebody listens; the broker sees a connection that closes before it spoke, and forgets it."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_LISTENER_PROBE_TIMEOUT_S):
            return True
    except OSError:
        return False
