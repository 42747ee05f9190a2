"""The parts that every fault shares: what it may act on, and how it injects, heals and proves both."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from rabbitmq_resilience.history.events import Effect, WorkerEvent
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link, is_balancer
from rabbitmq_resilience.nemesis.at_work import NETWORK, AtWork
from rabbitmq_resilience.nemesis.targets import TargetError
from rabbitmq_resilience.sut.observer import Observer
from rabbitmq_resilience.sut.protocol import Cluster
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until
from rabbitmq_resilience.workload.drain import Depths, DrainResult
from rabbitmq_resilience.workload.running_workload import Progress


@dataclass(frozen=True)
class Proof:
    """The result of looking for an injection or a healing, with what was seen of it."""

    proven: bool
    detail: str

    @classmethod
    def of_all(cls, *proofs: Proof) -> Proof:
        """Return a proof that is proven if each of ``proofs`` is, with the details that decide it."""
        proven = all(proof.proven for proof in proofs)
        return cls(proven, "; ".join(proof.detail for proof in proofs if proof.proven == proven))


#: A proof that can be completed only after healing. The nemesis calls it then.
LateProof = Callable[[], Proof]


def left_over(look: Callable[[], list[str]], *, timeout_s: float, what: str) -> list[str]:
    """Return what ``look`` still finds missing after ``timeout_s``; return an empty list as soon as it finds
    nothing."""
    found: list[str] = []

    def nothing_left() -> bool:
        found[:] = look()
        return not found

    with suppress(WaitTimeout):
        wait_until(nothing_left, timeout_s=timeout_s, what=what)
    return found


def on_each(nodes: Iterable[str], act: Callable[[str], None]) -> None:
    """Act on every node, even if it fails on others. Raise ClusterError with all failures."""
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
    """Count how many faults cut each link, so that a link is restored only with the last of them."""

    _counts: Counter[Link] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, links: Collection[Link], act: Callable[[Collection[Link]], None]) -> None:
        """Count the links as cut and call ``act`` with all of them, as links already cut may have to last longer."""
        with self._lock:
            self._counts.update(links)  # even if ``act`` fails half way: ``remove`` follows
            act(links)

    def is_cut(self, link: Link) -> bool:
        return self._counts[link] > 0

    def remove(self, links: Collection[Link], act: Callable[[Collection[Link]], None]) -> None:
        with self._lock:
            self._counts.subtract(links)
            self._counts = +self._counts  # a link may be removed without being added, if its injection failed before
            act([link for link in links if not self._counts[link]])


class ClientProcess(Protocol):
    """The process of a client that a fault may kill; after ``start`` the next process takes its place."""

    @property
    def name(self) -> str: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def ended(self) -> bool: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...


class ActiveLoad(Protocol):
    """What the runner and faults ask of a load, of any kind. Lists have one entry for each client, in their order."""

    #: A further check for each ``check``; it raises an error that must end the run.
    also_check: Callable[[], None]

    @property
    def vhost(self) -> str: ...

    @property
    def early_consumers(self) -> Collection[int]:
        """Return the indexes of the consumers that connect before the drain."""
        ...

    @property
    def idle_connections(self) -> int: ...

    def idle_missing(self) -> int: ...

    def worker(self, name: str) -> ClientProcess: ...

    def client_events(self, name: str) -> list[WorkerEvent]:
        """Return what happened to the connections of a client so far: connected, connection_lost, stopped, killed."""
        ...

    def progress(self) -> Progress: ...

    def confirmed_by_publisher(self) -> list[int]: ...

    def received_by_consumer(self) -> list[int]: ...

    def queues_of_consumer(self, index: int) -> list[str]: ...

    def check(self) -> None: ...

    def begin_variation(self) -> int: ...

    def stop_publishers(self, *, timeout_s: float) -> bool: ...

    def drain(self, depths: Depths, *, idle_s: float, timeout_s: float) -> DrainResult: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class FaultContext:
    """The cluster, the observer and the workload that a fault may act on and look at."""

    cluster: Cluster
    observer: Observer
    load: ActiveLoad
    cuts: CutCount = field(default_factory=CutCount)
    refusals: CutCount = field(default_factory=CutCount)
    #: The limits in bytes of each node and resource, from before any fault changed them.
    limits: dict[tuple[str, str], int] = field(default_factory=dict)
    #: What all steps do, so that a proof distinguishes its own step's effect from the effects of others.
    at_work: AtWork = field(default_factory=AtWork)
    #: The number of the step that acts.
    step: int = 0
    #: What one step has opened. It is closed when that step is over, however the step ended.
    opened: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of(cls, cluster: Cluster, observer: Observer, load: ActiveLoad) -> FaultContext:
        """Return a context whose proofs know how slow the topology's network makes each link."""
        context = cls(cluster, observer, load)
        for link in cluster.links.proxied:
            delay = cluster.topology.delay_of(link)
            if delay is not None:
                context.at_work.slow(NETWORK, [link], at_most_ms=delay.latency_ms + delay.jitter_ms)
        return context

    @contextmanager
    def of_one_step(self, step: int, *, for_s: float) -> Iterator[FaultContext]:
        """Yield the context of one step that lasts ``for_s``, and close in the end what that step opened."""
        with ExitStack() as opened:
            yield replace(self, step=step, opened=opened, cluster=self.cluster.lasting(for_s))

    def silencing(self, link: Link, *, since_s: float) -> list[int]:
        """Return the other steps that may have kept a probe over the link unanswered at any time since ``since_s``."""
        return self.at_work.silencing(link, other_than=self.step, since_s=since_s)

    def is_there(self, link: Link) -> bool:
        """Return whether a probe over the link could be answered now.

        A link to a broker needs its process, and a client's link needs its AMQP listener too. A link to a load balancer
        needs the balancer's process and one broker that serves behind it."""
        end = link.answering
        if is_balancer(end):
            behind = (self.cluster.state(node) == "up" for node in self.cluster.topology.client_nodes)
            return self.cluster.balancers.process(end) == "running" and any(behind)
        return self.cluster.process(end) == "running" if link.client is None else self.cluster.state(end) == "up"

    def refuse_if_taken(self, nodes: Iterable[str]) -> None:
        """Raise ClusterError if another step has taken one of the nodes. What happens to its process would then be the
        effect of that step."""
        for node in nodes:
            if others := self.at_work.taking(node, before=self.step):
                raise ClusterError(f"{node} is in the hands of step {others[0]} at this time")


def serving_node(context: FaultContext) -> str:
    """Return a node that can answer requests. Raise TargetError if there is none."""
    up = [node for node in context.cluster.topology.node_names if context.cluster.state(node) == "up"]
    if not up:
        raise TargetError("no node is up to be asked")
    return up[0]


class Injection(Protocol):
    """A fault with its targets chosen.

    Each method is called at most once, in this order. ``heal`` is called even if the methods before it failed, or if
    ``inject`` raised half way. The proofs are not called then, so enter what must be closed in
    ``FaultContext.opened``."""

    @property
    def effect(self) -> Effect: ...

    def inject(self) -> None: ...

    def prove(self, *, timeout_s: float) -> Proof | LateProof:
        """Wait at most ``timeout_s`` until the fault is seen. If that time is too short, return a late proof, which is
        called once ``heal`` has returned."""
        ...

    def heal(self) -> None: ...

    def prove_healed(self) -> Proof: ...
