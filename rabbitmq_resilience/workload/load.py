"""Describe the load of one run to its workers, in a file next to their histories."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args

from pydantic import ConfigDict

from rabbitmq_resilience.history.history import DELIVERIES_SUFFIX, PUBLISHES_SUFFIX
from rabbitmq_resilience.history.variation import Variation
from rabbitmq_resilience.model.access import Endpoint
from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.workload.dead_lettering import Rejected
from rabbitmq_resilience.workload.matching import DEFAULT_EXCHANGE
from rabbitmq_resilience.workload.message import HEADER_BYTES
from rabbitmq_resilience.workload.mix import Mix
from rabbitmq_resilience.workload.parts import BackgroundPart, ConsumerPart, PublisherPart
from rabbitmq_resilience.workload.routing import PublishArguments
from rabbitmq_resilience.workload.services import Service
from rabbitmq_resilience.workload.under_way import UNDER_WAY_SUFFIX

LOAD_FILE = "load.json"

#: The queue that takes the copies of ``copy_every``, and keeps only the last one. Names of other queues have a number.
COPIES = "copies"

Role = Literal["publisher", "consumer"]

ROLES: tuple[Role, ...] = get_args(Role)

#: The most shared processes of a role. Clients that a scenario kills have processes of their own in addition.
PROCESSES_MAX = 4


#: How many idle connections share the I/O loop of a process.
IDLE_TOGETHER = 4000


class Address(NamedTuple):
    """The address at which one broker serves AMQP. ``node`` and ``zone`` are its names in the topology. ``tls_name``:
    see ``Endpoint``."""

    node: str
    host: str
    port: int
    zone: str = ""
    tls_name: str = ""

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.host, self.port, self.tls_name)


class WorkerClients(NamedTuple):
    """A worker process, and the indexes of the clients that it serves."""

    role: Role | Literal["idle", "churn"]
    clients: tuple[int, ...]

    @property
    def name(self) -> str:
        """Return the name of its client, or with several clients of the first: ``publisher-2``, ``publishers-2``."""
        return f"{self.role}{'s' if len(self.clients) > 1 else ''}-{self.clients[0]}"


class Rebinding(NamedTuple):
    """A binding that a consumer makes each time it has declared its queue. ``queue`` is the index of the queue."""

    queue: int
    exchange: str
    routing_key: str
    arguments: Mapping[str, str]


class RecordedClients(Spec):
    """The clients of a load of any kind, as its record states them.

    - ``in_flight`` and ``prefetch``: how many messages of a client may have been under way when it was killed.
    - ``shared``: {role: groups of the clients that share a process}, as indexes. Each other client has its own.
    """

    model_config = ConfigDict(extra="ignore")

    publishers: int
    consumers: int
    in_flight: int
    prefetch: int
    shared: Mapping[Role, tuple[tuple[int, ...], ...]] = {}

    def processes(self, role: Role) -> list[WorkerClients]:
        """Return the processes of that role, in the order of their first clients."""
        groups = [*self.shared.get(role, ())]
        together = {client for group in groups for client in group}
        clients = range(self.publishers if role == "publisher" else self.consumers)
        groups += [(client,) for client in clients if client not in together]
        return [WorkerClients(role, group) for group in sorted(groups)]

    def process(self, name: str) -> WorkerClients:
        """Return the process with that name. Raise KeyError if there is none."""
        return {process.name: process for role in ROLES for process in self.processes(role)}[name]

    def save(self, folder: Path) -> None:
        (folder / LOAD_FILE).write_text(self.model_dump_json(indent=1), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return what ``save`` wrote. Raise OSError or ValueError if the file is missing or damaged."""
        return cls.model_validate(json.loads((folder / LOAD_FILE).read_text(encoding="utf-8")))


class Load(PublisherPart, ConsumerPart, BackgroundPart, RecordedClients):
    """The load of one run: the parts that its workload states, and what is known only when it starts.

    - ``run``: the number that every message carries.
    - ``addresses``: in the order of the topology's nodes. ``proxied_addresses``: {worker: its addresses}, for workers
      that connect through proxies.
    - ``queues``: in index order. ``nodes``: the topology's names, in order; () if each address is that of a node.
    - ``turns``: what messages are published with, in the order of their routes (``history.routes``); () if each queue
      has its own route.
    - ``dead_letter_queues``: {queue: the queues that take its dead letters}, as indexes. Consumers of these queues
      reject one message in ``reject_one_in``.
    - ``declared_with``: the arguments with which consumers declare their queues, or None if queues exist before them.
      ``rebindings``: the bindings that they make then.
    """

    model_config = ConfigDict(extra="forbid")

    run: int
    seed: int
    vhost: str
    addresses: tuple[Address, ...]
    queues: tuple[str, ...]
    proxied_addresses: Mapping[str, tuple[Address, ...]] = {}
    nodes: tuple[str, ...] = ()
    turns: tuple[PublishArguments, ...] = ()
    dead_letter_queues: Mapping[int, tuple[int, ...]] = {}
    reject_one_in: int | None = None
    declared_with: Mapping[str, Any] | None = None
    rebindings: tuple[Rebinding, ...] = ()

    @property
    def rate(self) -> Variation:
        """Return the target rate of all publishers together, in messages/s."""
        return Variation(self.rate_per_s, tuple((step.rate_per_s, step.for_s) for step in self.variable_rate))

    def processing(self, consumer: int) -> Variation:
        """Return the time that the consumer takes for a message, in ms."""
        return self._service(consumer)[0].processing

    @property
    def mix(self) -> Mix:
        """Return the sizes and priorities of messages."""
        sizes = tuple((size.message_bytes, size.weight) for size in self.message_sizes)
        return Mix(sizes or ((self.message_bytes, 1),), self.priorities, self.seed)

    @property
    def payload(self) -> bytes:
        """Return the payload of the largest message; a smaller message has the beginning of it."""
        return random.Random(self.seed).randbytes(self.mix.bytes_max - HEADER_BYTES)  # noqa: S311

    def background(self) -> list[WorkerClients]:
        """Return the processes of idle connections and of churn. Each has one client, recorded as a whole."""
        idle = [WorkerClients("idle", (number,)) for number in range(math.ceil(self.idle_connections / IDLE_TOGETHER))]
        return [*idle, *([WorkerClients("churn", (0,))] if self.churn else [])]

    def addresses_of(self, worker: str) -> tuple[Address, ...]:
        return self.proxied_addresses.get(worker, self.addresses)

    def node(self, address: int, announced: str | None) -> int:
        """Return the index of the node that answers a connection to that address.

        ``announced`` is the broker's own name, if it gives one: behind a balancer nothing else shows the node.
        """
        name = announced if announced in self.nodes else self.addresses[address].node
        return self.nodes.index(name) if name in self.nodes else address

    @property
    def routed(self) -> tuple[PublishArguments, ...]:
        """Return what messages of each route are published with."""
        return self.turns or tuple(PublishArguments(DEFAULT_EXCHANGE, queue, {}) for queue in self.queues)

    def publisher_routes(self, publisher: int) -> tuple[int, ...]:
        """Return the indexes of the routes that a publisher's messages take in turn, by sequence."""
        return share(publisher, self.publishers, len(self.turns) or len(self.queues))

    def channel_shares(self, routes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the routes of a publisher, grouped by its channels.

        AMQP guarantees order only within a channel, so a publisher never uses two channels for one queue.
        """
        if self.spread.channel == "per_queue":
            return tuple((route,) for route in routes)
        return (tuple(routes),)

    def consumer_queues(self, consumer: int) -> tuple[int, ...]:
        service, first_queue, first_consumer = self._service(consumer)
        its = share(consumer - first_consumer, service.consumers, service.queues)
        return tuple(first_queue + queue for queue in its)

    def consumes_at_drain(self, consumer: int) -> bool:
        """Return whether the consumer connects only when the drain begins."""
        return self._service(consumer)[0].consume == "at_drain"

    @property
    def early_consumers(self) -> list[int]:
        """Return the indexes of the consumers that connect at the start of the load."""
        late = (group.consume == "at_drain" for group in self._groups for _ in range(group.consumers))
        return [consumer for consumer, is_late in enumerate(late) if not is_late]

    def rejects(self, consumer: int) -> Rejected | None:
        """Return which messages the consumer rejects, or None if it rejects none."""
        if self.reject_one_in is None or not self.dead_letter_queues.keys() & {*self.consumer_queues(consumer)}:
            return None
        return Rejected(self.reject_one_in)

    @property
    def _groups(self) -> tuple[Service, ...]:
        return self.by_service(len(self.queues))

    def _service(self, consumer: int) -> tuple[Service, int, int]:
        """Return the service of the consumer, and the indexes of its first queue and its first consumer."""
        queue = first = 0
        for service in self._groups:
            if consumer < first + service.consumers:
                return service, queue, first
            queue, first = queue + service.queues, first + service.consumers
        raise IndexError(f"there are {first} consumers, and none of index {consumer}")

    def places(self, home: int) -> tuple[int, ...]:
        """Return the indexes of the addresses that a client tries in turn, from its home (modulo their number) on."""
        count = len(self.addresses)
        turn = [(home + i) % count for i in range(count)]
        if self.reconnect == "own_zone":
            turn = [i for i in turn if self.addresses[i].zone == self.addresses[turn[0]].zone]
        return tuple(turn)


def grouped(clients: int, *, alone: Collection[int]) -> tuple[tuple[int, ...], ...]:
    """Return the groups of clients that share a process, at most ``PROCESSES_MAX`` groups.

    Clients in ``alone``, and clients that would be the only one of their group, are in none.
    """
    others = [client for client in range(clients) if client not in alone]
    groups = (tuple(others[first::PROCESSES_MAX]) for first in range(PROCESSES_MAX))
    return tuple(group for group in groups if len(group) > 1)


def worker_name(client: str) -> str:
    """Return the worker name of a client that a fault file calls ``publisher:0``."""
    return client.replace(":", "-")


def share(worker: int, workers: int, queues: int) -> tuple[int, ...]:
    """Return the queues of one worker: one queue, or with more queues than workers its share of them."""
    return tuple(range(worker, queues, workers)) or (worker % queues,)


def publishes_path(folder: Path, process: str, life: int | str) -> Path:
    """Return the stream of one incarnation of a process. Incarnations are counted from 0; restarts begin a new one."""
    return folder / f"{process}.{life}{PUBLISHES_SUFFIX}"


def under_way_path(folder: Path, process: str, life: int) -> Path:
    return folder / f"{process}.{life}{UNDER_WAY_SUFFIX}"


def deliveries_path(folder: Path, process: str, life: int) -> Path:
    return folder / f"{process}.{life}{DELIVERIES_SUFFIX}"
