"""What the API server tells of brokers in pods otherwise than the cluster file states, or than its acts need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rabbitmq_resilience.clusters.attached.cluster_file import KnownCluster
from rabbitmq_resilience.clusters.attached.kubernetes.claims import PodClaims
from rabbitmq_resilience.clusters.attached.kubernetes.network_chaos import NetworkChaos
from rabbitmq_resilience.clusters.attached.kubernetes.pods import Pods
from rabbitmq_resilience.clusters.attached.machine import MachineError
from rabbitmq_resilience.clusters.attached.offers import PACKETS, Kubernetes

#: What takes a pod away, by what else must be stated for that.
_TAKES_PODS: Mapping[str, str] = {"kill": "pod", "stop": "pod", "drain_node": "", "restart_all": ""}


def contrary(known: KnownCluster, pods: Pods, of: Mapping[str, str], claims: Mapping[str, PodClaims]) -> Iterator[str]:
    """In words. Raises MachineError where it does not tell."""
    offer = known.stated.offers.kubernetes
    assert offer is not None, "only what is offered is asked for"
    for node in known.stated.nodes:
        found = pods.find(of[node.name])
        if found is None:
            yield f"{node.name}: {offer.namespace} has no pod {of[node.name]}; state offers.kubernetes.pods"
            continue
        zone = pods.zone(found.node)
        if zone is not None and zone != node.zone:
            yield f"{node.name} runs on {found.node}, in zone {zone}, and the file states {node.zone}"
        shared = found.raw.spec.share_process_namespace or found.raw.spec.host_pid
        inside = [act for act in ("kill", "stop", "pause") if getattr(offer, act, "container") == "container"]
        if shared and (acts := [act for act in inside if act in known.stated.allow]):
            yield (
                f"pod {found.name} shares its processes with others (shareProcessNamespace or hostPID), which "
                f"{', '.join(acts)} could hit; state kill: pod and stop: pod, and allow no pause"
            )
        if not found.has_claim and (takes := list(_taking_pods(offer, known.stated.allow))):
            yield (
                f"pod {found.name} has no volume claim, so what its broker has stored would go with it; "
                f"{' and '.join(takes)}"
            )
        if "lose_data" in known.stated.allow and offer.can("lose_data") and not claims[node.name].of(found):
            yield f"pod {found.name} has no claim that its StatefulSet has made, which lose_data could delete"
    if offer.cut_by == "chaos_mesh" and PACKETS & known.stated.allow.keys():
        yield from _left_of_chaos(pods, of)


def _taking_pods(offer: Kubernetes, allow: Mapping[str, int]) -> Iterator[str]:
    """What to write so that no pod is taken away."""
    for act, stated in _TAKES_PODS.items():
        if act in allow and offer.can(act) and stated == (getattr(offer, act) if stated else ""):
            yield f"state {act}: container" if stated else f"allow no {act}"


def _left_of_chaos(pods: Pods, of: Mapping[str, str]) -> Iterator[str]:
    for pod in of.values():
        try:
            left = [one["metadata"]["name"] for one in NetworkChaos(pods, pod, {}).there()]
        except MachineError as error:
            yield f"cut_by: chaos_mesh, and no NetworkChaos can be seen: {error}"
            return
        if left:
            yield f"pod {pod} has {', '.join(left)} of an earlier run; delete that"
