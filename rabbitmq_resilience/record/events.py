"""The record of everything but messages: typed events, JSON lines on the same clock as the history.

``record.event_log`` writes and reads them; the names of the fields are those of the JSON. Beside them a line has the
moment ``t_us`` and the ``kind`` of its class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Literal, Self

from rabbitmq_resilience.record.effect import Effect as Effect  # noqa: PLC0414 - where it was before
from rabbitmq_resilience.record.variation import Variation

#: How the note begins that a run leaves which was broken off.
ENDED_EARLY = "the run ended early"


class EventError(ValueError):
    """A line is no event that can be understood; the text says what it lacks."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened at ``t_us``. An event of a kind that is not known is only this."""

    kind: ClassVar[str] = ""

    t_us: int

    @classmethod
    def of_fields(cls, told: Mapping[str, Any]) -> Self:
        """From the fields of its line. Raises EventError where one is missing that has no default."""
        mine = {f.name: f for f in fields(cls)}
        missing = [n for n, f in mine.items() if n not in told and (f.default, f.default_factory) == (MISSING, MISSING)]
        if missing:
            raise EventError(f"an event of the kind {cls.kind or told.get('kind')!r} has no {', '.join(missing)}")
        return cls(**{name: told[name] for name in mine if name in told})

    def as_fields(self) -> dict[str, Any]:
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        return {"t_us": told.pop("t_us"), "kind": self.kind, **told}


@dataclass(frozen=True, kw_only=True)
class ClusterEvent(Event):
    """The cluster that is played on. It may have served other runs before; ``started_at`` is UTC, ISO 8601."""

    kind: ClassVar[str] = "cluster"

    topology: str = ""
    #: The zone of each node.
    nodes: Mapping[str, str]
    partition_handling: str
    #: {"nodes", "recover"} where that is the handling.
    pause_if_all_down: Mapping[str, Any] | None = None
    net_ticktime_s: float
    broker_version: str
    #: Such as 27.3.4.1; None in records of before this was recorded.
    erlang_version: str | None = None
    khepri: bool = False  # metadata is in Raft
    #: How often Raft's failure detector is read, where the topology states it in seconds.
    detector_poll_s: float | None = None
    driver: str | None = None
    formed_in_s: float | None = None
    started_at: str | None = None
    #: What clients connect to (``balancer:0``), and the nodes that are behind it; where it is empty, each node itself.
    addresses: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class QueuesEvent(Event):
    """The queues as declared, in the order of their indexes: {queue: {"type", "members": [node], "leader": node}}, and
    of those that consumers declare the number of that "consumer", "bound" if it binds them to exchanges too, and
    "expires_s": for how long one must have had none to be gone. ``read_at_drain``: those without a consumer until then.
    ``shards``: groups of them of which just one takes a message, as a consistent hash exchange chooses.
    ``dead_letters``, where they go on to other queues: {"queues": {queue: [each that takes them]}, "strategy",
    "reject_one_in", "limited": whether queues drop messages, "held_s": how long consumers hold one at most, "acks": how
    they acknowledge, "delivery_limit": what queues are declared with}."""

    kind: ClassVar[str] = "queues"

    queues: Mapping[str, Mapping[str, Any]]
    shards: Sequence[Sequence[str]] = ()
    read_at_drain: Sequence[str] = ()
    dead_letters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SetUpEvent(Event):
    """Brokers took ``count`` queues or bindings of the load, one by one, in ``took_s`` (not the wait for all nodes)."""

    kind: ClassVar[str] = "set_up"

    what: Literal["queues", "bindings"]
    count: int
    took_s: float


@dataclass(frozen=True, kw_only=True)
class LoadEvent(Event):
    """The load, and how it varies from ``begins_us`` on (the end of the steady phase). The plain numbers hold before
    and after; a rate of None has no limit. The variable ones are [{"rate_per_s", "for_s"}] and
    [{"processing_ms", "for_s"}]."""

    kind: ClassVar[str] = "load"

    begins_us: int
    rate_per_s: float | None
    variable_rate: Sequence[Mapping[str, Any]]
    processing_ms: float = 0
    variable_processing: Sequence[Mapping[str, Any]] = ()
    #: None in early records. ``in_flight`` is None where nothing limits it but the connection.
    publishers: int | None = None
    in_flight: int | None = None
    #: Each with ``name``, ``queues``, ``consumers`` and its processing.
    services: Sequence[Mapping[str, Any]] = ()
    #: Those that messages have, see ``record.draws``; none in early records.
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
    def of_fields(cls, told: Mapping[str, Any]) -> Self:
        effect = told.get("effect")
        if isinstance(effect, Mapping):
            effect = Effect.of_fields(effect, fault=str(told.get("fault"))) if effect else None
        return super().of_fields({**told, "effect": effect, "detail": str(told.get("detail") or "")})

    def as_fields(self) -> dict[str, Any]:
        return {**super().as_fields(), "effect": self.effect and self.effect.as_fields()}


@dataclass(frozen=True, kw_only=True)
class NodesEvent(Event):
    """What each node did: up, paused, suspended or down; looked at every half second."""

    kind: ClassVar[str] = "nodes"

    states: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class SampleEvent(Event):
    """What a node that answered told of queues and nodes; asked every second.

    ``queues``: {queue: {"ready", "unacked", "leader", "members", "online", "behind"}}; behind are the mirrors that are
    there and not synchronised; ready and unacked are None where the broker gives no number. A queue that keeps dead
    letters until another one has confirmed them has ``dead_letters`` besides. ``partitions``: from whom a node says
    that it was partitioned.
    """

    kind: ClassVar[str] = "sample"

    #: The node that was asked.
    node: str = ""
    queues: Mapping[str, Mapping[str, Any]]
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RecoveryEvent(Event):
    """The wait for recovery is over; ``detail`` is what it still lacked."""

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
    """A ``node`` was asked to declare an ``item`` (kind and name: "queue declared-007"): ``state`` is asked, and then
    created, refused or unanswered."""

    kind: ClassVar[str] = "declaration"

    item: str
    node: str
    state: Answer
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class MetadataEvent(Event):
    """Which of the declared items each node has by its own account after recovery; None of one that gave no answer."""

    kind: ClassVar[str] = "metadata"

    nodes: Mapping[str, Sequence[str] | None]


@dataclass(frozen=True, kw_only=True)
class WorkerEvent(Event):
    """What happened to a publisher or a consumer: started, connected, connection_lost, blocked, unblocked, stopped,
    killed (on purpose) or hung (it was killed because it did not end by itself). Blocked: the broker takes nothing from
    it, for an alarm of memory or disk, until unblocked."""

    kind: ClassVar[str] = "worker"

    worker: str
    event: str
    node: str = ""
    detail: str = ""
    #: Which of the worker's processes, counted from 0; None in early records.
    life: int | None = None


@dataclass(frozen=True, kw_only=True)
class IdleEvent(Event):
    """How many idle connections of one worker process are there (``connected`` of ``wanted``), and how many were
    ``lost`` since the one before; told when it changed, once a second at most."""

    kind: ClassVar[str] = "idle"

    worker: str
    connected: int
    wanted: int
    lost: int = 0


@dataclass(frozen=True, kw_only=True)
class ChurnEvent(Event):
    """What was opened and closed again since the one before ("connections", "channels", "queues", "bindings"), and what
    of it failed; told every second in which there was any."""

    kind: ClassVar[str] = "churn"

    worker: str
    done: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ClocksEvent(Event):
    """``t_us`` in microseconds of wall time since 1970, which the Prometheus server has."""

    kind: ClassVar[str] = "clocks"

    wall_us: int


@dataclass(frozen=True, kw_only=True)
class MachineEvent(Event):
    """The part of all processors that was used since the one before, and the part that none of our processes used
    (containers are not ours in this sense); looked at every 5 s. ``over_s``: how long ago that was. ``by``: the names
    of the programs that used most of that, and the part of each. ``waited_s``: of each broker that is a process of
    ours, for how long that thread of it which waited longest was ready to run meanwhile, and had no processor.
    ``stored_bytes``: the size of the files in the folder of each, where the scenario bounds it."""

    kind: ClassVar[str] = "machine"

    busy: float
    others: float
    over_s: float = 0.0
    by: Mapping[str, float] = field(default_factory=dict)
    waited_s: Mapping[str, float] = field(default_factory=dict)
    stored_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RoundTripsEvent(Event):
    """What raw round trips of 1,000 bytes took over each way ("a1->b1") since the one before, in ms; None for one that
    was not answered."""

    kind: ClassVar[str] = "round_trips"

    trips_ms: Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, kw_only=True)
class FlowStatesEvent(Event):
    """What brokers told of who is held back: how many ``connections`` are in each state ("running", "flow": for credit,
    at some time in the last 5 s, "blocked": for an alarm, ...), and the ``flow_queues``, which are in flow themselves;
    None where there are too many to ask for. Asked every 5 s, or less often where it takes long to tell. Nobody tells
    of those of the ``silent`` nodes, which run."""

    kind: ClassVar[str] = "flow_states"

    #: The node that was asked.
    node: str = ""
    connections: Mapping[str, int]
    flow_queues: Sequence[str] | None = None
    silent: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class NoteEvent(Event):
    """Anything else worth telling."""

    kind: ClassVar[str] = "note"

    detail: str = ""


KINDS: Mapping[str, type[Event]] = {kind.kind: kind for kind in Event.__subclasses__()}


def event_of(told: Mapping[str, Any]) -> Event:
    """The event of one line. Raises EventError."""
    if not isinstance(told.get("t_us", 0), int):
        raise EventError(f"an event has no moment t_us, a number of microseconds: {told.get('t_us')!r}")
    return KINDS.get(told.get("kind", ""), Event).of_fields(told)
