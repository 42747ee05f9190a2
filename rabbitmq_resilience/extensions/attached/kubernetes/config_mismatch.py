"""Find where pods differ from what the cluster file states or its acts need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rabbitmq_resilience.extensions.attached.cluster_file import KnownCluster
from rabbitmq_resilience.extensions.attached.kubernetes.network_chaos import NetworkChaos
from rabbitmq_resilience.extensions.attached.kubernetes.pods import Pods
from rabbitmq_resilience.extensions.attached.kubernetes.volume_claims import PodClaims
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.offers import PACKETS, Kubernetes

#: The acts that delete a pod, each with the value of its field in the offer that causes this (empty: always).
_TAKES_PODS: Mapping[str, str] = {"kill": "pod", "stop": "pod", "drain_node": "", "restart_all": ""}


def contrary(
    known: KnownCluster, pods: Pods, pod_of: Mapping[str, str], claims: Mapping[str, PodClaims]
) -> Iterator[str]:
    """Yield each difference as a text. ``pod_of``, ``claims``: the pod and its claims of each broker, by Erlang name.

    Raise MachineError if the API server gives no answer."""
    offer = known.stated.offers.kubernetes
    assert offer is not None, "the caller checks the offer"
    for node in known.stated.nodes:
        found = pods.find(pod_of[node.name])
        if found is None:
            yield f"{node.name}: {offer.namespace} has no pod {pod_of[node.name]}; state offers.kubernetes.pods"
            continue
        zone = pods.zone(found.node)
        if zone is not None and zone != node.zone:
            yield f"{node.name} runs on {found.node}, in zone {zone}, but the file states {node.zone}"
        shared = found.raw.spec.share_process_namespace or found.raw.spec.host_pid
        inside = [act for act in ("kill", "stop", "pause") if getattr(offer, act, "container") == "container"]
        if shared and (acts := [act for act in inside if act in known.stated.allow]):
            yield (
                f"pod {found.name} shares its processes with others (shareProcessNamespace or hostPID), which "
                f"{', '.join(acts)} could hit; state kill: pod and stop: pod, and allow no pause"
            )
        if not found.has_claim and (takes := list(_taking_pods(offer, known.stated.allow))):
            yield (
                f"pod {found.name} has no volume claim, so the data of its broker would be lost with the pod; "
                f"{' and '.join(takes)}"
            )
        if "lose_data" in known.stated.allow and offer.can("lose_data") and not claims[node.name].of(found):
            yield f"pod {found.name} has no claim made by its StatefulSet, and lose_data deletes only such claims"
    if offer.cut_by == "chaos_mesh" and PACKETS & known.stated.allow.keys():
        yield from _left_of_chaos(pods, pod_of)


def _taking_pods(offer: Kubernetes, allow: Mapping[str, int]) -> Iterator[str]:
    """Yield what to write in the cluster file so that no pod is deleted."""
    for act, stated in _TAKES_PODS.items():
        if act in allow and offer.can(act) and stated == (getattr(offer, act) if stated else ""):
            yield f"state {act}: container" if stated else f"allow no {act}"


def _left_of_chaos(pods: Pods, pod_of: Mapping[str, str]) -> Iterator[str]:
    for pod in pod_of.values():
        try:
            left = [one["metadata"]["name"] for one in NetworkChaos(pods, pod, {}).existing()]
        except MachineError as error:
            yield f"cut_by: chaos_mesh, and no NetworkChaos can be seen: {error}"
            return
        if left:
            yield f"pod {pod} still has {', '.join(left)} from an earlier run; delete that"
