"""The way in to brokers in pods: what acts there, and what of the cluster file is not so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.clusters.attached.broker import RemoteBroker
from rabbitmq_resilience.clusters.attached.cluster_file import KnownCluster
from rabbitmq_resilience.clusters.attached.commanded import OurMachine, key_of
from rabbitmq_resilience.clusters.attached.journal import state_folder
from rabbitmq_resilience.clusters.attached.kubernetes.broker import PodBroker
from rabbitmq_resilience.clusters.attached.kubernetes.containers import (
    KINDS,
    STATE,
    ContainerMachine,
    EphemeralContainers,
)
from rabbitmq_resilience.clusters.attached.kubernetes.log import PodLog
from rabbitmq_resilience.clusters.attached.kubernetes.pods import Pods, configured, resolved
from rabbitmq_resilience.clusters.attached.kubernetes.policies import NetworkPolicies
from rabbitmq_resilience.clusters.attached.machine import MachineError
from rabbitmq_resilience.clusters.attached.offers import Service
from rabbitmq_resilience.clusters.attached.packet_rules import PacketRules, Rules
from rabbitmq_resilience.clusters.attached.ways import Ways
from rabbitmq_resilience.clusters.spec import Link

#: Nobody but Kubernetes starts a broker in a pod.
_BY_KUBERNETES = Service(start="true", stop="true")


def by_kubernetes(known: KnownCluster) -> Ways:
    stated = known.stated.offers.kubernetes
    assert stated is not None, "only what is offered is opened"
    offer = resolved(stated, known.path.resolve().parent)
    pods = Pods(configured(offer, known.path.resolve().parent), offer.namespace, offer.container)
    ephemeral = EphemeralContainers(pods, image=offer.image, pull=offer.pull)
    of = {node.name: offer.pod_of(node.name) for node in known.stated.nodes}
    inside = {name: ContainerMachine(pods, pod, lambda: offer.container, STATE) for name, pod in of.items()}
    network = {name: ephemeral.machine(pod, "network") for name, pod in of.items()}
    beside = {name: ephemeral.machine(pod, "process") for name, pod in of.items()}
    folder = known.path.resolve().parent
    keeper = OurMachine.of_user(state_folder() / key_of(known.stated.cluster))
    by_policy = offer.cut_by == "network_policy"
    rules: dict[str, Rules] = {
        name: NetworkPolicies(pods, pod, offer, folder, keeper)
        if by_policy
        else PacketRules(network[name], key=key_of(name))
        for name, pod in of.items()
    }
    logs = {name: PodLog(pods, pod) for name, pod in of.items()}
    names = list(of)
    brokers = {
        name: PodBroker(
            pods,
            pod,
            offer,
            RemoteBroker(inside[name], _BY_KUBERNETES, node=name, key=key_of(name)),
            RemoteBroker(beside[name], _BY_KUBERNETES, node=name, key=key_of(name)),
            beside[name],
            logs[name],
            neighbour=inside[names[names.index(name) - 1]] if len(names) > 1 else None,
        )
        for name, pod in of.items()
    }
    return Ways(
        inside,
        {
            **{f"{pod} ({kind})": ephemeral.machine(pod, kind, made=False) for pod in of.values() for kind in KINDS},
            keeper.told: keeper,
        },
        brokers,
        rules,
        logs,
        network=inside if by_policy else network,
        addresses=lambda stated: PodAddresses(pods, {node: of[one.name] for node, one in stated.items()}),
        restarted=True,
        contrary=lambda: list(_contrary(known, pods, of)),
        distribution_only=offer.cut == "distribution",
    )


@dataclass(frozen=True)
class PodAddresses(Mapping[Link, Sequence[str]]):
    """Where the source of a link finds its target, as of now: a new pod has another address. ``pods_of`` by the names
    of the topology. Raises MachineError where there is no such pod."""

    pods: Pods
    pods_of: Mapping[str, str]

    def __getitem__(self, link: Link) -> Sequence[str]:
        address = self.pods.there(self.pods_of[link.target]).address
        if not address:
            raise MachineError(f"pod {self.pods_of[link.target]} has no address yet")
        return [address]

    def __iter__(self) -> Iterator[Link]:
        return (Link(a, b) for a in self.pods_of for b in self.pods_of if a != b)

    def __len__(self) -> int:
        return len(self.pods_of) * (len(self.pods_of) - 1)


def _contrary(known: KnownCluster, pods: Pods, of: Mapping[str, str]) -> Iterator[str]:
    """What the API server tells otherwise than the file states."""
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
        takes = [act for act in ("kill", "stop") if getattr(offer, act) == "pod" and act in known.stated.allow]
        if takes and not found.has_claim:
            yield (
                f"pod {found.name} has no volume claim, so what its broker has stored would go with it; "
                f"state {' and '.join(f'{act}: container' for act in takes)}"
            )
