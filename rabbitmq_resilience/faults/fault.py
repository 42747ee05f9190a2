"""What every fault is: a step of a schedule that injects, proves itself, heals and proves that."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.clusters.observer import Observer
from rabbitmq_resilience.clusters.protocol import Cluster
from rabbitmq_resilience.clusters.spec import Link, is_balancer
from rabbitmq_resilience.faults.at_work import NETWORK, AtWork
from rabbitmq_resilience.faults.targets import TargetError
from rabbitmq_resilience.record.events import Effect
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until
from rabbitmq_resilience.workloads.run import RunningWorkload


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
        """``act`` is told of all of them: what is cut already may have to last longer now."""
        with self._lock:
            self._counts.update(links)  # also where acting fails half way: removing will follow
            act(links)

    def is_cut(self, link: Link) -> bool:
        return self._counts[link] > 0

    def remove(self, links: Collection[Link], act: Callable[[Collection[Link]], None]) -> None:
        with self._lock:
            self._counts.subtract(links)
            self._counts = +self._counts  # removed, though never added: its injection failed before
            act([link for link in links if not self._counts[link]])


@dataclass(frozen=True)
class FaultContext:
    """What a fault may act on and look at."""

    cluster: Cluster
    observer: Observer
    load: RunningWorkload
    cuts: CutCount = field(default_factory=CutCount)
    refusals: CutCount = field(default_factory=CutCount)
    #: The limits, in bytes, of each node and resource before any fault changed them.
    limits: dict[tuple[str, str], int] = field(default_factory=dict)
    #: What all steps do, for proofs to tell their own effect from those of others.
    at_work: AtWork = field(default_factory=AtWork)
    #: The number of the step that acts.
    step: int = 0
    #: What one step has opened; it is closed when that step is over, however it ended.
    opened: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of(cls, cluster: Cluster, observer: Observer, load: RunningWorkload) -> FaultContext:
        """Its proofs know how slow the links are all the time."""
        context = cls(cluster, observer, load)
        for link in cluster.links.proxied:
            delay = cluster.topology.delay_of(link)
            if delay is not None:
                context.at_work.slow(NETWORK, [link], at_most_ms=delay.latency_ms + delay.jitter_ms)
        return context

    @contextmanager
    def of_one_step(self, step: int, *, for_s: float) -> Iterator[FaultContext]:
        """The same for one step alone, which lasts so long, with what that step opens."""
        with ExitStack() as opened:
            yield replace(self, step=step, opened=opened, cluster=self.cluster.lasting(for_s))

    def silencing(self, link: Link, *, since_s: float) -> list[int]:
        """The other steps for which a probe over the link may have been unanswered at any time since then."""
        return self.at_work.silencing(link, beside=self.step, since_s=since_s)

    def is_there(self, link: Link) -> bool:
        """Whether somebody could answer a probe over the link now: its broker's process runs, and serves AMQP if a
        client is at the other end; or its balancer's process runs, and some broker is there behind it."""
        end = link.answering
        if is_balancer(end):
            behind = (self.cluster.state(node) == "up" for node in self.cluster.topology.client_nodes)
            return self.cluster.balancers.process(end) == "running" and any(behind)
        return self.cluster.process(end) == "running" if link.client is None else self.cluster.state(end) == "up"

    def refuse_if_taken(self, nodes: Iterable[str]) -> None:
        """Raises ClusterError where another step has its hands on one of the nodes: what becomes of its process would
        be that step's doing."""
        for node in nodes:
            if others := self.at_work.taking(node, before=self.step):
                raise ClusterError(f"{node} is in the hands of step {others[0]} at this time")


def serving_node(context: FaultContext) -> str:
    """A node that can be asked for something. Raises TargetError if there is none."""
    up = [node for node in context.cluster.topology.node_names if context.cluster.state(node) == "up"]
    if not up:
        raise TargetError("no node is up to be asked")
    return up[0]


class Injection(Protocol):
    """A fault with its targets chosen. Each method is called at most once, in this order; ``heal`` is
    called whatever the ones before it did, also if ``inject`` raised half way. The proofs are not, so what must be
    closed is entered in ``FaultContext.opened``."""

    @property
    def effect(self) -> Effect: ...

    def inject(self) -> None: ...

    def prove(self, *, timeout_s: float) -> Proof | LateProof:
        """Waits at most ``timeout_s`` for the fault to be seen. Where that is too short to tell, the proof is called
        for once ``heal`` has returned."""
        ...

    def heal(self) -> None: ...

    def prove_healed(self) -> Proof: ...
