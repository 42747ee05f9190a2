"""Drop, lose or delay packets between pods by Chaos Mesh.

The controllers of Chaos Mesh apply a ``NetworkChaos`` object, and end it after its ``duration`` without our help. This
module waits for the status of the object, but the status proves nothing. If the deletion of an object hangs on its
finalizer, this module first removes what the object left in pods, and then the finalizer. That is reported as an
error, although all is healed by then.
"""

from __future__ import annotations

import math
import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import urllib3
from kubernetes import client

from rabbitmq_resilience.extensions.attached.kubernetes.cleanup import removed
from rabbitmq_resilience.extensions.attached.kubernetes.pods import ANSWERS_WITHIN_S, MERGE, Pods, connected, words_of
from rabbitmq_resilience.extensions.attached.machine import ForcedError, Machine, MachineError
from rabbitmq_resilience.extensions.attached.packet_rules import PacketRule, Treatment
from rabbitmq_resilience.extensions.attached.watchdog import MARGIN_S
from rabbitmq_resilience.model.packets import passed_netem
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

GROUP, VERSION = "chaos-mesh.org", "v1alpha1"
#: The label that names the receiving pod.
LABEL = "rabbitmq-resilience"
IN_PLACE_WITHIN_S = 30.0
#: An object that still exists after this time loses its finalizer.
GONE_WITHIN_S = 20.0
_LET_GO_WITHIN_S = 10.0
_POLL_S = 0.5
_NOT_FOUND = 404
_LISTING = "tc -s -j qdisc show dev eth0"

#: The field that each action needs, with its content (``v1alpha1.NetworkChaosSpec``).
_ACTIONS: Mapping[str, Callable[[Treatment], Mapping[str, Any]]] = {
    "partition": lambda _: {},
    "loss": lambda how: {"loss": {"loss": f"{how.percent:g}", "correlation": "0"}},
    "delay": lambda how: {
        "delay": {"latency": f"{how.latency_ms}ms", "jitter": f"{how.jitter_ms}ms", "correlation": "0"}
    },
}


@dataclass(frozen=True)
class NetworkChaos:
    """The ``NetworkChaos`` objects of one receiving pod, used as ``packet_rules.Rules``.

    ``machines``: for each pod of the cluster, a machine that sees the network of that pod. It is used only for what
    Chaos Mesh does not do."""

    pods: Pods
    pod: str
    machines: Mapping[str, Machine]

    tool = "NetworkChaos"

    def put(self, rules: Collection[PacketRule], *, for_s: float) -> None:
        """Replace the objects of this pod; the old objects are deleted once the new ones are in place.

        Raise MachineError if Chaos Mesh cannot do it, and ForcedError if an old object had to be forced."""
        before = [one["metadata"]["name"] for one in self.existing()]
        sources: dict[Treatment, set[str]] = defaultdict(set)
        pod_at = {
            one.address: one.name for one in map(self.pods.find, self.machines if rules else ()) if one is not None
        }
        for rule in rules:
            if rule.treatment.verb == "reset" or rule.port is not None:
                raise MachineError("Chaos Mesh resets no connections, and acts on whole pods")
            if rule.address not in pod_at:
                raise MachineError(f"no pod of the cluster has the address {rule.address} now")
            sources[rule.treatment].add(pod_at[rule.address])
        for how, names in sources.items():
            self._made(stated(self.pods.namespace, self.pod, sorted(names), how, for_s=for_s))
        if forced := list(filter(None, map(self._deleted, before))):
            raise ForcedError("; ".join(forced))

    def lost(self) -> Mapping[str, int]:
        """Return by sender's address how many packets netem has passed to all other pods.

        netem works at the sending pod, so its queue there is read."""
        found: dict[str, int] = {}
        for one in self.existing():
            if one["spec"]["action"] == "partition":
                continue
            for source in one["spec"]["selector"]["pods"][self.pods.namespace]:
                passed = passed_netem(self.machines[source].run(_LISTING))
                if passed is not None:
                    found[self.pods.get(source).address] = passed
        return found

    def existing(self) -> list[dict[str, Any]]:
        """Return the objects that now exist for this pod."""
        with self._objects("list") as (api, where):
            label = f"{LABEL}={self.pod}"
            answer: Any = api.list_namespaced_custom_object(
                *where, label_selector=label, _request_timeout=ANSWERS_WITHIN_S
            )
        items: list[dict[str, Any]] = answer["items"]
        return items

    def _made(self, body: dict[str, Any]) -> None:
        """Create the object, and return once its status says that it is in place. Raise MachineError if not."""
        name = body["metadata"]["name"]
        with self._objects("create") as (api, where):
            api.create_namespaced_custom_object(*where, body, _request_timeout=ANSWERS_WITHIN_S)
        try:
            wait_until(
                lambda: _is(self._read(name), "AllInjected"),
                timeout_s=IN_PLACE_WITHIN_S,
                what=f"{name} to be in place",
                poll_s=_POLL_S,
            )
        except WaitTimeout:
            why = _why(self._read(name))
            raise MachineError(f"NetworkChaos {name} is not in place after {IN_PLACE_WITHIN_S:g} s: {why}") from None

    def _deleted(self, name: str) -> str:
        """Delete the object; return how it had to be forced, or an empty text if it had not.

        Raise MachineError if something of the object may be left."""
        with self._objects("delete", absent_ok=True) as (api, where):
            api.delete_namespaced_custom_object(*where, name, _request_timeout=ANSWERS_WITHIN_S)
        if self._gone(name, GONE_WITHIN_S):
            return ""
        found = self._read(name)
        if found is None:
            return ""
        pods = sorted({*_selected(found["spec"], self.pods), *_selected(found["spec"]["target"], self.pods)})
        left = "; ".join(removed(self.pods, pod, self.machines[pod], name) for pod in pods)
        with self._objects("patch", absent_ok=True) as (api, where):
            body = {"metadata": {"finalizers": None}}
            api.patch_namespaced_custom_object(
                *where, name, body, _request_timeout=ANSWERS_WITHIN_S, _content_type=MERGE
            )
        why = _why(found)
        if not self._gone(name, _LET_GO_WITHIN_S):
            raise MachineError(f"NetworkChaos {name} still exists, even without its finalizer: {why}")
        return (
            f"NetworkChaos {name} still existed {GONE_WITHIN_S:g} s after its deletion ({why}), so its finalizer was "
            f"removed by force: {left}"
        )

    def _gone(self, name: str, timeout_s: float) -> bool:
        try:
            wait_until(lambda: self._read(name) is None, timeout_s=timeout_s, what=f"{name} to go", poll_s=_POLL_S)
        except WaitTimeout:
            return False
        return True

    def _read(self, name: str) -> dict[str, Any] | None:
        with self._objects("get", absent_ok=True) as (api, where):
            found: dict[str, Any] = api.get_namespaced_custom_object(*where, name, _request_timeout=ANSWERS_WITHIN_S)
            return found
        return None

    @contextmanager
    def _objects(self, verb: str, *, absent_ok: bool = False) -> Iterator[tuple[Any, tuple[str, str, str, str]]]:
        """Yield the API and the place of the objects in it. Raise MachineError with the server's words."""
        try:
            with connected(self.pods.configuration) as connection:
                yield client.CustomObjectsApi(connection), (GROUP, VERSION, self.pods.namespace, "networkchaos")
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            if absent_ok and isinstance(error, client.ApiException) and error.status == _NOT_FOUND:
                return
            raise MachineError(f"cannot {verb} NetworkChaos in {self.pods.namespace}: {words_of(error)}") from error


def stated(namespace: str, pod: str, sources: list[str], how: Treatment, *, for_s: float) -> dict[str, Any]:
    """Return the object that treats the packets from the pods ``sources`` to ``pod``, for about ``for_s`` seconds."""
    action = "delay" if how.verb == "delay" else "partition" if how.parts else "loss"
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "NetworkChaos",
        "metadata": {"name": f"resilience-{pod}-{secrets.token_hex(4)}", "labels": {LABEL: pod}},
        "spec": {
            "action": action,
            "mode": "all",
            "selector": _selector(namespace, sources),
            "direction": "to",
            "target": {"mode": "all", "selector": _selector(namespace, [pod])},
            "duration": f"{math.ceil(for_s + MARGIN_S)}s",
            **_ACTIONS[action](how),
        },
    }


def _selector(namespace: str, pods: list[str]) -> dict[str, Any]:
    return {"namespaces": [namespace], "pods": {namespace: pods}}


def _selected(of: Mapping[str, Any], pods: Pods) -> list[str]:
    names: list[str] = of["selector"]["pods"][pods.namespace]
    return names


def _is(found: Mapping[str, Any] | None, condition: str) -> bool:
    conditions = ((found or {}).get("status") or {}).get("conditions") or ()
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)


def _why(found: Mapping[str, Any] | None) -> str:
    """Return the last failure that Chaos Mesh reports for each pod, as one text."""
    experiment = ((found or {}).get("status") or {}).get("experiment") or {}
    failures = [
        f"{record['id']}: {failed[-1]['message']}"
        for record in experiment.get("containerRecords") or ()
        if (failed := [one for one in record.get("events") or () if one["type"] == "Failed"])
    ]
    return "; ".join(sorted(failures)) or "Chaos Mesh gives no reason"
