"""What every fault is: a step of a schedule that injects, proves itself, heals and proves that."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from faults.targets import Resolver, TargetError
from topologies.cluster import Cluster, ClusterError
from topologies.fittings import Fittings
from topologies.observer import Observer
from topologies.spec import Link, Topology
from topologies.waiting import WaitTimeout, wait_until
from workloads.run import RunningWorkload
from workloads.spec import Workload


@dataclass(frozen=True)
class Effect:
    """What a fault does to the cluster while it lasts; checkers reason on this alone."""

    nodes_down: tuple[str, ...] = ()
    links_cut: frozenset[Link] = frozenset()
    links_slow: frozenset[Link] = frozenset()
    #: Connections over the cut links die at once, rather than being silent.
    sudden: bool = False
    #: The links are cut and whole in turns.
    intermittent: bool = False
    #: Nodes that have an alarm of a resource ("memory" or "disk"): publishers are blocked on every node.
    nodes_alarmed: tuple[str, ...] = ()
    alarm: str = ""

    def as_event(self) -> dict[str, Any]:
        return {
            "nodes_down": list(self.nodes_down),
            "links_cut": sorted(map(list, self.links_cut)),
            "links_slow": sorted(map(list, self.links_slow)),
            "sudden": self.sudden,
            "intermittent": self.intermittent,
            "nodes_alarmed": list(self.nodes_alarmed),
            "alarm": self.alarm,
        }


@dataclass(frozen=True)
class Proof:
    """Whether an injection or a healing was seen to have happened, and by what."""

    proven: bool
    detail: str

    @classmethod
    def of_all(cls, *proofs: Proof) -> Proof:
        """Proven if each is; the details of those that decide it."""
        proven = all(proof.proven for proof in proofs)
        return cls(proven, "; ".join(proof.detail for proof in proofs if proof.proven == proven))


#: A proof that only what comes after healing can complete: to be called then.
LateProof = Callable[[], Proof]


def left_over(look: Callable[[], list[str]], *, timeout_s: float, what: str) -> list[str]:
    """What ``look`` still finds missing after ``timeout_s``; empty as soon as it finds nothing."""
    found: list[str] = []

    def nothing_left() -> bool:
        found[:] = look()
        return not found

    with suppress(WaitTimeout):
        wait_until(nothing_left, timeout_s=timeout_s, what=what)
    return found


def on_each(nodes: Iterable[str], act: Callable[[str], None]) -> None:
    """Act on every node, also where it fails on others. Raises ClusterError with all that failed."""
    failed = []
    for node in nodes:
        try:
            act(node)
        except ClusterError as error:
            failed.append(str(error))
    if failed:
        raise ClusterError("; ".join(failed))


@dataclass
class CutCount:
    """Counts how many faults cut each link, so that overlapping cuts heal only with the last of them."""

    _counts: Counter[Link] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, links: Collection[Link], act: Callable[[Collection[Link]], None]) -> None:
        with self._lock:
            whole = [link for link in links if not self._counts[link]]
            self._counts.update(links)  # also where acting fails half way: removing will follow
            act(whole)

    def is_cut(self, link: Link) -> bool:
        return self._counts[link] > 0

    def remove(self, links: Collection[Link], act: Callable[[Collection[Link]], None]) -> None:
        with self._lock:
            self._counts.subtract(links)
            self._counts = +self._counts  # removed, though never added: its injection failed before
            act([link for link in links if not self._counts[link]])


@dataclass(frozen=True)
class Arena:
    """What a fault may act on and look at."""

    cluster: Cluster
    observer: Observer
    load: RunningWorkload
    cuts: CutCount = field(default_factory=CutCount)
    refusals: CutCount = field(default_factory=CutCount)
    #: The limits, in bytes, of each node and resource before any fault changed them.
    limits: dict[tuple[str, str], int] = field(default_factory=dict)

    def is_silent(self, link: Link) -> bool:
        """Whether some fault lets nothing pass over the link now."""
        return self.cuts.is_cut(link) or self.refusals.is_cut(link)

    def is_answered(self, link: Link) -> bool:
        """Whether a probe over the link would be answered now: no fault silences it, and its broker runs (serves
        AMQP, if a client is at the other end)."""
        node = link.nodes[-1]
        there = self.cluster.process(node) == "running" if link.client is None else self.cluster.state(node) == "up"
        return there and not self.is_silent(link)


def serving_node(arena: Arena) -> str:
    """A node that can be asked for something. Raises TargetError if there is none."""
    up = [node for node in arena.cluster.topology.node_names if arena.cluster.state(node) == "up"]
    if not up:
        raise TargetError("no node is up to be asked")
    return up[0]


class Injection(Protocol):
    """A fault with its targets chosen. Each method is called at most once, in this order; ``heal`` is
    called whatever the ones before it did, also if ``inject`` raised half way."""

    @property
    def effect(self) -> Effect: ...

    def inject(self) -> None: ...

    def prove(self, *, timeout_s: float) -> Proof | LateProof:
        """Waits at most ``timeout_s`` for the fault to be seen. Where that is too short to tell, the proof is called
        for once ``heal`` has returned."""
        ...

    def heal(self) -> None: ...

    def prove_healed(self) -> Proof: ...


class Fault(Protocol):
    """The fields of one fault in a schedule."""

    #: What a driver must offer for it.
    acts_on: ClassVar[str]

    @property
    def needs(self) -> frozenset[str]:
        """What must be there for it beside the cluster: "pumba", "netem" in the kernel, the image of
        "stress-ng", "libfaketime", the images of ``topologies.upgrades``. Looked for before the start."""
        ...

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        """What is wrong with the targets: {field: text}. Empty if nothing is."""
        ...

    def touches_links(self, topology: Topology) -> frozenset[Link]:
        """Every link that it may touch, known before the cluster starts."""
        ...

    def fittings(self, topology: Topology) -> Fittings:
        """What nodes must be given before the cluster starts so that it can act on it."""
        ...

    def touches_packets(self, topology: Topology) -> frozenset[Link]:
        """Every link whose packets it may act on, which must carry no proxy."""
        ...

    def touches_processes(self, topology: Topology) -> frozenset[str]:
        """The nodes and clients whose process it acts on, as far as no moment and no chance decides them."""
        ...

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> Injection:
        """Choose the targets now. Raises TargetError if there is none at this moment."""
        ...
