"""Attach to an existing cluster, which must be the one that the file means, whole, and used by no other run."""

from __future__ import annotations

import ipaddress
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from packaging.version import Version

from rabbitmq_resilience.extensions.attached.attached_cluster import AttachedCluster, AttachedEnvironment
from rabbitmq_resilience.extensions.attached.attached_host import AttachedHost
from rabbitmq_resilience.extensions.attached.broker_settings import contrary
from rabbitmq_resilience.extensions.attached.bystanders import Things, changes, look
from rabbitmq_resilience.extensions.attached.cluster_file import KnownCluster
from rabbitmq_resilience.extensions.attached.cluster_model import AttachedNode
from rabbitmq_resilience.extensions.attached.fault_budget import BlastRadius
from rabbitmq_resilience.extensions.attached.guard import Guard
from rabbitmq_resilience.extensions.attached.healing import journal_of, not_healed
from rabbitmq_resilience.extensions.attached.held_links import HeldLinks
from rabbitmq_resilience.extensions.attached.identity import REPORTED_WITHIN_S, SILENT, strangers
from rabbitmq_resilience.extensions.attached.lock import LockedError, locked
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError
from rabbitmq_resilience.extensions.attached.machine_links import AttachedLinks, BrokerLinks, LinkMachines
from rabbitmq_resilience.extensions.attached.missing_tools import lacking
from rabbitmq_resilience.extensions.attached.node_backends import NodeBackends, reached
from rabbitmq_resilience.extensions.attached.nodes import AttachedNodes
from rabbitmq_resilience.extensions.attached.same_cluster import (
    is_default_name,
    mixed,
    refuse_other_node,
    strangers_by_amqp,
)
from rabbitmq_resilience.extensions.attached.shape import matched
from rabbitmq_resilience.extensions.attached.vhosts import GivenVhostApi, Made, api_of, not_empty
from rabbitmq_resilience.extensions.attached.whole import not_whole
from rabbitmq_resilience.model.actions import ACT
from rabbitmq_resilience.model.errors import ClusterError, NotWholeError, WrongClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.node_options import NONE, NodeOptions
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.sut.broker.versions import require_features, require_maintenance_mode
from rabbitmq_resilience.sut.machine.port_claims import default_root, take_claim
from rabbitmq_resilience.sut.machine.reaper import Reaper
from rabbitmq_resilience.sut.network.proxied_links import ToxiproxyLinks
from rabbitmq_resilience.sut.network.toxiproxy import ToxiproxyServer
from rabbitmq_resilience.tools.closing import Closing
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

Item = TypeVar("Item")

_ASK_TIMEOUT_S = 15.0
#: The columns that each node is asked for, of all nodes.
_COLUMNS = "name,running,partitions,enabled_plugins,db_dir,os_pid,uptime"


@dataclass(frozen=True)
class FoundCluster:
    """What the cluster reports about itself.

    All mappings have Erlang names as keys. ``folders`` holds the folder in which each broker stores its data.
    """

    name: str
    versions: Mapping[str, str]
    distribution_ports: Mapping[str, int]
    plugins: frozenset[str]
    folders: Mapping[str, str]

    @property
    def version(self) -> str:
        """Return the lowest version of the brokers."""
        return min(self.versions.values(), key=Version)


def look_at(known: KnownCluster) -> FoundCluster:
    """Ask each node's management API about the cluster, and check which broker answers at each AMQP address.

    Nothing is changed. Raise WrongClusterError if the cluster is not as the file states.
    """
    versions: dict[str, str] = {}
    names: dict[str, str] = {}
    rows_by: dict[str, list[Mapping[str, Any]]] = {}
    listeners: list[Mapping[str, Any]] = []
    for node in known.stated.nodes:
        with ManagementApi(node.management, access=known.access, timeout_s=_ASK_TIMEOUT_S) as api:
            try:
                overview = api.overview()
                listeners += api.get("overview", params={"columns": "listeners"}).get("listeners", ())
                rows_by[node.name] = api.get("nodes", params={"columns": _COLUMNS})
            except (ApiError, ApiUnreachable) as error:
                raise WrongClusterError(f"{node.name} does not report its state: {error}") from error
        refuse_other_node(node, overview)
        names[node.name] = str(overview.get("cluster_name"))
        versions[node.name] = str(overview["rabbitmq_version"])
    if texts := list(mixed(rows_by)):
        raise WrongClusterError("; ".join(texts))
    rows = rows_by[known.stated.nodes[0].name]
    _refuse_other(known, names, rows)
    if texts := list(strangers_by_amqp(known, names.values())):
        raise WrongClusterError("; ".join(texts))
    ports = {str(row["node"]): int(row["port"]) for row in listeners if row.get("protocol") == "clustering"}
    if unknown := sorted(versions.keys() - ports.keys()):
        raise WrongClusterError(f"no node reports the port at which {', '.join(unknown)} listens for its peers")
    plugins = frozenset.intersection(*(frozenset(row.get("enabled_plugins") or ()) for row in rows))
    folders = {str(row["name"]): str(row.get("db_dir") or "") for row in rows}
    return FoundCluster(known.stated.cluster, versions, ports, plugins, folders)


def _refuse_other(known: KnownCluster, names: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise WrongClusterError if the cluster has another name or other nodes, and NotWholeError if it is not whole.

    ``names``: the cluster name that each node reports. Nodes of a cluster without a configured name report a default,
    which each makes from its own name. ``rows``: the nodes as the management API lists them.
    """
    stated_name = known.stated.cluster
    others = [name for node, name in names.items() if name != stated_name and not is_default_name(name, node)]
    if others or stated_name not in names.values():
        answers = " and ".join(sorted(map(repr, {*names.values()})))
        raise WrongClusterError(f"the file states the cluster {stated_name!r}, but {answers} answers")
    stated, found = {node.name for node in known.stated.nodes}, {str(row["name"]) for row in rows}
    if strangers := sorted(found - stated):
        raise WrongClusterError(f"the cluster has {', '.join(strangers)}, which the file does not name")
    if missing := sorted(stated - found):
        raise WrongClusterError(f"{', '.join(missing)} is no member of the cluster")
    if text := not_whole(rows):
        raise NotWholeError(f"the cluster {stated_name} is not whole: {text}")


class Attachment(Closing):
    """Exclusive use of a cluster that was found as stated, until ``close``; ``form`` gives it to one scenario.

    Raise WrongClusterError if the cluster is not as stated, LockedError if another run has it, and ClusterError if it
    cannot be used otherwise.
    """

    def __init__(self, known: KnownCluster) -> None:
        given = known.stated.virtual_host
        self._made = Made()
        with ExitStack() as stack:
            known = stack.enter_context(reached(known))
            self.known = known
            self.found = look_at(known)
            self._backends = stack.enter_context(NodeBackends.of(known))
            journal = journal_of(known, self._backends)
            if not stack.enter_context(journal.held()):
                raise LockedError(
                    "another run of this user on this machine, or its healing, uses this cluster, or one of this name"
                )
            self._hands = BlastRadius(known.stated, journal)
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
            if texts := [*self._backends.config_mismatch(), *contrary(known.stated, self._backends.machines)]:
                raise WrongClusterError("; ".join(texts))
            if texts := list(strangers(self._apis, self._backends.machines, self._backends.brokers)):
                raise WrongClusterError("; ".join(texts))
            watched = list(self._apis.values())
            self._guard = stack.enter_context(Guard(known.stated.abort_when, watched, self._hands.alarmed))
            self._addresses = {} if self._backends.links.addresses else _addresses(self._backends.machines)
            self._stack = stack.pop_all()

    def require(self, needs: Collection[str]) -> None:
        """Raise ToolMissingError if brokers or machines lack any of ``needs`` (``Scenario.needs`` and ``acts``)."""
        require_features(self.found.version, needs)
        require_maintenance_mode(self.found.version, needs)
        acts = sorted(need.removeprefix(ACT) for need in needs if need.startswith(ACT))
        stated, folders = self.known.stated, self.found.folders
        if texts := [text for act in acts for text in lacking(act, stated, self._backends, folders, self._addresses)]:
            raise ToolMissingError("; ".join(texts))

    def form(
        self,
        topology: Topology,
        proxied: Collection[Link] = (),
        equipment: NodeOptions = NONE,
        *,
        logs_of_failure: Path | None = None,  # noqa: ARG002 - as all drivers are called
    ) -> AttachedCluster:
        """Return the cluster with the node names of ``topology``.

        Raise ShapeError if the topology does not fit. Raise ClusterError if the cluster is not whole any more, another
        run has taken it in the meantime, or ``abort_when`` of the cluster file holds now.
        """
        self._may_go_on()
        self._lock.look()
        look_at(self.known)
        self._refuse_unhealed()
        stated = matched(topology, self.known.stated)
        if missing := sorted(equipment.plugins - self.found.plugins):
            raise ClusterError(f"the brokers have not enabled the plugins {', '.join(missing)}")
        nodes = AttachedNodes(
            self.found.version,
            self.known.access,
            stated,
            _renamed(stated, self._apis),
            self.known.stated.virtual_host,
            _renamed(stated, self._backends.nodes),
            self._backends.restarted,
            versions=_renamed(stated, self.found.versions),
            orchestrator=self._backends.orchestrator,
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
            ground = AttachedEnvironment(host, claim.folder, claim.base_port + 1, ports, links, self._may_go_on)
            return AttachedCluster(topology, nodes, ground, self._hands, equipment=equipment, stack=stack.pop_all())

    def _may_go_on(self) -> None:
        self._lock.check()
        self._guard.check()

    def _refuse_unhealed(self) -> None:
        """Raise ClusterError if any run has left something unhealed, also one of another user, machine or Job."""
        if text := not_healed(self.known, self._backends, self._hands.journal):
            raise ClusterError(text)

    def not_whole(self) -> str:
        """Return what is wrong with the cluster if it is not whole, and what mends it.

        Return an empty text if the cluster is whole, or if that cannot be found out.
        """
        try:
            look_at(self.known)
        except NotWholeError as error:
            return str(error)
        except ClusterError:
            return ""
        return ""

    def others_changed(self) -> list[str] | None:
        """Return what has changed since the beginning that is not ours, no matter what changed it.

        Return None if that is unknown, for example because our user may not see it.
        """
        after = self._look()
        return None if self._before is None or after is None else changes(self._before, after)

    def close(self) -> None:
        """Let the cluster go, and warn if anything has changed that is not ours."""
        with self._stack:
            changed = self.others_changed()
            if changed is None:
                warnings.warn("this run could not see whether things of others were changed", stacklevel=1)
            elif changed:
                warnings.warn(f"changed during this run, by us or others: {'; '.join(changed[:20])}", stacklevel=1)

    def _look(self) -> Things | None:
        found = (look(api, ours=self._made.vhosts) for api in self._apis.values())
        return next((seen for seen in found if seen is not None), None)

    def _broker_links(self, stated: Mapping[str, AttachedNode]) -> HeldLinks | None:
        backend, nodes = self._backends.links, _renamed(stated, self._backends.nodes)
        if backend.commanded is not None:
            return backend.commanded(stated)
        rules = {name: node.rules for name, node in nodes.items() if node.rules is not None}
        if not rules:
            return None
        addresses: Mapping[Link, Sequence[str]] = (
            backend.addresses(stated)
            if backend.addresses
            else {Link(a, b): self._addresses[stated[a].name][stated[b].host] for a in stated for b in stated if a != b}
        )
        ports = {node: self.found.distribution_ports[one.name] for node, one in stated.items()}
        machines = _renamed(stated, backend.network or self._backends.machines)
        ends = LinkMachines(machines, addresses, ports, distribution_only=backend.distribution_only)
        delays = {name: node.delays for name, node in nodes.items() if node.delays is not None}
        return BrokerLinks(ends, rules, delays=delays)


def _renamed(stated: Mapping[str, AttachedNode], of: Mapping[str, Item]) -> dict[str, Item]:
    """Return ``of`` with names of the topology as keys in place of Erlang names."""
    return {node: of[one.name] for node, one in stated.items() if one.name in of}


def _refuse_used(api: ManagementApi, given: str | None) -> None:
    """Raise WrongClusterError if the given virtual host is not empty, or if clients are connected to it."""
    if given is None or not isinstance(api, GivenVhostApi):
        return
    try:
        wait_until(
            api.silent_nodes, timeout_s=REPORTED_WITHIN_S, what="all nodes to report", until=lambda names: not names
        )
        texts = [*api.kept_in(given, timeout_s=_ASK_TIMEOUT_S), *api.connected_to(given)]
    except WaitTimeout as error:
        silent = " and ".join(cast("list[str]", error.last_seen))
        text = f"{silent} does not report whether clients are connected to the virtual host {given}: {SILENT}"
        raise WrongClusterError(text) from None
    except (ApiError, ApiUnreachable) as error:
        raise WrongClusterError(f"it is unknown whether the virtual host {given} is empty: {error}") from error
    if texts:
        raise WrongClusterError(not_empty(given, texts))


def _addresses(machines: Mapping[str, Machine]) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return, for each machine, the addresses to which it resolves the host of each node, as its broker does."""
    hosts = sorted({name.partition("@")[2] for name in machines})
    found: dict[str, dict[str, Sequence[str]]] = {}
    for name, machine in machines.items():
        found[name] = {}
        for host in hosts:
            resolved = machine.run('getent ahosts "$1" | cut -d" " -f1 | sort -u', host).split()
            if not resolved:
                raise MachineError(f"{machine.description} does not find the host {host}")
            found[name][host] = sorted(resolved, key=lambda one: ipaddress.ip_address(one).version)
    return found
