"""Find where pods differ from what the cluster file states or its acts need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rabbitmq_resilience.extensions.attached.cluster_file import KnownCluster
from rabbitmq_resilience.extensions.attached.kubernetes.network_chaos import NetworkChaos
from rabbitmq_resilience.extensions.attached.kubernetes.pods import Pods
from rabbitmq_resilience.extensions.attached.kubernetes.volume_claims import PodClaims
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.model.actions import ACTIONS, Action


def contrary(
    known: KnownCluster, pods: Pods, pod_of: Mapping[str, str], claims: Mapping[str, PodClaims]
) -> Iterator[str]:
    """Yield each difference as a text. ``pod_of``, ``claims``: the pod and its claims of each broker, by Erlang name.

    Raise MachineError if the API server gives no answer."""
    offers, offer = known.stated.offers, known.stated.offers.kubernetes
    allowed = {one: offers.way_of(one) for verb, one in ACTIONS.items() if verb in known.stated.allow}
    in_broker = [a.verb for a, way in allowed.items() if a.acts_on == "process" and way and way.adds_container]
    on_packets = [action.verb for action in allowed if action.acts_on == "packets"]
    takes_pod = [_instead(action) for action, way in allowed.items() if way and way.takes_pod]
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
        if shared and in_broker:
            yield (
                f"pod {found.name} shares its processes with others (shareProcessNamespace or hostPID), which "
                f"{', '.join(in_broker)} could hit; state kill: pod and stop: pod, and allow no pause"
            )
        if found.raw.spec.host_network and on_packets:
            yield (
                f"pod {found.name} uses the network of its machine (hostNetwork), so {', '.join(on_packets)} would act "
                f"on all that this machine sends and takes; allow none of them"
            )
        if not found.has_claim and takes_pod:
            yield (
                f"the broker of pod {found.name} stores in no volume claim, so its data would be lost with the pod; "
                f"{' and '.join(takes_pod)}"
            )
        if allowed.get(ACTIONS["lose_data"]) and not claims[node.name].of(found):
            yield (
                f"the broker of pod {found.name} stores in no claim that its StatefulSet has made, and lose_data "
                "deletes only such claims"
            )
    if offer.cut_by == "chaos_mesh" and any(action.acts_on == "packets" for action in allowed):
        yield from _left_of_chaos(pods, pod_of)


def _instead(action: Action) -> str:
    """Return what to write in the cluster file so that the action deletes no pod."""
    others = (way.stated for way in action.ways if way.backend == "kubernetes" and not way.takes_pod)
    stated = next(filter(None, others), None)
    return f"allow no {action.verb}" if stated is None else f"state {stated.field}: {stated.values[0]}"


def _left_of_chaos(pods: Pods, pod_of: Mapping[str, str]) -> Iterator[str]:
    for pod in pod_of.values():
        try:
            left = [one["metadata"]["name"] for one in NetworkChaos(pods, pod, {}).existing()]
        except MachineError as error:
            yield f"cut_by: chaos_mesh, and no NetworkChaos can be seen: {error}"
            return
        if left:
            yield f"pod {pod} still has {', '.join(left)} from an earlier run; delete that"
