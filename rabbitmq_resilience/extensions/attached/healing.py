"""Heal what a run has left on an existing cluster, and report as healed only what was seen to be healed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.cluster_file import KnownCluster
from rabbitmq_resilience.extensions.attached.commanded import CommandedBroker, Doing, key_of
from rabbitmq_resilience.extensions.attached.journal import Journal, journal_file
from rabbitmq_resilience.extensions.attached.lock import LockedError, locked
from rabbitmq_resilience.extensions.attached.machine import ForcedError, MachineError
from rabbitmq_resilience.extensions.attached.node_backends import NodeBackends, reached
from rabbitmq_resilience.extensions.attached.same_cluster import refuse_others
from rabbitmq_resilience.extensions.attached.vhosts import Made, api_of, marked_vhosts, on_any
from rabbitmq_resilience.model.actions import ACTIONS
from rabbitmq_resilience.model.errors import ClusterError, WrongClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.sut.broker.management import ManagementApi
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: How long it may take until healing is seen: a broker that was started has a process soon.
SEEN_WITHIN_S = 30.0


def journal_of(known: KnownCluster, backends: NodeBackends) -> Journal:
    stated = known.stated
    nodes = [node.name for node in stated.nodes]
    return Journal(journal_file(stated.cluster), nodes=nodes, place=backends.place, file=str(known.path.resolve()))


def armed(backends: NodeBackends) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what is not healed, as (name of the machine with the watchdogs, keys).

    Raise MachineError if a machine cannot be asked.
    """
    for name, machine in backends.keepers.items():
        try:
            left = watchdog.armed(machine)
        except MachineError as error:
            raise MachineError(f"{name}: it is unknown what is not healed: {error}") from error
        if left:
            yield name, left


def not_healed(known: KnownCluster, backends: NodeBackends, journal: Journal) -> str:
    """Return what earlier runs have left unhealed, and the command that heals it; empty if nothing is left.

    Raise MachineError if a machine cannot be asked.
    """
    heal = f"rabbitmq-resilience heal {known.path}"
    if rows := journal.left():
        return f"an earlier run has left {', '.join(rows)} ({journal.path}); heal that first: {heal}"
    left = [(_is_of(key, known), f"{key} ({name})") for name, keys in armed(backends) for key in keys]
    if ours := ", ".join(text for is_ours, text in left if is_ours):
        return f"a run has left faults unhealed, or is still active: {ours}; heal them first: {heal}"
    if others := ", ".join(text for _, text in left):
        return f"a run on another cluster acts on these machines: {others}; wait for it, or heal it by its cluster file"
    return ""


def _is_of(key: str, known: KnownCluster) -> bool:
    """Return whether a watchdog with that key is of this cluster. A machine may have brokers of others too."""
    return key.startswith(tuple(f"{key_of(node.name)}:" for node in known.stated.nodes))


def healed(known: KnownCluster, backends: NodeBackends) -> bool:
    """Heal what runs have left, print it, and return whether nothing is left.

    Raise LockedError if a run has the cluster, and WrongClusterError if another cluster answers.
    """
    journal = journal_of(known, backends)
    with ExitStack() as stack:
        if not stack.enter_context(journal.held()):
            raise LockedError("a run of this user, or its healing, uses this cluster; that run heals what it does")
        remove_left = stack.enter_context(_alone(known))
        silent = set(_by_watchdogs(backends, known))
        healing = _Healing(known, backends, journal, silent)
        seen = [healing.heal(row) for row in journal.unhealed()]
        for where in journal.unreadable():
            print(f"{where} cannot be read; its fault may not be healed", file=sys.stderr)
        is_whole = all(seen) and not journal.unreadable()
        if not is_whole:
            text = f"{journal.path} keeps what is left; delete the lines of faults that you have healed yourself"
            print(text, file=sys.stderr)
        elif journal.is_settled():
            journal.clear()
        remove_left()
        for other in journal.left_elsewhere():
            print(f"of another cluster than {known.stated.cluster}, so not healed: {other}", file=sys.stderr)
    return is_whole and not silent


def _by_watchdogs(backends: NodeBackends, known: KnownCluster) -> Iterator[str]:
    """Run what the cluster's watchdogs would run; yield the machines that did not answer, or failed to heal."""
    for name, machine in backends.keepers.items():
        try:
            armed_keys = watchdog.armed(machine)
            keys = [key for key in armed_keys if _is_of(key, known)]
            for key in keys:
                watchdog.heal(machine, key)
        except MachineError as error:
            print(f"{name}: {error}", file=sys.stderr)
            yield name
        else:
            print(f"{name}: healed {', '.join(keys)}" if keys else f"{name}: nothing was left")
            if others := [key for key in armed_keys if key not in keys]:
                print(f"{name}: of brokers that the file does not name, so not healed: {', '.join(others)}")


@dataclass(frozen=True)
class _Healing:
    """What a look at the acts of earlier runs needs. ``silent``: machines that did not answer, or could not heal."""

    known: KnownCluster
    backends: NodeBackends
    journal: Journal
    silent: Set[str]

    def heal(self, row: Mapping[str, Any]) -> bool:
        """Return whether the row's act was seen to be healed; if so, record that."""
        try:
            why = self._not_seen(row)
        except MachineError as error:
            why = str(error)
        if why:
            print(f"not healed: {self.journal.text_of(row)}: {why}", file=sys.stderr)
            return False
        self.journal.healed(row["act"], row["node"])
        return True

    def _not_seen(self, row: Mapping[str, Any]) -> str:
        """Return why the row's act was not seen to be healed; empty if it was. Raise MachineError if looking fails."""
        backends, stated, act, node = self.backends, self.known.stated, row["act"], row["node"]
        of_file = f"; the run's cluster file was {row['file']}" if row.get("file") else ""
        if row.get("place", "") != backends.place:
            return f"it was done elsewhere; this file leads to {backends.place or 'another place'}{of_file}"
        if node not in {one.name for one in stated.nodes}:
            return f"the file does not name {node}{of_file}"
        if act not in ACTIONS or stated.offers.way_of(ACTIONS[act]) is None:
            return f"nothing in offers: can heal it{of_file}"
        keepers = {node} if node in backends.keepers else {*backends.keepers}
        if troubled := sorted(keepers & self.silent):
            return f"{', '.join(troubled)} did not answer, or could not heal it"
        if ACTIONS[act].takes_broker and node in backends.nodes:
            backends.nodes[node].broker.give_back()  # its watchdog may be gone
        if act == "fill_disk" and node in backends.nodes and (disk := backends.nodes[node].disk) is not None:
            disk.empty()  # likewise
        if act == "drain_node" and backends.orchestrator is not None:
            backends.orchestrator.draining.uncordon_left(node)  # likewise
        if (done := self._commanded(act, node)) is not None and done.lasting():
            done.heal()  # likewise
        try:
            wait_until(
                lambda: self._in_effect(act, node),
                timeout_s=SEEN_WITHIN_S,
                what=f"{node} to be healed",
                until=lambda text: not text,
            )
        except WaitTimeout as error:
            return str(error.last_seen)
        return ""

    def _in_effect(self, act: str, node: str) -> str:
        if ACTIONS[act].acts_on == "packets":
            return self._packets(act, node)
        done = self._commanded(act, node)
        if done is not None and (text := done.lasting()):
            return text
        state = self.backends.nodes[node].broker.state() if node in self.backends.nodes else "running"
        if state != "running":
            return f"the process of its broker is {state}"
        changed = self.backends.nodes[node].changed if node in self.backends.nodes else None
        return "" if changed is None or ACTIONS[act].acts_on != "settings" else changed.left(act)

    def _commanded(self, act: str, node: str) -> Doing | None:
        """Return the act on the broker that a command of the user has done; None if none has."""
        broker = self.backends.nodes[node].broker if node in self.backends.nodes else None
        return broker.done_before(act) if isinstance(broker, CommandedBroker) else None

    def _packets(self, act: str, node: str) -> str:
        backend, links = self.backends.nodes.get(node), self.backends.links
        if backend is not None and backend.rules is not None:
            try:
                backend.rules.put([], for_s=0)  # their watchdog may be gone
                if act == "delay" and backend.delays is not None:
                    backend.delays.put({}, ports=(), for_s=0)
            except ForcedError as error:
                print(f"{node}: healed by force: {error}")
            return ""
        stated = {one.name: one for one in self.known.stated.nodes}
        if links.commanded is None:
            return "there is no way to see whether its packets arrive"
        to_node = [Link(peer, node) for peer in stated if peer != node]
        cut = links.commanded(stated).attested(to_node) or {}
        if still := sorted(link.source for link, holds in cut.items() if holds):
            return f"by its proof it is cut off from {', '.join(still)}"
        unknown = sorted(link.source for link in to_node if link not in cut)
        return f"its proof does not say whether it is cut off from {', '.join(unknown)}" if unknown else ""


@contextmanager
def _alone(known: KnownCluster) -> Iterator[Callable[[], None]]:
    """Hold the cluster's lock, so that no run has the cluster; yield a function that removes what runs have left.

    The function removes their virtual hosts, which no run needs then. Raise LockedError if a run has the cluster, and
    WrongClusterError if another cluster answers. If no broker answers, go on without the lock, as machines may still
    need healing.
    """
    given, made = known.stated.virtual_host, Made()
    with ExitStack() as stack:
        try:
            known = stack.enter_context(reached(known))
            apis = [
                stack.enter_context(api_of(node.management, known.access, made, given=given))
                for node in known.stated.nodes
            ]
            refuse_others(known, apis)
            endpoints = [node.endpoint for node in known.stated.nodes]
            lock = stack.enter_context(locked(known.access, endpoints, apis, given=given))
        except (LockedError, WrongClusterError):
            raise
        except ClusterError as error:
            print(f"it is unknown whether a run has the cluster: {error}", file=sys.stderr)
            remove: Callable[[], None] = _nothing
        else:
            remove = partial(_remove_left, apis, lock.vhost)
        yield remove


def _nothing() -> None:
    """Remove nothing: a run may have the cluster."""


def _remove_left(apis: Sequence[ManagementApi], ours: str) -> None:
    try:
        left = [vhost for vhost in on_any(apis, marked_vhosts) if vhost != ours]
        for vhost in left:
            on_any(apis, partial(ManagementApi.delete_vhost, vhost=vhost))
            print(f"removed the virtual host {vhost}, which a run has left")
    except ClusterError as error:
        print(f"virtual hosts that runs have left may stay: {error}", file=sys.stderr)
