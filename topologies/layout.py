"""Where each node of a cluster has its ports and files, and all that is written there for it to read."""

from __future__ import annotations

import itertools
import secrets
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from topologies.configuration import ENABLED_PLUGINS, formation_keys, harness_keys, read_user_file, render_conf
from topologies.distributions import BrokerHome
from topologies.environment import server_environ, tool_environ, turns_folder
from topologies.files import BrokerFiles, NodePorts
from topologies.host import Net
from topologies.places import Place
from topologies.spec import Link, Topology, is_client

_PORTS_PER_NODE = 5
_PORTS_BESIDE_NODES = 2


class Layout:
    """The ports are the place's, in order: those of each node, of Toxiproxy, of Prometheus, and of each proxy."""

    def __init__(
        self, topology: Topology, proxied: Collection[Link], broker: BrokerHome, place: Place, net: Net
    ) -> None:
        self.topology = topology
        self.net = net
        self.folder = place.folder
        #: The user's lines that gave way to what the harness must own.
        self.replaced_settings: tuple[str, ...] = ()
        names = topology.node_names
        #: The broker that each node is started with, and the folder of our modules that are compiled for it.
        self.homes = dict.fromkeys(names, broker)
        self.ebins = dict.fromkeys(names, place.folder / "ebin")
        self._added: dict[str, Mapping[str, str]] = {}
        ports = itertools.count(place.base_port)
        self.ports = {n: NodePorts(*itertools.islice(ports, _PORTS_PER_NODE)) for n in names}
        self.toxiproxy_port, self.prometheus_port = itertools.islice(ports, _PORTS_BESIDE_NODES)
        self.link_ports = dict(zip(_opened(proxied), ports, strict=False))
        self.files = {n: BrokerFiles(place.folder / n, place.folder / "logs" / f"{n}.log") for n in names}

    def write(self, ebin: Path) -> None:
        """Write everything that the brokers read. ``ebin``: this project's Erlang modules, compiled for them."""
        cookie = self.folder / ".erlang.cookie"
        cookie.touch(mode=0o600)
        cookie.write_text(secrets.token_hex(20))
        cookie.chmod(0o400)
        shutil.copytree(ebin, self.folder / "ebin")
        turns_folder(self.folder).mkdir()
        for node, files in self.files.items():
            files.folder.mkdir()
            files.log.parent.mkdir(parents=True, exist_ok=True)
            self.configure(node, {})
            files.plugins.write_text(ENABLED_PLUGINS)
            files.peers.write_text("".join(f"{self._way_to(node, peer)}.\n" for peer in self.files))
            if self.topology.advanced_config is not None:
                files.advanced_config.write_text(read_user_file(self.topology.advanced_config), encoding="utf-8")

    def configure(self, node: str, added: Mapping[str, str]) -> None:
        """Write the node's rabbitmq.conf: the user's and what is ``added`` to it, below what the harness must own."""
        self._added[node] = added
        formation = formation_keys(self.homes[node].release, tuple(map(broker_name, self.topology.node_names)))
        owned = harness_keys(self.topology, self.ports[node], formation, broker_name, listen=self.net.listen)
        lines = [read_user_file(self.topology.rabbitmq_conf), *(f"{key} = {value}" for key, value in added.items())]
        conf = render_conf("\n".join(lines), owned)
        self.replaced_settings = conf.replaced
        self.files[node].conf.write_text(conf.text, encoding="utf-8")

    def rehome(self, node: str, broker: BrokerHome, ebin: Path) -> None:
        """From now on the node is started with another ``broker``, on the same files and ports."""
        mine = self.folder / f"ebin-{ebin.name}"
        if not mine.exists():
            shutil.copytree(ebin, mine)
        self.homes[node], self.ebins[node] = broker, mine
        self.configure(node, self._added[node])

    def environ(self, node: str) -> dict[str, str]:
        """The environment of the node's process."""
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

    def tool_environ(self, node: str) -> dict[str, str]:
        """The environment of a command line tool that speaks to the node."""
        return tool_environ(self.environ(node))

    def _way_to(self, node: str, peer: str) -> str:
        """An Erlang term, see ``BrokerFiles.peers``."""
        proxy = self.link_ports.get(Link(node, peer))
        host = self.net.name_of(peer if proxy is None else "toxiproxy")
        return f'{{"{peer}", "{host}", {proxy or self.ports[peer].distribution}}}'


def broker_name(node: str) -> str:
    """The Erlang name of a node of any cluster; how its host is found, ``resilience_distribution`` knows."""
    return f"{node}@localhost"


def ports_needed(topology: Topology, proxied: Collection[Link]) -> int:
    return _PORTS_PER_NODE * len(topology.nodes) + _PORTS_BESIDE_NODES + len(_opened(proxied))


def _opened(links: Collection[Link]) -> list[Link]:
    """The links on which somebody opens a connection, each of which needs a proxy: clients do, brokers both ways."""
    both_ways = {*links, *(link.back for link in links)}
    return sorted(link for link in both_ways if not is_client(link.target))
