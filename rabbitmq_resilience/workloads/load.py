"""All that the workers of one run need to know, as a file beside their histories."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

from rabbitmq_resilience.clusters.access import Endpoint
from rabbitmq_resilience.record.history import DELIVERIES_SUFFIX, PUBLISHES_SUFFIX
from rabbitmq_resilience.record.variation import Variation
from rabbitmq_resilience.workloads.dead_letters import Rejected
from rabbitmq_resilience.workloads.matching import DEFAULT_EXCHANGE
from rabbitmq_resilience.workloads.message import HEADER_BYTES
from rabbitmq_resilience.workloads.mix import Mix
from rabbitmq_resilience.workloads.routing import Turn
from rabbitmq_resilience.workloads.under_way import UNDER_WAY_SUFFIX

LOAD_FILE = "load.json"

#: The queue that takes the copies of ``copy_every``, and keeps the last only. Other queues of a load have a number in
#: their names.
COPIES = "copies"

Role = Literal["publisher", "consumer"]

ROLES: tuple[Role, ...] = get_args(Role)

#: Of each role. Clients that a scenario kills have processes of their own besides.
PROCESSES_MAX = 4


#: Connections that share the I/O loop of a process of idle ones.
IDLE_TOGETHER = 4000


class Address(NamedTuple):
    """Where one broker serves AMQP. ``node`` and ``zone`` are its names in the topology; ``tls_name``: see
    ``Endpoint``."""

    node: str
    host: str
    port: int
    zone: str = ""
    tls_name: str = ""

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.host, self.port, self.tls_name)


class Process(NamedTuple):
    """A worker process, and the indexes of the clients that it serves."""

    role: Role | Literal["idle", "churn"]
    clients: tuple[int, ...]

    @property
    def name(self) -> str:
        """That of its client, or of the first of several: ``publisher-2``, ``publishers-2``."""
        return f"{self.role}{'s' if len(self.clients) > 1 else ''}-{self.clients[0]}"


class Rebinding(NamedTuple):
    """A binding that the consumer of a queue (by its index) makes whenever it has declared it."""

    queue: int
    exchange: str
    routing_key: str
    arguments: Mapping[str, str]


class Served(NamedTuple):
    """A service: its numbers of queues and of consumers, counted on from where the service before it ends, what each
    consumer takes for a message, and when it connects."""

    queues: int
    consumers: int
    processing_ms: float
    variable_processing: Sequence[Mapping[str, Any]]
    consume: str = "always"


@dataclass(frozen=True)
class Load:
    """``addresses`` are in the order of the topology's nodes, ``proxied_addresses`` those of the workers (by name) that
    get there through proxies; ``queues`` are in index order; the rest is as in ``workloads.spec.Workload``. ``run`` is
    the number that every message carries. ``shared`` has the indexes of those publishers, and of those consumers, that
    share a process with others, a group each; every other client has its own. ``nodes`` are the topology's names, in
    order; without them each address is that of a node. ``turns`` are what messages are published with, in the order of
    their routes (``record.routes``); without them each queue has its own. ``services`` say who reads what at which
    pace; without them all consumers read all queues. ``dead_letter_queues`` has for the index of each queue whose dead
    letters go on to others the indexes of those; consumers of such queues reject one message in ``reject_one_in``.
    ``declared_with``: what consumers declare their own queues with; None where queues are there before them;
    ``rebindings``: what they bind them to then."""

    run: int
    seed: int
    vhost: str
    addresses: tuple[Address, ...]
    queues: tuple[str, ...]
    publishers: int
    consumers: int
    rate_per_s: int | None
    in_flight: int
    prefetch: int
    ack_every: int
    message_bytes: int
    confirms: str
    acks: str
    persistent: bool
    heartbeat_s: int
    confirm_timeout_s: float
    reconnect: str = "anywhere"
    copy_every: int | None = None
    variable_rate: tuple[Mapping[str, Any], ...] = ()
    processing_ms: float = 0
    variable_processing: tuple[Mapping[str, Any], ...] = ()
    start_spread_s: float = 0
    proxied_addresses: Mapping[str, tuple[Address, ...]] = field(default_factory=dict)
    shared: Mapping[Role, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    spread: Mapping[str, Any] = field(default_factory=dict)
    idle_connections: int = 0
    idle_heartbeat_s: int = 60
    churn: Mapping[str, Any] | None = None
    turns: tuple[Turn, ...] = ()
    services: tuple[Served, ...] = ()
    message_sizes: tuple[Mapping[str, int], ...] = ()
    priorities: tuple[int, ...] = ()
    dead_letter_queues: Mapping[int, Sequence[int]] = field(default_factory=dict)
    reject_one_in: int | None = None
    declared_with: Mapping[str, Any] | None = None
    rebindings: tuple[Rebinding, ...] = ()
    consume: str = "always"

    @property
    def rate(self) -> Variation:
        """The target of all publishers together, messages/s."""
        return Variation.of(vars(self), "rate_per_s", "variable_rate")

    def processing(self, consumer: int) -> Variation:
        """What the consumer takes for a message, ms."""
        if not self.services:
            return Variation.of(vars(self), "processing_ms", "variable_processing")
        return Variation.of(self._service(consumer)[0]._asdict(), "processing_ms", "variable_processing")

    @property
    def mix(self) -> Mix:
        """What sizes and priorities messages have."""
        sizes = tuple((size["message_bytes"], size["weight"]) for size in self.message_sizes)
        return Mix(sizes or ((self.message_bytes, 1),), self.priorities, self.seed)

    @property
    def payload(self) -> bytes:
        """Of the largest message; a smaller one has the beginning of it."""
        return random.Random(self.seed).randbytes(self.mix.bytes_max - HEADER_BYTES)  # noqa: S311

    def processes(self, role: Role) -> list[Process]:
        """In the order of their first clients."""
        groups = [*self.shared.get(role, ())]
        together = {client for group in groups for client in group}
        clients = range(self.publishers if role == "publisher" else self.consumers)
        groups += [(client,) for client in clients if client not in together]
        return [Process(role, group) for group in sorted(groups)]

    def background(self) -> list[Process]:
        """Those of idle connections, and of churn: one client each, of which the record tells as a whole."""
        idle = [Process("idle", (number,)) for number in range(math.ceil(self.idle_connections / IDLE_TOGETHER))]
        return [*idle, *([Process("churn", (0,))] if self.churn else [])]

    def process(self, name: str) -> Process:
        """The process of that name. Raises KeyError."""
        return {process.name: process for role in ROLES for process in self.processes(role)}[name]

    def addresses_of(self, worker: str) -> tuple[Address, ...]:
        return self.proxied_addresses.get(worker, self.addresses)

    def node(self, address: int, announced: str | None) -> int:
        """The index of the node to which a connection to that address came: of the broker's own name where it tells it
        (behind a balancer nothing else does)."""
        name = announced if announced in self.nodes else self.addresses[address].node
        return self.nodes.index(name) if name in self.nodes else address

    @property
    def routed(self) -> tuple[Turn, ...]:
        """What messages of each route are published with."""
        return self.turns or tuple(Turn(DEFAULT_EXCHANGE, queue, {}) for queue in self.queues)

    def publisher_routes(self, publisher: int) -> tuple[int, ...]:
        """Indexes of the routes that a publisher's messages take, in turn by their sequence."""
        return share(publisher, self.publishers, len(self.turns) or len(self.queues))

    def channel_shares(self, routes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """The routes of a publisher, those of each of its channels together. Order is promised within a channel, so
        that one queue never has two."""
        if self.spread.get("channel") == "per_queue":
            return tuple((route,) for route in routes)
        return (tuple(routes),)

    @property
    def messages_in_a_row(self) -> int:
        """How many take one route before the next has its turn."""
        return int(self.spread.get("run", 1))

    def consumer_queues(self, consumer: int) -> tuple[int, ...]:
        if not self.services:
            return share(consumer, self.consumers, len(self.queues))
        service, first_queue, first_consumer = self._service(consumer)
        its = share(consumer - first_consumer, service.consumers, service.queues)
        return tuple(first_queue + queue for queue in its)

    def consumes_at_drain(self, consumer: int) -> bool:
        """Return whether the consumer connects only when the drain begins."""
        return (self._service(consumer)[0].consume if self.services else self.consume) == "at_drain"

    @property
    def early_consumers(self) -> list[int]:
        """Return the indexes of the consumers that connect at the start of the load."""
        return [consumer for consumer in range(self.consumers) if not self.consumes_at_drain(consumer)]

    def rejects(self, consumer: int) -> Rejected | None:
        """Which messages the consumer rejects; None where it rejects none."""
        if self.reject_one_in is None or not self.dead_letter_queues.keys() & {*self.consumer_queues(consumer)}:
            return None
        return Rejected(self.reject_one_in)

    def _service(self, consumer: int) -> tuple[Served, int, int]:
        """The service of the consumer, its first queue and its first consumer."""
        queue = first = 0
        for service in self.services:
            if consumer < first + service.consumers:
                return service, queue, first
            queue, first = queue + service.queues, first + service.consumers
        raise IndexError(f"there are {first} consumers, and none of index {consumer}")

    def places(self, home: int) -> tuple[int, ...]:
        """Indexes of the addresses that a client tries in turn, beginning at its home (modulo their number)."""
        count = len(self.addresses)
        turn = [(home + i) % count for i in range(count)]
        if self.reconnect == "own_zone":
            turn = [i for i in turn if self.addresses[i].zone == self.addresses[turn[0]].zone]
        return tuple(turn)

    def save(self, folder: Path) -> None:
        (folder / LOAD_FILE).write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        fields: dict[str, Any] = json.loads((folder / LOAD_FILE).read_text(encoding="utf-8"))
        addresses = _addresses(fields.pop("addresses"))
        proxied = fields.pop("proxied_addresses", None) or fields.pop("detours", {})  # the name in early records
        proxied_addresses = {worker: _addresses(rows) for worker, rows in proxied.items()}
        shared = fields.pop("shared", {})
        fields["shared"] = {role: tuple(tuple(group) for group in groups) for role, groups in shared.items()}
        rows = ("queues", "variable_rate", "variable_processing", "nodes", "message_sizes", "priorities")
        fields |= {name: tuple(fields.get(name, ())) for name in rows}
        letters = fields.get("dead_letter_queues", {})
        fields["dead_letter_queues"] = {  # in early records each has one
            int(queue): tuple([taking] if isinstance(taking, int) else taking) for queue, taking in letters.items()
        }
        fields["turns"] = tuple(Turn(*row) for row in fields.get("turns", ()))
        fields["rebindings"] = tuple(Rebinding(*row) for row in fields.get("rebindings", ()))
        fields["services"] = tuple(Served(*row) for row in fields.get("services", ()))
        return cls(addresses=addresses, proxied_addresses=proxied_addresses, **fields)


def grouped(clients: int, *, alone: Collection[int]) -> tuple[tuple[int, ...], ...]:
    """The clients that share a process, a group for each of at most ``PROCESSES_MAX`` processes: none but those that
    would need more processes, and none of ``alone``."""
    others = [client for client in range(clients) if client not in alone]
    groups = (tuple(others[first::PROCESSES_MAX]) for first in range(PROCESSES_MAX))
    return tuple(group for group in groups if len(group) > 1)


def worker_name(client: str) -> str:
    """The worker that a fault file calls ``publisher:0``."""
    return client.replace(":", "-")


def _addresses(rows: list[list[Any]]) -> tuple[Address, ...]:
    return tuple(Address(*row) for row in rows)


def share(worker: int, workers: int, queues: int) -> tuple[int, ...]:
    """The queues of one worker: one of them, or where there are more queues than workers, its part of them."""
    return tuple(range(worker, queues, workers)) or (worker % queues,)


def publishes_path(folder: Path, process: str, life: int | str) -> Path:
    """Each life of a process, counted from 0 and grown by one at each restart, has a stream of its own."""
    return folder / f"{process}.{life}{PUBLISHES_SUFFIX}"


def under_way_path(folder: Path, process: str, life: int) -> Path:
    return folder / f"{process}.{life}{UNDER_WAY_SUFFIX}"


def deliveries_path(folder: Path, process: str, life: int) -> Path:
    return folder / f"{process}.{life}{DELIVERIES_SUFFIX}"
