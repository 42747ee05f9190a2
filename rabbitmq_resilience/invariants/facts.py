"""What the events say, in the form that checkers ask for: cluster, queues, phases, faults and what was observed."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, TypeVarTuple, Unpack

from rabbitmq_resilience.invariants.steps import NEVER_US, Step, step_of
from rabbitmq_resilience.invariants.units import seconds
from rabbitmq_resilience.record.events import (
    ClusterEvent,
    Event,
    FaultEvent,
    LoadEvent,
    NodesEvent,
    PhaseEvent,
    QueuesEvent,
    WorkerEvent,
)
from rabbitmq_resilience.record.letters import Letters
from rabbitmq_resilience.record.variation import Variation

#: RabbitMQ's default of ``raft.adaptive_failure_detector.poll_interval`` (RabbitMQ, "Clustering", wide area networks).
DETECTOR_POLL_S = 5.0

_CLIENT = re.compile(r"(?P<role>[a-z]+)-(?P<number>[0-9]{1,9})")


@dataclass(frozen=True)
class ClusterFacts:
    nodes: tuple[str, ...]
    partition_handling: str
    net_ticktime_s: float
    broker_version: tuple[int, ...]
    preferred: frozenset[str] = frozenset()
    recover: str = ""
    khepri: bool = False
    #: How often Raft's failure detector is read.
    detector_poll_s: float = DETECTOR_POLL_S

    @property
    def handles_partitions(self) -> bool:
        """Where the metadata store is Raft (Khepri: always from 4.3 on) the strategies have no effect."""
        return not self.khepri and self.broker_version < (4, 3)

    @property
    def pauses_minorities(self) -> bool:
        return self.handles_partitions and self.partition_handling == "pause_minority"

    @property
    def pauses_without_preferred(self) -> bool:
        """A node pauses while it reaches none of the ``preferred`` ones."""
        return self.handles_partitions and self.partition_handling == "pause_if_all_down"

    @property
    def pauses(self) -> bool:
        return self.pauses_minorities or self.pauses_without_preferred

    @property
    def heals_splits(self) -> bool:
        """Nodes restart by themselves after a split that they let happen."""
        return self.handles_partitions and "autoheal" in (self.partition_handling, self.recover)

    @property
    def splits(self) -> bool:
        """Sides may go on apart from each other. Those of ``pause_if_all_down`` each have a preferred node."""
        return self.handles_partitions and self.partition_handling != "pause_minority"


#: What begins so soon after a fault was healed may come of it.
SOON_AFTER_S = 15.0
#: An only copy is where it is.
COPIES_THAT_MOVE_MIN = 2


@dataclass(frozen=True)
class QueueFacts:
    """``members`` had a copy of it when it was declared, ``elsewhere`` are the nodes to which a copy may move: where
    one of several mirrors goes away, and there are other nodes, brokers add another one ("Classic Queue Mirroring",
    ``ha-mode: exactly``)."""

    name: str
    kind: str
    members: frozenset[str]
    elsewhere: frozenset[str] = frozenset()
    #: The consumer that declares the queue: with it an exclusive one moves, and an expiring one may.
    consumer: int | None = None
    expires_s: float | None = None  # without a consumer for so long it is gone
    bound: bool = False  # that consumer also binds it to exchanges

    @property
    def holders(self) -> frozenset[str]:
        """All that may come to have a copy."""
        return self.members | self.elsewhere

    @property
    def placed(self) -> QueueFacts:
        """The same for all queues that lie alike."""
        return replace(self, name="")

    @property
    def placements(self) -> Iterator[frozenset[str]]:
        """Who may have a copy at a time. Each side of a split adds those that it lacks, so there may be more than were
        declared; and fewer, until another one is added."""
        if not self.elsewhere:
            yield self.members
            return
        for copies in range(COPIES_THAT_MOVE_MIN, len(self.holders) + 1):
            yield from map(frozenset, itertools.combinations(sorted(self.holders), copies))


@dataclass(frozen=True)
class DeadLetterFacts:
    """``limited``: queues drop messages by their limits. ``held_s``: how long consumers hold a message at most.
    ``acks``: how they acknowledge, as in the workload. ``delivery_limit``: what queues were declared with, if anything;
    negative for none."""

    letters: Letters
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
    """``events`` in the order of time; everything else is read from them when first asked for."""

    events: Sequence[Event]
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, make: Callable[[Facts, Unpack[Of]], Made], *of: *Of) -> Made:
        """What ``make`` makes of these facts and of what else is given, which can be hashed: made once for all."""
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
        """As last declared, in index order."""
        declared = {name: queue for event in self.of_kind(QueuesEvent) for name, queue in event.queues.items()}
        nodes = frozenset(self.cluster.nodes) if self.cluster else frozenset()
        return tuple(_queue(name, q, nodes) for name, q in declared.items())

    @cached_property
    def dead_letters(self) -> DeadLetterFacts | None:
        """None where none go on to another queue."""
        index = {queue.name: number for number, queue in enumerate(self.queues)}
        for event in self.of_kind(QueuesEvent):
            if told := event.dead_letters:
                queues_of = {  # in early records each has one
                    index[queue]: tuple(index[to] for to in ([taking] if isinstance(taking, str) else taking))
                    for queue, taking in told["queues"].items()
                }
                letters, sure = Letters(queues_of, told["reject_one_in"]), told["strategy"] == "at_least_once"
                acks, limit = told.get("acks", "manual"), told.get("delivery_limit")
                return DeadLetterFacts(letters, sure, told["limited"], told["held_s"], acks, limit)
        return None

    @property
    def letters(self) -> Letters:
        return self.dead_letters.letters if self.dead_letters is not None else Letters()

    @cached_property
    def published_queues(self) -> Mapping[int, QueueFacts]:
        """By index, those that publishers publish to: all but those of dead letters."""
        taking = self.letters.queues
        return {index: queue for index, queue in enumerate(self.queues) if index not in taking}

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
        """From the start of the steady phase to the end of publishing, if both were recorded."""
        if "steady" in self.phases and "drain" in self.phases:
            return self.phases["steady"], self.phases["drain"]
        return None

    @cached_property
    def consumers_gone_us(self) -> float:
        """When the first consumer ended after the drain, where the broker takes back what it had; else the end."""
        stopped = (
            e.t_us for e in self.of_kind(WorkerEvent) if e.event == "stopped" and e.worker.startswith("consumer")
        )
        drain_us = self.phases.get("drain", NEVER_US)
        return min((t_us for t_us in stopped if t_us > drain_us), default=self.phases.get("end", NEVER_US))

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        steps: dict[int, list[FaultEvent]] = {}
        for event in self.of_kind(FaultEvent):
            steps.setdefault(event.step, []).append(event)
        return tuple(step_of(number, changes) for number, changes in sorted(steps.items()))

    @cached_property
    def last_healed_us(self) -> int | None:
        """When the last fault was healed; None without any."""
        return max((s.states["healed"] for s in self.steps if s.is_fault and "healed" in s.states), default=None)

    @cached_property
    def node_states(self) -> tuple[tuple[int, Mapping[str, str]], ...]:
        return tuple((event.t_us, event.states) for event in self.of_kind(NodesEvent))

    @cached_property
    def rate(self) -> Variation:
        """The target of all publishers together, messages/s; no limit where a record does not tell it."""
        for event in self.of_kind(LoadEvent):
            return event.rate
        return Variation(None)

    @cached_property
    def heeds_confirms(self) -> bool:
        """Whether publishers wait for confirms. Where they do not, a message counts as confirmed once it is written."""
        load = next(self.of_kind(LoadEvent), None)
        return load is None or load.publishers is None or load.in_flight is not None

    @cached_property
    def blocked_us(self) -> tuple[tuple[float, float], ...]:
        """When each publisher was blocked by an alarm, one period for each time; NEVER_US ends one that did not end."""
        begun: dict[str, float] = {}
        periods: list[tuple[float, float]] = []
        for event in self.of_kind(WorkerEvent):
            if event.event == "blocked":
                begun.setdefault(event.worker, event.t_us)
            elif event.worker in begun:  # let go, or without this connection or process
                periods.append((begun.pop(event.worker), event.t_us))
        return tuple(sorted([*periods, *((start, NEVER_US) for start in begun.values())]))

    @cached_property
    def all_looked_at_us(self) -> Sequence[int]:
        """When all nodes were looked at together."""
        nodes = set(self.cluster.nodes if self.cluster else ())
        return [t_us for t_us, states in self.node_states if nodes <= states.keys()]

    @cached_property
    def _looked_us(self) -> list[int]:
        return [t_us for t_us, _ in self.node_states]

    @cached_property
    def _up_us(self) -> Mapping[str, list[int]]:
        """When each node was seen up."""
        moments: dict[str, list[int]] = {}
        for t_us, states in self.node_states:
            for node in (node for node, state in states.items() if state == "up"):
                moments.setdefault(node, []).append(t_us)
        return moments

    def sightings(self, start_us: float, end_us: float) -> Sequence[tuple[int, Mapping[str, str]]]:
        """The ``node_states`` of that time, both ends included."""
        return self.node_states[bisect_left(self._looked_us, start_us) : bisect_right(self._looked_us, end_us)]

    def states_at(self, t_us: float) -> Mapping[str, str] | None:
        """The latest sighting of the nodes at that moment; None before the first."""
        seen = bisect_right(self._looked_us, t_us)
        return self.node_states[seen - 1][1] if seen else None

    def first_up_us(self, node: str, *, after_us: float) -> float:
        """When ``node`` was first seen up at or after that moment; NEVER_US if it was not."""
        moments = self._up_us.get(node, [])
        first = bisect_left(moments, after_us)
        return moments[first] if first < len(moments) else NEVER_US

    def at(self, t_us: float) -> str:
        """The moment as people read it: seconds since the run's first event."""
        return f"+{self.since_start_s(t_us):.3f} s"

    def since_start_s(self, t_us: float) -> float:
        """Return the moment in seconds since the run's first event."""
        return seconds(t_us - self.origin_us)

    def beside(self, start_us: float, end_us: float) -> str:
        """Say which faults were on in that time, or which one had been healed shortly before it."""
        begun = [step for step in self.steps if step.injected and step.possible_us[0] <= end_us]
        if on := [str(step) for step in begun if start_us <= step.possible_us[1]]:
            return f"during {', '.join(on)}"
        last = max(begun, key=lambda step: step.possible_us[1], default=None)
        if last is None or start_us - last.possible_us[1] > SOON_AFTER_S * 1e6:
            return "with no fault active"
        return f"{seconds(start_us - last.possible_us[1]):.1f} s after {last} was healed"


def _queue(name: str, told: Mapping[str, Any], nodes: frozenset[str]) -> QueueFacts:
    kind, members, consumer = told["type"], frozenset(told["members"]), told.get("consumer")
    moves = consumer is not None or (kind == "mirrored" and len(members) >= COPIES_THAT_MOVE_MIN)
    elsewhere = nodes - members if moves else frozenset()
    return QueueFacts(name, kind, members, elsewhere, consumer, told.get("expires_s"), bool(told.get("bound")))
