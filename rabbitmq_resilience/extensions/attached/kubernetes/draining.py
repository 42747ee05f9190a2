"""Cordon and drain nodes of Kubernetes as ``kubectl drain`` does, and uncordon them again.

Pods leave by evictions, so disruption budgets hold. Kubernetes never uncordons a node by itself. A watchdog on this
machine does it, and runs this module as a program. A node is uncordoned only if it has our mark.
"""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.commanded import OurMachine, key_of
from rabbitmq_resilience.extensions.attached.kubernetes.evictions import (
    evictable,
    evicted,
    evicted_within_s,
    of_brokers,
)
from rabbitmq_resilience.extensions.attached.kubernetes.pods import (
    ANSWERS_WITHIN_S,
    MERGE,
    ZONE,
    Pods,
    configured,
    connected,
    words_of,
)
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.offers import Kubernetes
from rabbitmq_resilience.tools.locations import IMPORTED_FROM

#: The annotation of nodes that we have cordoned; its value has the namespace and the pod of each broker for
#: which that was done (shop/rabbit-1 shop/rabbit-2).
MARK = "rabbitmq-resilience/cordoned-for"
_NOT_FOUND = 404


@dataclass
class PodDraining:
    """Drain nodes of Kubernetes on which brokers run.

    ``pod_of``: the pod of each broker, by Erlang name. ``folder``: relative paths in the offer start there."""

    pods: Pods
    pod_of: Mapping[str, str]
    offer: Kubernetes
    folder: Path
    keeper: OurMachine
    #: The nodes of Kubernetes that were drained for each broker.
    drained: dict[str, frozenset[str]] = field(default_factory=dict)
    #: The keys of the watchdogs, by node. Each begins with a broker, by which it is known whose it is.
    _keys: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def drain(self, brokers: Collection[str], *, whole_zones: bool, for_s: float) -> None:
        """Cordon the nodes of these brokers, or all nodes of their zones, and evict the pods.

        A watchdog uncordons them about ``for_s`` seconds later. Raise MachineError before anything is done if other
        brokers of the cluster would go as well, or if a node is cordoned already; and if a pod is not evicted."""
        with self._lock:
            mine = {self.pod_of[name]: self.pods.get(self.pod_of[name]) for name in brokers}
            machines = frozenset(pod.node for pod in mine.values())
            if whole_zones:
                machines = frozenset(self._of_zones({self._zone(machine) for machine in machines}))
            self._refuse_if_shared(brokers, machines)
            going = of_brokers(mine.values()) if self.offer.drain_node == "brokers" else evictable(self.pods, machines)
            self._refuse_cordoned(machines)
            for name in brokers:
                self.drained[name] = machines
            self._keys |= {machine: f"{key_of(min(brokers))}:cordoned:{key_of(machine)}" for machine in machines}
            mark = " ".join(sorted(map(self._mark_of, brokers)))
            for machine in sorted(machines):
                heal, after_s = self._healed_by(machine), for_s + evicted_within_s(going)
                watchdog.arm(self.keeper, self._keys[machine], heal=heal, after_s=after_s)
                _mark(self.pods.configuration, machine, cordoned_for=mark)
        evicted(self.pods, going)

    def uncordon(self, brokers: Collection[str]) -> None:
        """Uncordon the nodes that were drained for these brokers. Raise MachineError if one is still cordoned."""
        with self._lock:
            for machine in sorted({one for name in brokers for one in self.drained.get(name, ())}):
                if not watchdog.heal(self.keeper, self._keys[machine]):
                    uncordoned(self.offer, self.folder, machine)
            for name in brokers:
                self.drained.pop(name, None)

    def uncordon_left(self, broker: str) -> None:
        """Uncordon the nodes that an earlier process has drained for this broker.

        Raise MachineError if one is still cordoned.
        """
        mark = self._mark_of(broker)
        nodes: Any = self.pods.ask("the nodes", lambda api: api.list_node(_request_timeout=ANSWERS_WITHIN_S)).items
        for machine in sorted(
            one.metadata.name for one in nodes if mark in (one.metadata.annotations or {}).get(MARK, "").split()
        ):
            uncordoned(self.offer, self.folder, machine)

    def open(self, brokers: Collection[str]) -> Iterator[str]:
        """Yield a text for each node that was drained for these brokers and takes pods."""
        machines = {one for name in brokers for one in self.drained.get(name, ())}
        if not machines:
            yield f"nothing was drained for {', '.join(sorted(brokers))}"
        for machine in sorted(machines):
            if not _read(self.pods.configuration, machine).spec.unschedulable:
                yield f"{machine} takes pods"

    def misplaced(self, zones: Mapping[str, str]) -> Iterator[str]:
        """Yield a text for each broker that has no node, is not in its zone, or is on a cordoned node.

        ``zones``: the zone of each broker, by Erlang name."""
        for name, zone in sorted(zones.items()):
            found = self.pods.find(self.pod_of[name])
            if found is None or not found.node:
                yield f"{name} has no node"
                continue
            machine = _read(self.pods.configuration, found.node)
            now = (machine.metadata.labels or {}).get(ZONE)
            if now not in (None, zone):
                yield f"{name} runs on {found.node}, in zone {now}, but belongs to {zone}"
            if machine.spec.unschedulable:
                yield f"{found.node}, where {name} runs, takes no pods"

    def _zone(self, machine: str) -> str:
        zone = self.pods.zone(machine)
        if zone is None:
            raise MachineError(f"{machine} has no zone that we may see, so the other nodes of its zone are not known")
        return zone

    def _of_zones(self, zones: Collection[str]) -> Iterator[str]:
        def listed(api: client.CoreV1Api) -> Any:
            return api.list_node(label_selector=f"{ZONE} in ({','.join(sorted(zones))})")

        for one in self.pods.ask(f"the nodes of {', '.join(sorted(zones))}", listed).items:
            yield one.metadata.name

    def _refuse_if_shared(self, brokers: Collection[str], machines: Collection[str]) -> None:
        for name in sorted(self.pod_of.keys() - set(brokers)):
            found = self.pods.find(self.pod_of[name])
            if found is not None and found.node in machines:
                raise MachineError(f"{name} runs on {found.node} too, and would be evicted as well; nothing was done")

    def _refuse_cordoned(self, machines: Collection[str]) -> None:
        for machine in sorted(machines):
            if _read(self.pods.configuration, machine).spec.unschedulable:
                raise MachineError(f"{machine} takes no pods already, and we have not cordoned it; nothing was done")

    def _mark_of(self, broker: str) -> str:
        return f"{self.pods.namespace}/{self.pod_of[broker]}"

    def _healed_by(self, machine: str) -> str:
        program = [sys.executable, "-m", __name__, self.offer.model_dump_json(), str(self.folder), machine]
        return f"cd {shlex.quote(str(IMPORTED_FROM))} && exec {shlex.join(program)}"


def uncordoned(offer: Kubernetes, folder: Path, machine: str) -> None:
    """Uncordon a node if we have cordoned it. A node that does not exist is no error.

    Raise MachineError if the node cannot be read, or still takes no pods."""
    configuration = configured(offer, folder)
    try:
        if MARK not in (_read(configuration, machine).metadata.annotations or {}):
            return
        _mark(configuration, machine, cordoned_for=None)
        if _read(configuration, machine).spec.unschedulable:
            raise MachineError(f"{machine} still takes no pods")
    except _Absent:
        return


class _Absent(MachineError):
    """The node does not exist any more."""


@contextmanager
def _nodes(configuration: client.Configuration, machine: str) -> Iterator[client.CoreV1Api]:
    try:
        with connected(configuration) as connection:
            yield client.CoreV1Api(connection)
    except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
        kind = _Absent if getattr(error, "status", None) == _NOT_FOUND else MachineError
        raise kind(f"node {machine}: {words_of(error)}") from error


def _read(configuration: client.Configuration, machine: str) -> Any:
    with _nodes(configuration, machine) as api:
        return api.read_node(machine, _request_timeout=ANSWERS_WITHIN_S)


def _mark(configuration: client.Configuration, machine: str, *, cordoned_for: str | None) -> None:
    """Cordon and mark the node, or uncordon it and remove the mark if ``cordoned_for`` is None."""
    body = {"metadata": {"annotations": {MARK: cordoned_for}}, "spec": {"unschedulable": cordoned_for is not None}}
    with _nodes(configuration, machine) as api:
        api.patch_node(machine, body, _request_timeout=ANSWERS_WITHIN_S, _content_type=MERGE)


if __name__ == "__main__":
    uncordoned(Kubernetes.model_validate_json(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
