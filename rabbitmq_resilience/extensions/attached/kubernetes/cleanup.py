"""Remove what a ``NetworkChaos`` has left if its finalizer has to be removed by force.

It may have left entries in what Chaos Mesh means to do to a pod (``PodNetworkChaos``), and queues and rules in the
pod's network. Both are removed, and then the network is checked again."""

from __future__ import annotations

from typing import Any

import urllib3
from kubernetes import client

from rabbitmq_resilience.extensions.attached.kubernetes.pods import ANSWERS_WITHIN_S, MERGE, Pods, connected, words_of
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_WHERE = ("chaos-mesh.org", "v1alpha1")
_PLURAL = "podnetworkchaos"
#: The lists of what Chaos Mesh means to do to a pod; each entry names its source (``v1alpha1.PodNetworkChaosSpec``).
_PARTS = ("ipsets", "iptables", "tcs")
BROUGHT_ABOUT_WITHIN_S = 20.0
_TRIES = 5
_NOT_FOUND, _CONFLICT = 404, 409

#: Prints a line for each thing that is left: queues of Chaos Mesh's kinds at the roots of devices (tc(8)), and rules in
#: its own chains, of each kind of iptables.
_LOOK = r"""
command -v tc > /dev/null || { echo "there is no tc to look with" >&2; exit 1; }
tc qdisc show | grep -E '^qdisc (netem|prio) .* root' || true
for tool in iptables-nft iptables-legacy ip6tables-nft ip6tables-legacy iptables ip6tables; do
    command -v $tool > /dev/null || continue
    for chain in CHAOS-INPUT CHAOS-OUTPUT; do
        $tool -w -S $chain 2> /dev/null | grep -e '^-A' | sed "s/^/$tool /" || true
    done
done
exit 0
"""
_UNDO = r"""
tc qdisc show | grep -E '^qdisc (netem|prio) .* root' | while read -r _ _ _ _ device _; do
    tc qdisc del dev "$device" root
done
for tool in iptables-nft iptables-legacy ip6tables-nft ip6tables-legacy iptables ip6tables; do
    command -v $tool > /dev/null || continue
    for chain in CHAOS-INPUT CHAOS-OUTPUT; do $tool -w -F $chain 2> /dev/null || true; done
done
exit 0
"""


def removed(pods: Pods, pod: str, machine: Machine, chaos: str) -> str:
    """Remove what the object ``chaos`` has left in the pod, and return a text that says what it was.

    ``machine`` sees the pod's network. Raise MachineError if something may be left, and if other objects of Chaos Mesh
    act on the pod as well."""
    if pods.find(pod) is None:
        return f"pod {pod} is gone, with all that was in it"
    others = _forgotten(pods, pod, f"{pods.namespace}/{chaos}")
    found = machine.run(_LOOK).splitlines()
    if not found:
        return f"nothing is left in pod {pod}"
    if others:
        raise MachineError(
            f"pod {pod} has {'; '.join(found)}, from {chaos} or from others ({', '.join(others)}): nothing was undone"
        )
    machine.run(_UNDO)
    if still := machine.run(_LOOK).splitlines():
        raise MachineError(f"pod {pod} still has {'; '.join(still)}, which {chaos} has left there")
    return f"pod {pod} still had {'; '.join(found)}, which was undone"


def _forgotten(pods: Pods, pod: str, source: str) -> list[str]:
    """Remove the entries of that source from what Chaos Mesh means to do to the pod; return the other sources.

    Raise MachineError with the server's words."""
    try:
        with connected(pods.configuration) as connection:
            return _without(client.CustomObjectsApi(connection), pods.namespace, pod, source)
    except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
        raise MachineError(f"what Chaos Mesh means to do to pod {pod}: {words_of(error)}") from error


def _without(api: Any, namespace: str, pod: str, source: str) -> list[str]:
    where = (*_WHERE, namespace, _PLURAL, pod)

    def read() -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = api.get_namespaced_custom_object(*where, _request_timeout=ANSWERS_WITHIN_S)
        except client.ApiException as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return found

    for left in reversed(range(_TRIES)):
        found = read()
        if found is None:
            return []
        spec = {part: found["spec"].get(part) or [] for part in _PARTS}
        others = {part: [one for one in wanted if one["source"] != source] for part, wanted in spec.items()}
        if others == spec:
            break
        body = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "spec": others}
        try:
            api.patch_namespaced_custom_object(*where, body, _request_timeout=ANSWERS_WITHIN_S, _content_type=MERGE)
        except client.ApiException as error:
            if error.status != _CONFLICT or not left:
                raise
            continue
        _await_brought_about(read)
        break
    return sorted({one["source"] for wanted in others.values() for one in wanted})


def _await_brought_about(read: Any) -> None:
    """Wait until the controller has applied the change. If it does not in time, ``removed`` undoes it afterwards."""

    def done() -> bool:
        found = read() or {"metadata": {"generation": 0}}
        status = found.get("status") or {}
        seen = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
        return seen and not status.get("failedMessage")

    try:
        wait_until(done, timeout_s=BROUGHT_ABOUT_WITHIN_S, what="Chaos Mesh to remove it from the pod", poll_s=0.5)
    except WaitTimeout:
        return
