"""List the rights that the acts of a cluster file need in Kubernetes, and which are missing; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator

from rabbitmq_resilience.extensions.attached.cluster_file import KnownCluster
from rabbitmq_resilience.extensions.attached.cluster_model import ClusterFile, forwarded_port
from rabbitmq_resilience.extensions.attached.kubernetes.pods import Pods, configured
from rabbitmq_resilience.extensions.attached.kubernetes.reviews import may
from rabbitmq_resilience.model.actions import ACTIONS, ActionWay, Right

_GROUPS = {
    "networkpolicies": "networking.k8s.io",
    "statefulsets": "apps",
    "rabbitmqclusters": "rabbitmq.com",
    "networkchaos": "chaos-mesh.org",
    "podnetworkchaos": "chaos-mesh.org",
}


def wanted(stated: ClusterFile) -> list[Right]:
    """Return the rights that this file's acts and addresses need in the namespace.

    ``docs/kubernetes/rights.yaml`` has them all."""
    forwarded = any(forwarded_port(text) for one in stated.nodes for text in one.addresses)
    found = [("get", "pods", ""), ("get", "pods", "log"), ("create", "pods", "exec")]
    found += [("create", "pods", "portforward")] if forwarded else []
    found += [right for way in _ways(stated) for right in way.rights]
    return list(dict.fromkeys(found))


def wanted_everywhere(stated: ClusterFile) -> list[Right]:
    """Return the rights that this file's acts need outside the namespace: for nodes, and for pods of all namespaces."""
    return list(dict.fromkeys(right for way in _ways(stated) for right in way.cluster_rights))


def _ways(stated: ClusterFile) -> list[ActionWay]:
    """Return the ways by which the allowed actions are done."""
    found = map(stated.offers.way_of, (ACTIONS[verb] for verb in stated.allow))
    return [way for way in found if way is not None]


def lacking(known: KnownCluster, pods: Pods) -> Iterator[str]:
    """Yield a text for each right that is missing. Raise MachineError if the API server does not answer."""
    asked = [(pods.namespace, right) for right in wanted(known.stated)]
    asked += [("", right) for right in wanted_everywhere(known.stated)]
    for namespace, (verb, resource, sub) in asked:
        group = _GROUPS.get(resource, "")
        if not may(pods.configuration, verb, resource, sub, namespace=namespace, group=group):
            what = f"{resource}/{sub}" if sub else resource
            where = f"in {namespace}" if namespace else "of the whole cluster"
            yield f"we may not {verb} {what} {where}; docs/kubernetes/rights.yaml has that right"


def seen(known: KnownCluster) -> Iterator[tuple[str, bool]]:
    """Yield (text, whether it is a problem): each missing right, and what was found of each broker's pod."""
    offer = known.stated.offers.kubernetes
    assert offer is not None, "the caller checks the offer"
    pods = Pods(configured(offer, known.path.resolve().parent), offer.namespace, offer.container)
    for text in lacking(known, pods):
        yield text, True
    for node in known.stated.nodes:
        found = pods.find(offer.pod_of(node.name))
        if found is None:
            continue  # ``contrary`` reports this
        zone = pods.zone(found.node) or "no zone that we may see"
        stores = "in a claim" if found.has_claim else "without a claim, so its data are lost with the pod"
        ours = sorted(name for name in found.containers if name.startswith("resilience-"))
        also = f", with our containers {', '.join(ours)}" if ours else ""
        runs = "runs" if offer.container in found.containers else "DOES NOT RUN"
        yield f"{node.name} is pod {found.name} on {found.node} ({zone}), {runs}, stores {stores}{also}", False
