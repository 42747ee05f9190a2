"""List the rights that the acts of a cluster file need in Kubernetes, and which are missing; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator

from rabbitmq_resilience.extensions.attached.cluster_file import KnownCluster
from rabbitmq_resilience.extensions.attached.cluster_model import ClusterFile, forwarded_port
from rabbitmq_resilience.extensions.attached.kubernetes.pods import Pods, configured
from rabbitmq_resilience.extensions.attached.kubernetes.reviews import may
from rabbitmq_resilience.extensions.attached.offers import PACKETS, Kubernetes

#: The acts that an ephemeral container does.
_BY_EPHEMERAL = ("pause", "cut", "refuse", "lose_packets")
_GROUPS = {
    "networkpolicies": "networking.k8s.io",
    "statefulsets": "apps",
    "rabbitmqclusters": "rabbitmq.com",
    "networkchaos": "chaos-mesh.org",
    "podnetworkchaos": "chaos-mesh.org",
}

#: Verb, resource and subresource.
Right = tuple[str, str, str]


def wanted(stated: ClusterFile) -> list[Right]:
    """Return the rights that this file's acts and addresses need in the namespace.

    ``docs/kubernetes/rights.yaml`` has them all."""
    offer = stated.offers.kubernetes
    assert offer is not None, "the caller checks the offer"
    by_pod = [act for act in ("kill", "stop") if act in stated.allow and getattr(offer, act) == "pod"]
    otherwise = {*by_pod, "cut"} if offer.cut_by == "network_policy" else {*by_pod}
    by_container = [act for act in ("kill", "stop", *_BY_EPHEMERAL) if act in stated.allow and act not in otherwise]
    forwarded = any(forwarded_port(text) for one in stated.nodes for text in one.addresses)
    found = [("get", "pods", ""), ("get", "pods", "log"), ("create", "pods", "exec")]
    found += [("delete", "pods", "")] if by_pod else []
    found += [("patch", "pods", "ephemeralcontainers")] if by_container else []
    found += [("create", "pods", "portforward")] if forwarded else []
    if offer.cut_by == "network_policy" and "cut" in stated.allow:
        found += [(verb, "networkpolicies", "") for verb in ("create", "patch", "delete", "get", "list")]
    for act in stated.allow:
        found += [right for right in _of_act(offer, act) if offer.can(act) and right not in found]
    return found


def _of_act(offer: Kubernetes, act: str) -> Iterator[Right]:
    if act in PACKETS and offer.cut_by == "chaos_mesh":
        yield from ((verb, "networkchaos", "") for verb in ("create", "patch", "delete", "get", "list"))
        yield from ((verb, "podnetworkchaos", "") for verb in ("patch", "get"))
        yield "patch", "pods", "ephemeralcontainers"
    if act == "drain_node" and offer.drain_node == "brokers":
        yield "create", "pods", "eviction"
    if act == "restart_all":
        yield "get", "statefulsets", ""
        yield "patch", "statefulsets" if offer.restart_all == "statefulset" else "rabbitmqclusters", ""
    if act == "lose_data":
        yield from [("get", "statefulsets", ""), ("delete", "pods", "")]
        yield from ((verb, "persistentvolumeclaims", "") for verb in ("get", "delete"))


def wanted_everywhere(stated: ClusterFile) -> list[Right]:
    """Return the rights that this file's acts need outside the namespace: for nodes, and for pods of all namespaces."""
    offer = stated.offers.kubernetes
    assert offer is not None, "the caller checks the offer"
    if "drain_node" not in stated.allow or offer.drain_node is None:
        return []
    all_pods = [("list", "pods", ""), ("get", "pods", ""), ("create", "pods", "eviction")]
    return [(verb, "nodes", "") for verb in ("get", "list", "patch")] + (all_pods if offer.drain_node == "all" else [])


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
