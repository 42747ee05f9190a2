"""Assemble what observes and disturbs brokers in pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.extensions.attached.cluster_file import KnownCluster
from rabbitmq_resilience.extensions.attached.commanded import OurMachine, key_of
from rabbitmq_resilience.extensions.attached.foreign_broker import RemoteBroker
from rabbitmq_resilience.extensions.attached.journal import cluster_state
from rabbitmq_resilience.extensions.attached.kubernetes.config_mismatch import contrary
from rabbitmq_resilience.extensions.attached.kubernetes.containers import (
    KINDS,
    STATE,
    ContainerMachine,
    EphemeralContainers,
)
from rabbitmq_resilience.extensions.attached.kubernetes.draining import PodDraining
from rabbitmq_resilience.extensions.attached.kubernetes.log import PodLog
from rabbitmq_resilience.extensions.attached.kubernetes.network_chaos import NetworkChaos
from rabbitmq_resilience.extensions.attached.kubernetes.pod_broker import PodBroker
from rabbitmq_resilience.extensions.attached.kubernetes.pods import Pods, configured, resolved
from rabbitmq_resilience.extensions.attached.kubernetes.policies import NetworkPolicies
from rabbitmq_resilience.extensions.attached.kubernetes.rollout import PodRollout
from rabbitmq_resilience.extensions.attached.kubernetes.volume_claims import PodClaims
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError
from rabbitmq_resilience.extensions.attached.node_backends import LinkBackend, NodeBackend, NodeBackends
from rabbitmq_resilience.extensions.attached.offers import BrokerService, Kubernetes
from rabbitmq_resilience.extensions.attached.orchestrator import Orchestrator
from rabbitmq_resilience.extensions.attached.packet_rules import PacketRules, Rules
from rabbitmq_resilience.model.links import Link

#: Only Kubernetes starts a broker in a pod, so our own commands do nothing.
_BY_KUBERNETES = BrokerService(start="true", stop="true")


def by_kubernetes(known: KnownCluster) -> NodeBackends:
    """Return the backends of brokers in pods, as the cluster file offers them. Raise MachineError without access."""
    stated, folder = known.stated.offers.kubernetes, known.path.resolve().parent
    assert stated is not None, "the caller checks the offer"
    offer = resolved(stated, folder)
    pods = Pods(configured(offer, folder), offer.namespace, offer.container)
    ephemeral = EphemeralContainers(pods, image=offer.image, pull=offer.pull)
    pod_of = {node.name: offer.pod_of(node.name) for node in known.stated.nodes}
    inside = {name: ContainerMachine(pods, pod, lambda: offer.container, STATE) for name, pod in pod_of.items()}
    network = {name: ephemeral.machine(pod, "network") for name, pod in pod_of.items()}
    keeper = OurMachine.of_user(cluster_state(known.stated.cluster))
    machines = {pod_of[name]: machine for name, machine in network.items()}
    ruled: Mapping[str, Callable[[str], Rules]] = {
        "rules": lambda name: PacketRules(network[name], key=key_of(name)),
        "network_policy": lambda name: NetworkPolicies(pods, pod_of[name], name, offer, folder, keeper),
        "chaos_mesh": lambda name: NetworkChaos(pods, pod_of[name], machines),
    }
    brokers = _brokers(pods, offer, inside, ephemeral)
    claims = {name: PodClaims(pods, pod, inside[name]) for name, pod in pod_of.items()}
    kept = Orchestrator(PodDraining(pods, pod_of, offer, folder, keeper), PodRollout(pods, pod_of, offer), claims)
    keepers: dict[str, Machine] = {
        f"{pod} ({kind})": ephemeral.machine(pod, kind, made=False) for pod in pod_of.values() for kind in KINDS
    }
    return NodeBackends(
        {
            name: NodeBackend(broker, inside[name], ruled[offer.cut_by](name), broker.log)
            for name, broker in brokers.items()
        },
        LinkBackend(
            distribution_only=offer.cut == "distribution",
            network=network if offer.cut_by == "rules" else inside,
            addresses=lambda stated: PodAddresses(pods, {node: pod_of[one.name] for node, one in stated.items()}),
        ),
        {**keepers, keeper.description: keeper},
        kept,
        restarted=True,
        config_mismatch=lambda: list(contrary(known, pods, pod_of, claims)),
        place=f"the namespace {offer.namespace} of {pods.configuration.host}",
    )


def _brokers(
    pods: Pods, offer: Kubernetes, inside: Mapping[str, Machine], ephemeral: EphemeralContainers
) -> dict[str, PodBroker]:
    names = list(inside)
    found = {}
    for i, name in enumerate(names):
        pod, process = offer.pod_of(name), ephemeral.machine(offer.pod_of(name), "process")
        found[name] = PodBroker(
            pods,
            pod,
            offer,
            RemoteBroker(inside[name], _BY_KUBERNETES, node=name, key=key_of(name)),
            RemoteBroker(process, _BY_KUBERNETES, node=name, key=key_of(name)),
            process,
            PodLog(pods, pod),
            neighbour=inside[names[i - 1]] if len(names) > 1 else None,
        )
    return found


@dataclass(frozen=True)
class PodAddresses(Mapping[Link, Sequence[str]]):
    """The current addresses of the target of each link; a new pod has another address.

    ``pods_of``: the pod of each node, by the names of the topology. Raise MachineError if there is no such pod."""

    pods: Pods
    pods_of: Mapping[str, str]

    def __getitem__(self, link: Link) -> Sequence[str]:
        address = self.pods.get(self.pods_of[link.target]).address
        if not address:
            raise MachineError(f"pod {self.pods_of[link.target]} has no address yet")
        return [address]

    def __iter__(self) -> Iterator[Link]:
        return (Link(a, b) for a in self.pods_of for b in self.pods_of if a != b)

    def __len__(self) -> int:
        return len(self.pods_of) * (len(self.pods_of) - 1)
