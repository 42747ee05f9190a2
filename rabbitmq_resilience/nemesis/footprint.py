"""What one step of a schedule may touch in a topology, as one value that is known before anything starts.

Collisions, majorities, proxies, blast radii and node options are computed from footprints alone (``nemesis.combining``,
``scenario.model``, and the extension for attached clusters).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.node_options import NONE, NodeOptions
from rabbitmq_resilience.model.packets import By
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.targets import REST, fixed_nodes, is_fixed, possible_nodes, size_of

#: Methods and attributes that a fault had up to version 0.1, and the field of its footprint that replaces each.
FORMER_MEMBERS: Mapping[str, str] = {
    "touches_processes": "processes",
    "may_touch_processes": "possible_processes",
    "may_act_on": "settings_of",
    "touches_links": "links",
    "touches_packets": "packets",
    "slows_links": "slow_s",
    "slows_by_s": "slow_s",
    "claims": "resources",
    "acts": "acts",
    "unsettles": "unsettles",
    "leaves_majority": "together",
    "equipment": "node_options",
    "needs": "needs",
    "becomes": "becomes",
    "targets": "targets",
}


@dataclass(frozen=True)
class Footprint:
    """The processes, links and resources that a step touches: for sure, or possibly. A step that touches nothing of
    brokers has an empty one."""

    #: The targets as the step is written with them, see ``nemesis.targets``.
    targets: tuple[str, ...] = ()
    #: The nodes and clients whose process the step surely acts on.
    processes: frozenset[str] = frozenset()
    #: These, and those whose process it may act on, depending on the moment or on chance.
    possible_processes: frozenset[str] = frozenset()
    #: Nodes that the step may act on without touching their process.
    settings_of: frozenset[str] = frozenset()
    #: The links that the step may touch. They get proxies, and so do their ways back.
    links: frozenset[Link] = frozenset()
    #: By how much at most the step makes its links slower and lets all messages pass; 0 if it keeps messages back.
    slow_s: float = 0.0
    #: The links whose packets the step may act on, which must carry no proxy; and the part of the kernel that does it.
    packets: frozenset[Link] = frozenset()
    packets_by: By | None = None
    #: The nodes whose stored files the step changes, or has a library follow, from this machine.
    files: frozenset[str] = frozenset()
    #: In words, what only one step may act on at a time, because proofs could not distinguish two steps.
    resources: frozenset[str] = frozenset()
    #: What the step does to brokers: {verb of ``model.actions``: the most nodes that it acts on}. Empty if it acts
    #: only on clients, their links and the run's queues.
    acts: Mapping[str, int] = field(default_factory=dict)
    #: Whether nodes may end, pause or start again because of the step, so that queues look for other leaders.
    unsettles: bool = False
    #: How many nodes surely serve and see each other during the step, if no other step is at work; None for all.
    together: int | None = None
    #: What nodes must be given before the cluster starts so that the step can act on them.
    node_options: NodeOptions = NONE
    #: What the step needs in addition to the cluster, or as its images: "pumba", "netem" in the kernel, the image of
    #: "stress-ng", "libfaketime", the images of ``sut.broker.versions``. It is checked before the start.
    needs: frozenset[str] = frozenset()
    #: The broker version or image that the nodes have afterwards; None if the step does not change it.
    becomes: str | None = None

    @classmethod
    def of_nodes(cls, target: str, topology: Topology, *, acts: Iterable[str] = ()) -> Footprint:
        """Return the footprint of a step that acts on the processes of the nodes that ``target`` means, by ``acts``."""
        return cls(
            targets=(target,),
            processes=surely_meant(target, topology),
            possible_processes=frozenset(possible_nodes(target, topology)),
            acts=dict.fromkeys(acts, size_of(target, topology)),
        )

    @property
    def is_fixed(self) -> bool:
        """Return whether the targets depend neither on a moment nor on chance."""
        return all(target == REST or is_fixed(target) for target in self.targets)

    @property
    def sure_links(self) -> frozenset[Link]:
        """Return the links that the step surely touches."""
        return self.links if self.is_fixed else frozenset()

    @property
    def slows_links(self) -> bool:
        """Return whether the step only makes its links slower and lets all messages pass."""
        return self.slow_s > 0

    @property
    def proxied(self) -> frozenset[Link]:
        """Return the links that need a proxy: those that the step may touch, in both directions."""
        return self.links | {link.back for link in self.links}

    @property
    def acted_on(self) -> frozenset[str]:
        """Return the nodes and clients that ``acts`` may apply to, except for acts on links."""
        return self.possible_processes | self.settings_of

    @property
    def kernels(self) -> frozenset[str]:
        """Return the nodes whose kernel acts on packets: iptables at the receiver, netem at the sender."""
        return frozenset(link.target if self.packets_by == "iptables" else link.source for link in self.packets)

    def leaves_majority(self, topology: Topology) -> bool:
        """Return whether some node still serves during the step, if no other step is at work."""
        return self.together is None or 2 * self.together > len(topology.node_names)


def surely_meant(target: str, topology: Topology) -> frozenset[str]:
    """Return the nodes or clients that the target means at any moment; none if it depends on the moment or chance."""
    return frozenset(fixed_nodes(target, topology)) if is_fixed(target) else frozenset()
