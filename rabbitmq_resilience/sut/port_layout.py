"""Assign ports and files to each node of a cluster, and write the files that the node reads."""

from __future__ import annotations

import itertools
import secrets
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.configuration import (
    enabled_plugins,
    formation_keys,
    harness_keys,
    read_user_file,
    render_conf,
)
from rabbitmq_resilience.sut.broker.environment import joining_folder, server_environ, tool_environ
from rabbitmq_resilience.sut.broker.files import BrokerFiles, NodePorts
from rabbitmq_resilience.sut.broker_host import Net
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK, Claim
from rabbitmq_resilience.sut.preload.preloaded_disk import preloaded_disk
from rabbitmq_resilience.tools.distributions import BrokerHome

_PORTS_PER_NODE = 5
_PORTS_OF_PROGRAMS = 2


class PortLayout:
    """The ports and files of a cluster. The claim's ports go, in this order, to each node, Toxiproxy, Prometheus, each
    balancer, each proxy, the echo server, and each proxy of the echo server."""

    def __init__(
        self,
        topology: Topology,
        proxied: Collection[Link],
        broker: BrokerHome,
        claim: Claim,
        net: Net,
        *,
        preloaded: Collection[str] = (),
    ) -> None:
        self.topology = topology
        self.net = net
        self.folder = claim.folder
        #: The user's lines that the harness replaced with its own.
        self.replaced_settings: tuple[str, ...] = ()
        names = topology.node_names
        #: The broker that each node is started with, and the folder of this project's modules compiled for it.
        self.homes = dict.fromkeys(names, broker)
        self.ebins = dict.fromkeys(names, claim.folder / "ebin")
        self._added: dict[str, Mapping[str, str]] = {}
        ports = itertools.count(claim.base_port)
        self.ports = {n: NodePorts(*itertools.islice(ports, _PORTS_PER_NODE)) for n in names}
        self.toxiproxy_port, self.prometheus_port = itertools.islice(ports, _PORTS_OF_PROGRAMS)
        self.balancer_ports = dict(zip(topology.balancer_names, ports, strict=False))
        self.link_ports = dict(zip(_opened(proxied), ports, strict=False))
        echoes = topology.network is not None and net.listen == LOOPBACK
        #: The port of the echo server that measures round trips, and the ports of its proxies.
        self.echo_port = next(ports) if echoes else None
        self.echo_ports = dict(zip(self.link_ports if echoes else (), ports, strict=False))
        self.files = {n: BrokerFiles(claim.folder / n, claim.folder / "logs" / f"{n}.log") for n in names}
        #: The disks that can be made to fail.
        self.preloaded_disks = {n: preloaded_disk(n, self.files[n]) for n in preloaded}

    def write(self, ebin: Path, *, plugins: Collection[str] = ()) -> None:
        """Write all files that the brokers read. ``ebin``: this project's Erlang modules, compiled for the brokers.
        ``plugins`` are enabled in addition to the usual ones."""
        cookie = self.folder / ".erlang.cookie"
        cookie.touch(mode=0o600)
        cookie.write_text(secrets.token_hex(20))
        cookie.chmod(0o400)
        shutil.copytree(ebin, self.folder / "ebin")
        joining_folder(self.folder).mkdir()
        for node, files in self.files.items():
            files.folder.mkdir()
            self.prepare_disk(node)
            files.log.parent.mkdir(parents=True, exist_ok=True)
            self.configure(node, {})
            files.plugins.write_text(enabled_plugins(plugins))
            files.peers.write_text("".join(f"{self._way_to(node, peer)}.\n" for peer in self.files))
            if self.topology.advanced_config is not None:
                files.advanced_config.write_text(read_user_file(self.topology.advanced_config), encoding="utf-8")

    def configure(self, node: str, added: Mapping[str, str]) -> None:
        """Write the node's rabbitmq.conf: the user's lines and the ``added`` lines. The harness's own lines override
        both."""
        self._added[node] = added
        formation = formation_keys(self.homes[node].release, tuple(map(broker_name, self.topology.node_names)))
        if node in self.topology.ram_nodes:
            formation = {**formation, "cluster_formation.node_type": "ram"}
        owned = harness_keys(self.topology, self.ports[node], formation, broker_name, listen=self.net.listen)
        added = {**self.topology.setting_lines, **added}
        lines = [read_user_file(self.topology.rabbitmq_conf), *(f"{key} = {value}" for key, value in added.items())]
        conf = render_conf("\n".join(lines), owned)
        self.replaced_settings = conf.replaced
        self.files[node].conf.write_text(conf.text, encoding="utf-8")

    def rehome(self, node: str, broker: BrokerHome, ebin: Path) -> None:
        """Let the node's next start use another ``broker``, with the same files and ports."""
        mine = self.folder / f"ebin-{ebin.name}"
        if not mine.exists():
            shutil.copytree(ebin, mine)
        self.homes[node], self.ebins[node] = broker, mine
        self.configure(node, self._added[node])

    def prepare_disk(self, node: str) -> None:
        """Let a disk with the preloaded library, if the node has one, be ready for the start of its broker."""
        if node in self.preloaded_disks:
            self.preloaded_disks[node].prepare()

    def settle_disk(self, node: str) -> None:
        """Let what is stored on such a disk count as flushed; the node's process is gone."""
        if node in self.preloaded_disks:
            self.preloaded_disks[node].settle()

    def environ(self, node: str) -> dict[str, str]:
        """Return the environment of the node's process."""
        disk = self.preloaded_disks.get(node)
        return {**self._plain_environ(node), **({} if disk is None else disk.environ)}

    def tool_environ(self, node: str) -> dict[str, str]:
        """Return the environment of a command line tool that speaks to the node."""
        return tool_environ(self._plain_environ(node))

    def _plain_environ(self, node: str) -> dict[str, str]:
        return server_environ(
            self.homes[node],
            self.folder,
            self.files[node],
            ebin=self.ebins[node],
            broker_name=broker_name(node),
            ports=self.ports[node],
            listen=self.net.listen,
            net_ticktime_s=self.topology.net_ticktime_s,
        )

    def way_of(self, balancer: str, node: str) -> str:
        """Return the ``host:port`` at which a balancer reaches the AMQP listener of a node."""
        proxy = self.link_ports.get(Link(balancer, node))
        return f"{self.net.name_of(node if proxy is None else 'toxiproxy')}:{proxy or self.ports[node].amqp}"

    def _way_to(self, node: str, peer: str) -> str:
        """Return the line of ``BrokerFiles.peers`` for a peer, as an Erlang term."""
        proxy = self.link_ports.get(Link(node, peer))
        host = self.net.name_of(peer if proxy is None else "toxiproxy")
        return f'{{"{peer}", "{host}", {proxy or self.ports[peer].distribution}}}'


def broker_name(node: str) -> str:
    """Return the Erlang name of a node of any cluster. The module ``resilience_distribution`` finds its address."""
    return f"{node}@localhost"


def ports_needed(topology: Topology, proxied: Collection[Link]) -> int:
    """Return how many ports a cluster of ``topology`` uses."""
    proxies = len(_opened(proxied))
    echoes = 0 if topology.network is None else 1 + proxies
    others = _PORTS_OF_PROGRAMS + len(topology.balancer_names) + proxies + echoes
    return _PORTS_PER_NODE * len(topology.nodes) + others


def _opened(links: Collection[Link]) -> list[Link]:
    """Return the links that need a proxy, which are those on which their source opens connections. Brokers open
    connections in both directions, clients and balancers in one."""
    both_ways = {*links, *(link.back for link in links)}
    return sorted(link for link in both_ways if link.client in (None, link.source))
