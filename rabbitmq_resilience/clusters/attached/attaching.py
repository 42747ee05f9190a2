"""Attaches to a cluster that is there already: it must be the one that the file means, whole, and ours alone."""

from __future__ import annotations

import ipaddress
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from packaging.version import Version

from rabbitmq_resilience.clusters.attached.cluster import AttachedCluster, Ground
from rabbitmq_resilience.clusters.attached.cluster_file import KnownCluster
from rabbitmq_resilience.clusters.attached.guard import Guard
from rabbitmq_resilience.clusters.attached.healing import journal_of, not_healed
from rabbitmq_resilience.clusters.attached.held_links import HeldLinks
from rabbitmq_resilience.clusters.attached.host import AttachedHost
from rabbitmq_resilience.clusters.attached.identity import SILENT, TOLD_WITHIN_S, strangers
from rabbitmq_resilience.clusters.attached.lacking import lacking
from rabbitmq_resilience.clusters.attached.links import AttachedLinks, BrokerLinks, Ends
from rabbitmq_resilience.clusters.attached.lock import LockedError, locked
from rabbitmq_resilience.clusters.attached.machine import Machine, MachineError
from rabbitmq_resilience.clusters.attached.nodes import AttachedNodes
from rabbitmq_resilience.clusters.attached.others import Things, changes, look
from rabbitmq_resilience.clusters.attached.permits import Hands
from rabbitmq_resilience.clusters.attached.sameness import mixed, strangers_by_amqp
from rabbitmq_resilience.clusters.attached.settings import contrary
from rabbitmq_resilience.clusters.attached.shape import matched
from rabbitmq_resilience.clusters.attached.spec import ACT, AttachedNode
from rabbitmq_resilience.clusters.attached.vhosts import GivenVhostApi, Made, api_of, not_empty
from rabbitmq_resilience.clusters.attached.ways import Ways, reached
from rabbitmq_resilience.clusters.attached.whole import NotWholeError, WrongClusterError, not_whole
from rabbitmq_resilience.clusters.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.clusters.broker.versions import require_features, require_maintenance_mode
from rabbitmq_resilience.clusters.equipment import NONE, Equipment
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.clusters.machine.claims import default_root, take_claim
from rabbitmq_resilience.clusters.machine.reaper import Reaper
from rabbitmq_resilience.clusters.network.links import ToxiproxyLinks
from rabbitmq_resilience.clusters.network.toxiproxy import ToxiproxyServer
from rabbitmq_resilience.clusters.spec import Link, Topology
from rabbitmq_resilience.tools.closing import Closing
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_ASK_TIMEOUT_S = 15.0
#: What each node is asked of all of them.
_COLUMNS = "name,running,partitions,enabled_plugins,db_dir,os_pid,uptime"


@dataclass(frozen=True)
class Found:
    """What the cluster told of itself. All but its name by Erlang name; ``folders`` is where brokers store."""

    name: str
    versions: Mapping[str, str]
    distribution_ports: Mapping[str, int]
    plugins: frozenset[str]
    folders: Mapping[str, str]

    @property
    def version(self) -> str:
        """The lowest, where there are several."""
        return min(self.versions.values(), key=Version)


def look_at(known: KnownCluster) -> Found:
    """Ask each node's management API, and who answers clients; nothing is changed. Raises WrongClusterError."""
    versions: dict[str, str] = {}
    names: dict[str, str] = {}
    told_by: dict[str, list[Mapping[str, Any]]] = {}
    listeners: list[Mapping[str, Any]] = []
    for node in known.stated.nodes:
        with ManagementApi(node.management, access=known.access, timeout_s=_ASK_TIMEOUT_S) as api:
            try:
                overview = api.overview()
                listeners += api.get("overview", params={"columns": "listeners"}).get("listeners", ())
                told_by[node.name] = api.get("nodes", params={"columns": _COLUMNS})
            except (ApiError, ApiUnreachable) as error:
                raise WrongClusterError(f"{node.name} does not tell of itself: {error}") from error
        if overview.get("node") != node.name:
            raise WrongClusterError(
                f"{node.management} is stated as that of {node.name}, and {overview.get('node')} answers there"
            )
        names[node.name] = str(overview.get("cluster_name"))
        versions[node.name] = str(overview["rabbitmq_version"])
    if texts := list(mixed(told_by)):
        raise WrongClusterError("; ".join(texts))
    told = told_by[known.stated.nodes[0].name]
    _refuse_other(known, names, told)
    if texts := list(strangers_by_amqp(known, names.values())):
        raise WrongClusterError("; ".join(texts))
    ports = {str(row["node"]): int(row["port"]) for row in listeners if row.get("protocol") == "clustering"}
    if untold := sorted(versions.keys() - ports.keys()):
        raise WrongClusterError(f"where {', '.join(untold)} listens for its peers is not told")
    plugins = frozenset.intersection(*(frozenset(row.get("enabled_plugins") or ()) for row in told))
    folders = {str(row["name"]): str(row.get("db_dir") or "") for row in told}
    return Found(known.stated.cluster, versions, ports, plugins, folders)


def _refuse_other(known: KnownCluster, names: Mapping[str, str], told: Sequence[Mapping[str, Any]]) -> None:
    """Where nobody has named the cluster, each node answers with a name that is made of its own."""
    stated_name = known.stated.cluster
    others = [name for node, name in names.items() if name != stated_name and not _is_default(name, node)]
    if others or stated_name not in names.values():
        answers = " and ".join(sorted(map(repr, {*names.values()})))
        raise WrongClusterError(f"the file states the cluster {stated_name!r}, and {answers} answers")
    stated, found = {node.name for node in known.stated.nodes}, {str(row["name"]) for row in told}
    if strangers := sorted(found - stated):
        raise WrongClusterError(f"the cluster has {', '.join(strangers)}, which the file does not name")
    if missing := sorted(stated - found):
        raise WrongClusterError(f"{', '.join(missing)} is no member of the cluster")
    if text := not_whole(told):
        raise NotWholeError(f"the cluster {stated_name} is not whole: {text}")


def _is_default(name: str, node: str) -> bool:
    """Of rabbit_nodes:cluster_name_default/0: the node's own, with its host as its machine finds that written out. That
    may be another one than in the node's name, so it is not compared."""
    return name.partition("@")[0] == node.partition("@")[0]


class Attachment(Closing):
    """From now until ``close`` nobody else has the cluster, which was found as stated; ``form`` gives it to one
    scenario. Raises WrongClusterError, LockedError, ClusterError."""

    def __init__(self, known: KnownCluster) -> None:
        given = known.stated.virtual_host
        self._made = Made()
        with ExitStack() as stack:
            known = stack.enter_context(reached(known))
            self.known = known
            self.found = look_at(known)
            self._ways = stack.enter_context(Ways.of(known))
            journal = journal_of(known, self._ways)
            if not stack.enter_context(journal.held()):
                raise LockedError(
                    "another run has this cluster, or one of its name: of this user on this machine, or its healing"
                )
            self._hands = Hands(known.stated, journal)
            self._refuse_unhealed()
            self._apis = {
                node.name: stack.enter_context(api_of(node.management, known.access, self._made, given=given))
                for node in known.stated.nodes
            }
            self._before = self._look()
            endpoints = [node.endpoint for node in known.stated.nodes]
            apis = list(self._apis.values())
            self._lock = stack.enter_context(locked(known.access, endpoints, apis, given=given))
            _refuse_used(next(iter(self._apis.values())), given)
            if texts := [*self._ways.contrary(), *contrary(known.stated, self._ways.machines)]:
                raise WrongClusterError("; ".join(texts))
            if texts := list(strangers(self._apis, self._ways.machines, self._ways.brokers)):
                raise WrongClusterError("; ".join(texts))
            watched = list(self._apis.values())
            self._guard = stack.enter_context(Guard(known.stated.abort_when, watched, self._hands.alarmed))
            self._addresses = {} if self._ways.addresses else _addresses(self._ways.machines)
            self._stack = stack.pop_all()

    def require(self, needs: Collection[str]) -> None:
        """Raises ToolMissingError with what brokers or machines lack of them (``Scenario.needs`` and ``acts``)."""
        require_features(self.found.version, needs)
        require_maintenance_mode(self.found.version, needs)
        acts = sorted(need.removeprefix(ACT) for need in needs if need.startswith(ACT))
        stated, folders = self.known.stated, self.found.folders
        if texts := [text for act in acts for text in lacking(act, stated, self._ways, folders, self._addresses)]:
            raise ToolMissingError("; ".join(texts))

    def form(
        self,
        topology: Topology,
        proxied: Collection[Link] = (),
        equipment: Equipment = NONE,
        *,
        logs_of_failure: Path | None = None,  # noqa: ARG002 - as all drivers are called
    ) -> AttachedCluster:
        """Raises ShapeError, and ClusterError where the cluster is not whole any more, another run has taken it
        meanwhile, or its people want none on it now."""
        self._may_go_on()
        self._lock.look()
        look_at(self.known)
        self._refuse_unhealed()
        stated = matched(topology, self.known.stated)
        if missing := sorted(equipment.plugins - self.found.plugins):
            raise ClusterError(f"the brokers have not enabled {', '.join(missing)}")
        nodes = AttachedNodes(
            self.found.version,
            self.known.access,
            stated,
            _renamed(stated, self._apis),
            self.known.stated.virtual_host,
            _renamed(stated, self._ways.machines),
            _renamed(stated, self._ways.brokers),
            _renamed(stated, self._ways.logs),
            self._ways.restarted,
            versions=_renamed(stated, self.found.versions),
            disks=_renamed(stated, self._ways.disks),
            changed=_renamed(stated, self._ways.changed),
            orchestrator=self._ways.orchestrator,
        )
        nodes.begin_logs()
        opened = sorted(link for link in proxied if link.client == link.source)
        claim = take_claim(default_root(), ports=2 + len(opened))
        with ExitStack() as stack:
            stack.callback(Reaper(claim.folder, claim.lock_file, claim.claim_fds).close)
            host = AttachedHost(claim.folder, {node: one.endpoint for node, one in stated.items()})
            ports = {link: claim.base_port + 2 + i for i, link in enumerate(opened)}
            server = None
            if ports:
                server = ToxiproxyServer(host, port=claim.base_port, published=(), folder=claim.folder)
                stack.callback(server.close)
                server.await_ready()
            links = AttachedLinks(
                ToxiproxyLinks(server, ports, host),
                self._broker_links(stated),
                self._hands,
                {node: one.name for node, one in stated.items()},
                frozenset(link for link in proxied if link.client is None),
            )
            ground = Ground(host, claim.folder, claim.base_port + 1, ports, links, self._may_go_on)
            return AttachedCluster(topology, nodes, ground, self._hands, equipment=equipment, stack=stack.pop_all())

    def _may_go_on(self) -> None:
        self._lock.check()
        self._guard.check()

    def _refuse_unhealed(self) -> None:
        """Also what another user, another machine or a Job has left."""
        if text := not_healed(self.known, self._ways, self._hands.journal):
            raise ClusterError(text)

    def not_whole(self) -> str:
        """Return what is wrong with the cluster, and what mends it, if it is not whole; empty if it is, or does not
        tell."""
        try:
            look_at(self.known)
        except NotWholeError as error:
            return str(error)
        except ClusterError:
            return ""
        return ""

    def others_changed(self) -> list[str] | None:
        """What has changed since the beginning that belongs to others, whoever has changed it; None where that cannot
        be told, as by a user who may not see it."""
        after = self._look()
        return None if self._before is None or after is None else changes(self._before, after)

    def close(self) -> None:
        """Tells as a warning what has changed that belongs to others."""
        with self._stack:
            changed = self.others_changed()
            if changed is None:
                warnings.warn("nobody could see whether something of others was touched", stacklevel=1)
            elif changed:
                warnings.warn(f"changed meanwhile, by us or others: {'; '.join(changed[:20])}", stacklevel=1)

    def _look(self) -> Things | None:
        found = (look(api, ours=self._made.vhosts) for api in self._apis.values())
        return next((told for told in found if told is not None), None)

    def _broker_links(self, stated: Mapping[str, AttachedNode]) -> HeldLinks | None:
        if self._ways.links is not None:
            return self._ways.links(stated)
        if not self._ways.rules:
            return None
        addresses: Mapping[Link, Sequence[str]] = (
            self._ways.addresses(stated)
            if self._ways.addresses
            else {Link(a, b): self._addresses[stated[a].name][stated[b].host] for a in stated for b in stated if a != b}
        )
        ports = {node: self.found.distribution_ports[one.name] for node, one in stated.items()}
        machines = _renamed(stated, self._ways.network or self._ways.machines)
        ends = Ends(machines, addresses, ports, distribution_only=self._ways.distribution_only)
        delays = _renamed(stated, self._ways.delays)
        return BrokerLinks(ends, _renamed(stated, self._ways.rules), delays=delays)


def _renamed(stated: Mapping[str, AttachedNode], of: Mapping[str, Any]) -> dict[str, Any]:
    """By the names of the topology what is known by Erlang names."""
    return {node: of[one.name] for node, one in stated.items() if one.name in of}


def _refuse_used(api: ManagementApi, given: str | None) -> None:
    """Raises WrongClusterError where the virtual host that was given has anything, or anybody is connected to it."""
    if given is None or not isinstance(api, GivenVhostApi):
        return
    try:
        wait_until(api.silent_nodes, timeout_s=TOLD_WITHIN_S, what="all nodes to tell", until=lambda names: not names)
        texts = [*api.kept_in(given, timeout_s=_ASK_TIMEOUT_S), *api.connected_to(given)]
    except WaitTimeout as error:
        silent = " and ".join(cast("list[str]", error.last_seen))
        text = f"whether anybody is connected to the virtual host {given} is not told by {silent}: {SILENT}"
        raise WrongClusterError(text) from None
    except (ApiError, ApiUnreachable) as error:
        raise WrongClusterError(f"whether the virtual host {given} is empty is not told: {error}") from error
    if texts:
        raise WrongClusterError(not_empty(given, texts))


def _addresses(machines: Mapping[str, Machine]) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """By the machine that looks, at which addresses it finds the host of each node, as its broker does."""
    hosts = sorted({name.partition("@")[2] for name in machines})
    found: dict[str, dict[str, Sequence[str]]] = {}
    for name, machine in machines.items():
        found[name] = {}
        for host in hosts:
            told = machine.run('getent ahosts "$1" | cut -d" " -f1 | sort -u', host).split()
            if not told:
                raise MachineError(f"{machine.told} does not find the host {host}")
            found[name][host] = sorted(told, key=lambda one: ipaddress.ip_address(one).version)
    return found
