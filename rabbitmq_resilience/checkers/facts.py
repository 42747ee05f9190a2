"""Read the events for checkers: cluster, queues, phases, faults and observations."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, TypeVarTuple, Unpack

from rabbitmq_resilience.checkers.cluster_facts import DETECTOR_POLL_S, ClusterFacts
from rabbitmq_resilience.checkers.observed_faults import NEVER_US, ObservedFault, step_of
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.history.dead_letter_routes import DeadLetterRoutes
from rabbitmq_resilience.history.events import (
    ClusterEvent,
    Event,
    FaultEvent,
    LoadEvent,
    NodesEvent,
    PhaseEvent,
    QueuesEvent,
    WorkerEvent,
)
from rabbitmq_resilience.history.variation import Variation

_CLIENT = re.compile(r"(?P<role>[a-z]+)-(?P<number>[0-9]{1,9})")


#: A problem that begins this soon after a fault was healed may come from that fault.
SOON_AFTER_S = 15.0
#: With fewer copies than this, copies do not move.
COPIES_THAT_MOVE_MIN = 2


@dataclass(frozen=True)
class QueueFacts:
    """A declared queue. ``members`` are the nodes that had a copy when it was declared. ``elsewhere`` are the nodes to
    which a copy may move: if one of several mirrors goes away and there are other nodes, brokers add another mirror
    ("Classic Queue Mirroring", ``ha-mode: exactly``)."""

    name: str
    kind: str
    members: frozenset[str]
    elsewhere: frozenset[str] = frozenset()
    #: The consumer that declares the queue. An exclusive queue moves with it, and an expiring queue may.
    consumer: int | None = None
    expires_s: float | None = None  # the queue is gone after this time without a consumer
    bound: bool = False  # that consumer also binds the queue to exchanges

    @property
    def holders(self) -> frozenset[str]:
        """Return all nodes that may come to have a copy."""
        return self.members | self.elsewhere

    @property
    def placed(self) -> QueueFacts:
        """Return the queue without its name: equal for all queues with the same placement."""
        return replace(self, name="")

    @property
    def placements(self) -> Iterator[frozenset[str]]:
        """Yield each set of nodes that may have a copy at a time. There may be more than declared, as each side of a
        split adds the copies that it lacks; and fewer, until another copy is added."""
        if not self.elsewhere:
            yield self.members
            return
        for copies in range(COPIES_THAT_MOVE_MIN, len(self.holders) + 1):
            yield from map(frozenset, itertools.combinations(sorted(self.holders), copies))


@dataclass(frozen=True)
class DeadLetterFacts:
    """The dead letters of a load. ``limited``: queues drop messages by their limits. ``held_s``: how long consumers
    hold a message at most. ``acks``: how they acknowledge, as in the workload. ``delivery_limit``: the limit with which
    queues were declared; negative for no limit, None if not stated."""

    letters: DeadLetterRoutes
    at_least_once: bool
    limited: bool
    held_s: float
    acks: str = "manual"
    delivery_limit: int | None = None


Kind = TypeVar("Kind", bound=Event)
Made = TypeVar("Made")
Of = TypeVarTuple("Of")


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts of a run. ``events`` are in the order of time; all else is read from them when first asked for."""

    events: Sequence[Event]
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, make: Callable[[Facts, Unpack[Of]], Made], *of: *Of) -> Made:
        """Return ``make(self, *of)``, computed once for these arguments, which must be hashable."""
        key = (make, *of)
        if key not in self._made:
            self._made[key] = make(self, *of)
        made: Made = self._made[key]
        return made

    def of_kind(self, kind: type[Kind]) -> Iterator[Kind]:
        return iter(self._of_kinds.get(kind, []))

    def of_clients(self, role: str) -> Iterator[tuple[int, WorkerEvent]]:
        """Yield (number, event) for each client of ``role``. ``wholeness`` reports other names, which are skipped."""
        for event in self.of_kind(WorkerEvent):
            if (named := _CLIENT.fullmatch(str(event.worker))) and named["role"] == role:
                yield int(named["number"]), event

    @cached_property
    def _of_kinds(self) -> Mapping[type[Event], list[Any]]:
        found: dict[type[Event], list[Any]] = {}
        for event in self.events:
            found.setdefault(type(event), []).append(event)
        return found

    @cached_property
    def origin_us(self) -> int:
        return self.events[0].t_us if self.events else 0

    @cached_property
    def cluster(self) -> ClusterFacts | None:
        for event in self.of_kind(ClusterEvent):
            version = re.match(r"[\d.]+", str(event.broker_version))
            choice = event.pause_if_all_down or {}
            return ClusterFacts(
                nodes=tuple(event.nodes),
                partition_handling=event.partition_handling,
                net_ticktime_s=event.net_ticktime_s,
                broker_version=tuple(int(n) for n in version[0].split(".") if n) if version else (),
                preferred=frozenset(choice.get("nodes", ())),
                recover=choice.get("recover", ""),
                khepri=event.khepri,
                detector_poll_s=event.detector_poll_s or DETECTOR_POLL_S,
            )
        return None

    @cached_property
    def queues(self) -> tuple[QueueFacts, ...]:
        """Return the queues as last declared, in index order."""
        declared = {name: queue for event in self.of_kind(QueuesEvent) for name, queue in event.queues.items()}
        nodes = frozenset(self.cluster.nodes) if self.cluster else frozenset()
        return tuple(_queue(name, q, nodes) for name, q in declared.items())

    @cached_property
    def dead_letters(self) -> DeadLetterFacts | None:
        """Return the facts of dead letters; None if no dead letters go on to another queue."""
        index = {queue.name: number for number, queue in enumerate(self.queues)}
        for event in self.of_kind(QueuesEvent):
            if stated := event.dead_letters:
                queues_of = {  # in early records each has one
                    index[queue]: tuple(index[to] for to in ([taking] if isinstance(taking, str) else taking))
                    for queue, taking in stated["queues"].items()
                }
                letters, sure = (
                    DeadLetterRoutes(queues_of, stated["reject_one_in"]),
                    stated["strategy"] == "at_least_once",
                )
                acks, limit = stated.get("acks", "manual"), stated.get("delivery_limit")
                return DeadLetterFacts(letters, sure, stated["limited"], stated["held_s"], acks, limit)
        return None

    @property
    def letters(self) -> DeadLetterRoutes:
        return self.dead_letters.letters if self.dead_letters is not None else DeadLetterRoutes()

    @cached_property
    def published_queues(self) -> Mapping[int, QueueFacts]:
        """Return, by index, the queues that publishers publish to: all except those of dead letters."""
        taking = self.letters.queues
        return {index: queue for index, queue in enumerate(self.queues) if index not in taking}

    @cached_property
    def read_at_drain(self) -> frozenset[str]:
        """Return the queues that consumers read only at the drain."""
        return frozenset(name for event in self.of_kind(QueuesEvent) for name in event.read_at_drain)

    def queue_name(self, index: int) -> str:
        return self.queues[index].name if index < len(self.queues) else f"queue {index}"

    def node_name(self, index: int) -> str:
        nodes = self.cluster.nodes if self.cluster else ()
        return nodes[index] if index < len(nodes) else f"node {index}"

    @cached_property
    def phases(self) -> Mapping[str, int]:
        return {event.phase: event.t_us for event in self.of_kind(PhaseEvent)}

    def phase_at(self, t_us: float) -> str:
        begun = [phase for phase, start_us in self.phases.items() if start_us <= t_us]
        return begun[-1] if begun else "start"

    @cached_property
    def publishing_us(self) -> tuple[int, int] | None:
        """Return the start of the steady phase and the end of publishing; None if one was not recorded."""
        if "steady" in self.phases and "drain" in self.phases:
            return self.phases["steady"], self.phases["drain"]
        return None

    @cached_property
    def consumers_gone_us(self) -> float:
        """Return when the first consumer ended after the drain: the broker takes back its messages. Else the end."""
        stopped = (
            e.t_us for e in self.of_kind(WorkerEvent) if e.event == "stopped" and e.worker.startswith("consumer")
        )
        drain_us = self.phases.get("drain", NEVER_US)
        return min((t_us for t_us in stopped if t_us > drain_us), default=self.phases.get("end", NEVER_US))

    @cached_property
    def steps(self) -> tuple[ObservedFault, ...]:
        steps: dict[int, list[FaultEvent]] = {}
        for event in self.of_kind(FaultEvent):
            steps.setdefault(event.step, []).append(event)
        return tuple(step_of(number, changes) for number, changes in sorted(steps.items()))

    @cached_property
    def last_healed_us(self) -> int | None:
        """Return when the last fault was healed; None without faults."""
        return max((s.states["healed"] for s in self.steps if s.is_fault and "healed" in s.states), default=None)

    @cached_property
    def first_begun_us(self) -> float | None:
        """Return when the first fault began; None without faults."""
        return min((step.possible_us[0] for step in self.steps if step.is_fault and step.injected), default=None)

    @cached_property
    def unhealed(self) -> tuple[ObservedFault, ...]:
        """Return the faults that began and were never healed."""
        return tuple(step for step in self.steps if step.is_fault and step.injected and "healed" not in step.states)

    @cached_property
    def node_states(self) -> tuple[tuple[int, Mapping[str, str]], ...]:
        return tuple((event.t_us, event.states) for event in self.of_kind(NodesEvent))

    @cached_property
    def rate(self) -> Variation:
        """Return the target of all publishers together, in messages/s; no limit if it was not recorded."""
        for event in self.of_kind(LoadEvent):
            return event.rate
        return Variation(None)

    @cached_property
    def heeds_confirms(self) -> bool:
        """Return whether publishers wait for confirms. If not, a message counts as confirmed when it is written."""
        load = next(self.of_kind(LoadEvent), None)
        return load is None or load.publishers is None or load.in_flight is not None

    @cached_property
    def blocked_us(self) -> tuple[tuple[float, float], ...]:
        """Return the periods in which an alarm blocked a publisher; one that did not end ends at NEVER_US."""
        begun: dict[str, float] = {}
        periods: list[tuple[float, float]] = []
        for event in self.of_kind(WorkerEvent):
            if event.event == "blocked":
                begun.setdefault(event.worker, event.t_us)
            elif event.worker in begun:  # unblocked, or its connection or process is gone
                periods.append((begun.pop(event.worker), event.t_us))
        return tuple(sorted([*periods, *((start, NEVER_US) for start in begun.values())]))

    @cached_property
    def all_looked_at_us(self) -> Sequence[int]:
        """Return the moments of looks that covered all nodes."""
        nodes = set(self.cluster.nodes if self.cluster else ())
        return [t_us for t_us, states in self.node_states if nodes <= states.keys()]

    @cached_property
    def _looked_us(self) -> list[int]:
        return [t_us for t_us, _ in self.node_states]

    @cached_property
    def _up_us(self) -> Mapping[str, list[int]]:
        """Return the moments at which each node was seen up."""
        moments: dict[str, list[int]] = {}
        for t_us, states in self.node_states:
            for node in (node for node, state in states.items() if state == "up"):
                moments.setdefault(node, []).append(t_us)
        return moments

    def sightings(self, start_us: float, end_us: float) -> Sequence[tuple[int, Mapping[str, str]]]:
        """Return the ``node_states`` of that time, both ends included."""
        return self.node_states[bisect_left(self._looked_us, start_us) : bisect_right(self._looked_us, end_us)]

    def states_at(self, t_us: float) -> Mapping[str, str] | None:
        """Return the latest states of the nodes at that moment; None before the first look."""
        seen = bisect_right(self._looked_us, t_us)
        return self.node_states[seen - 1][1] if seen else None

    def first_up_us(self, node: str, *, after_us: float) -> float:
        """Return when ``node`` was first seen up at or after that moment; NEVER_US if it was not."""
        moments = self._up_us.get(node, [])
        first = bisect_left(moments, after_us)
        return moments[first] if first < len(moments) else NEVER_US

    def at(self, t_us: float) -> str:
        """Return the moment as text for people: seconds since the run's first event."""
        return f"+{self.since_start_s(t_us):.3f} s"

    def since_start_s(self, t_us: float) -> float:
        """Return the moment in seconds since the run's first event."""
        return seconds(t_us - self.origin_us)

    def faults_during(self, start_us: float, end_us: float) -> str:
        """Return in words which faults were active in that time, or which one was healed shortly before."""
        begun = [step for step in self.steps if step.injected and step.possible_us[0] <= end_us]
        if on := [str(step) for step in begun if start_us <= step.possible_us[1]]:
            return f"during {', '.join(on)}"
        last = max(begun, key=lambda step: step.possible_us[1], default=None)
        if last is None or start_us - last.possible_us[1] > SOON_AFTER_S * 1e6:
            return "with no fault active"
        return f"{seconds(start_us - last.possible_us[1]):.1f} s after {last} was healed"


def _queue(name: str, stated: Mapping[str, Any], nodes: frozenset[str]) -> QueueFacts:
    kind, members, consumer = stated["type"], frozenset(stated["members"]), stated.get("consumer")
    moves = consumer is not None or (kind == "mirrored" and len(members) >= COPIES_THAT_MOVE_MIN)
    elsewhere = nodes - members if moves else frozenset()
    return QueueFacts(name, kind, members, elsewhere, consumer, stated.get("expires_s"), bool(stated.get("bound")))
