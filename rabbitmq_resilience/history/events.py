"""Define the record of everything except messages: typed events, JSON lines on the same clock as the history.

``history.event_log`` writes and reads them. A line has the fields of its class, the moment ``t_us`` and the ``kind``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from rabbitmq_resilience.history.application_events import (
    ApplicationEvent,
    ApplicationUseEvent,
    OvertakenEvent,
    UncommittedEvent,
    WireEvent,
)
from rabbitmq_resilience.history.effect import Effect as Effect  # noqa: PLC0414 - where it was before
from rabbitmq_resilience.history.event_base import Event, EventError
from rabbitmq_resilience.history.variation import Variation

#: How the note begins that a run leaves if it was broken off.
ENDED_EARLY = "the run ended early"


@dataclass(frozen=True, kw_only=True)
class ClusterEvent(Event):
    """The cluster of the run. It may have served other runs before; ``started_at`` is UTC, ISO 8601."""

    kind: ClassVar[str] = "cluster"

    topology: str = ""
    #: The zone of each node.
    nodes: Mapping[str, str]
    partition_handling: str
    #: {"nodes", "recover"} if that is the handling.
    pause_if_all_down: Mapping[str, Any] | None = None
    net_ticktime_s: float
    broker_version: str
    #: Such as 27.3.4.1; None in early records.
    erlang_version: str | None = None
    khepri: bool = False  # the metadata store is Raft (Khepri)
    #: How often Raft's failure detector is read, if the topology states it in seconds.
    detector_poll_s: float | None = None
    driver: str | None = None
    formed_in_s: float | None = None
    started_at: str | None = None
    #: By address of clients (``balancer:0``) the nodes behind it; if it is empty, clients connect to each node itself.
    addresses: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class QueuesEvent(Event):
    """The queues as declared, in the order of their indexes: {queue: {"type", "members": [node], "leader": node}}. If a
    consumer declares a queue, the queue also has the number of that "consumer", "bound" if the consumer binds it to
    exchanges, and "expires_s": after how long without a consumer it is deleted. ``read_at_drain``: queues without a
    consumer until then. ``shards``: groups of queues of which a consistent hash exchange chooses one for each message.
    ``dead_letters``, if they go on to other queues: {"queues": {queue: [each that takes them]}, "strategy",
    "reject_one_in", "limited": whether queues drop messages, "held_s": how long consumers hold one at most, "acks": how
    they acknowledge, "delivery_limit": what queues are declared with}."""

    kind: ClassVar[str] = "queues"

    queues: Mapping[str, Mapping[str, Any]]
    shards: Sequence[Sequence[str]] = ()
    read_at_drain: Sequence[str] = ()
    dead_letters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SetUpEvent(Event):
    """Brokers took ``count`` queues or bindings one by one, in ``took_s`` (without the wait for all nodes)."""

    kind: ClassVar[str] = "set_up"

    what: Literal["queues", "bindings"]
    count: int
    took_s: float


@dataclass(frozen=True, kw_only=True)
class LoadEvent(Event):
    """The load, and how it varies from ``begins_us`` on (the end of the steady phase). The plain numbers hold before
    and after. A rate of None has no limit. Variable values: [{"rate_per_s", "for_s"}], [{"processing_ms", "for_s"}]."""

    kind: ClassVar[str] = "load"

    begins_us: int
    rate_per_s: float | None
    variable_rate: Sequence[Mapping[str, Any]]
    processing_ms: float = 0
    variable_processing: Sequence[Mapping[str, Any]] = ()
    #: None in early records. ``in_flight`` is None if only the connection limits it.
    publishers: int | None = None
    in_flight: int | None = None
    #: Services, each with ``name``, ``queues``, ``consumers`` and its processing.
    services: Sequence[Mapping[str, Any]] = ()
    #: The priorities of messages, see ``history.draws``; none in early records.
    priorities: Sequence[int] = ()
    #: "anywhere", or "own_zone": client i keeps to the zone of address i modulo their number.
    reconnect: str = "anywhere"
    confirm_timeout_s: float | None = None

    @property
    def rate(self) -> Variation:
        return Variation.of(vars(self), "rate_per_s", "variable_rate", begins_us=self.begins_us)


@dataclass(frozen=True, kw_only=True)
class PhaseEvent(Event):
    """The moment at which ``phase`` begins: steady, chaos, recovery, drain or end."""

    kind: ClassVar[str] = "phase"

    phase: str


@dataclass(frozen=True, kw_only=True)
class FaultEvent(Event):
    """A step of the schedule reached a ``state``: injecting, injected, proven, unproven, healing, healed, heal_proven,
    heal_unproven, or skipped (it never began; ``detail`` says why). ``effect`` is None before it is known."""

    kind: ClassVar[str] = "fault"

    step: int
    fault: str
    state: str
    effect: Effect | None = None
    detail: str = ""

    @classmethod
    def of_fields(cls, row: Mapping[str, Any]) -> Self:
        effect = row.get("effect")
        if isinstance(effect, Mapping):
            effect = Effect.of_fields(effect) if effect else None
        return super().of_fields({**row, "effect": effect, "detail": str(row.get("detail") or "")})

    def as_fields(self) -> dict[str, Any]:
        return {**super().as_fields(), "effect": self.effect and self.effect.as_fields()}


@dataclass(frozen=True, kw_only=True)
class NodesEvent(Event):
    """The state of each node: up, paused, suspended or down; sampled every half second."""

    kind: ClassVar[str] = "nodes"

    states: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class SampleEvent(Event):
    """What a node that answered reported on queues and nodes; sampled every second.

    ``queues``: {queue: {"ready", "unacked", "leader", "members", "online", "behind"}}. "behind" counts mirrors that are
    not synchronised. "ready" and "unacked" are None if the broker gives no number. A queue that keeps dead letters
    until another queue has confirmed them also has ``dead_letters``. ``partitions``: the lost peers, by the node that
    reports it.
    """

    kind: ClassVar[str] = "sample"

    #: The node that was asked.
    node: str = ""
    queues: Mapping[str, Mapping[str, Any]]
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RecoveryEvent(Event):
    """The wait for recovery is over; ``detail`` says what was still missing."""

    kind: ClassVar[str] = "recovery"

    complete: bool
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class DrainEvent(Event):
    """The wait for the queues to be empty is over."""

    kind: ClassVar[str] = "drain"

    complete: bool
    confirmed: int = 0
    received: int = 0
    unconsumed: int = 0
    detail: str = ""


Answer = Literal["asked", "created", "refused", "unanswered"]


@dataclass(frozen=True, kw_only=True)
class DeclarationEvent(Event):
    """A ``node`` was asked to declare an ``item`` (kind and name: "queue declared-007"). ``state`` is asked, and then
    created, refused or unanswered."""

    kind: ClassVar[str] = "declaration"

    item: str
    node: str
    state: Answer
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class MetadataEvent(Event):
    """The declared items that each node reports after recovery; None for a node that did not answer."""

    kind: ClassVar[str] = "metadata"

    nodes: Mapping[str, Sequence[str] | None]


@dataclass(frozen=True, kw_only=True)
class WorkerEvent(Event):
    """An event of a publisher or a consumer: started, connected, connection_lost, blocked, unblocked, stopped, killed
    (on purpose) or hung (it was killed as it did not end by itself). From blocked until unblocked the broker takes
    nothing from it, because of an alarm of memory or disk."""

    kind: ClassVar[str] = "worker"

    worker: str
    event: str
    node: str = ""
    detail: str = ""
    #: The number of the worker's process, from 0.
    life: int = 0


@dataclass(frozen=True, kw_only=True)
class IdleEvent(Event):
    """How many idle connections of one worker process exist (``connected`` of ``wanted``), and how many were ``lost``
    since the event before. Recorded after a change, at most once a second."""

    kind: ClassVar[str] = "idle"

    worker: str
    connected: int
    wanted: int
    lost: int = 0


@dataclass(frozen=True, kw_only=True)
class ChurnEvent(Event):
    """What was opened and closed again since the event before ("connections", "channels", "queues", "bindings"), and
    what of it failed. Recorded in every second in which there was any."""

    kind: ClassVar[str] = "churn"

    worker: str
    done: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ClocksEvent(Event):
    """The moment ``t_us`` on the clock of the Prometheus server: microseconds of wall time since 1970."""

    kind: ClassVar[str] = "clocks"

    wall_us: int


@dataclass(frozen=True, kw_only=True)
class MachineEvent(Event):
    """The used part of all processors since the event before, and the part that none of our processes used (containers
    do not count as ours); sampled every 5 s. ``over_s``: how long ago the event before was. ``by``: the programs that
    used most of ``others``, with the part of each. ``waited_s``: for each broker that is our process, for how long its
    longest waiting thread was ready to run and had no processor. ``stored_bytes``: the size of the files in each
    broker's folder, if the scenario bounds it."""

    kind: ClassVar[str] = "machine"

    busy: float
    others: float
    over_s: float = 0.0
    by: Mapping[str, float] = field(default_factory=dict)
    waited_s: Mapping[str, float] = field(default_factory=dict)
    stored_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RoundTripsEvent(Event):
    """The raw round trips of 1,000 bytes over each way ("a1->b1") since the event before, in ms; None for one without
    an answer."""

    kind: ClassVar[str] = "round_trips"

    trips_ms: Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, kw_only=True)
class FlowStatesEvent(Event):
    """What brokers reported on flow control; sampled every 5 s, or less often if they take long. ``connections``: how
    many are in each state ("running", "flow": short of credit at some time in the last 5 s, "blocked": by an alarm,
    ...). ``flow_queues``: the queues that are in flow themselves; None if there are too many to ask for. The
    connections of ``silent`` nodes, which run, are not reported."""

    kind: ClassVar[str] = "flow_states"

    #: The node that was asked.
    node: str = ""
    connections: Mapping[str, int]
    flow_queues: Sequence[str] | None = None
    silent: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class NoteEvent(Event):
    """Any other remark."""

    kind: ClassVar[str] = "note"

    detail: str = ""


__all__ = [
    "ApplicationEvent",
    "ApplicationUseEvent",
    "Event",
    "EventError",
    "OvertakenEvent",
    "UncommittedEvent",
    "WireEvent",
]

KINDS: Mapping[str, type[Event]] = {kind.kind: kind for kind in Event.__subclasses__()}


def event_of(row: Mapping[str, Any]) -> Event:
    """Return the event of one line. Raise EventError if it has no valid ``t_us`` or lacks a field."""
    if not isinstance(row.get("t_us", 0), int):
        raise EventError(f"an event has no moment t_us, a number of microseconds: {row.get('t_us')!r}")
    return KINDS.get(row.get("kind", ""), Event).of_fields(row)
