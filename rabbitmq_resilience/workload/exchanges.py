"""Declare the exchanges and bindings of a workload, and prove that each node knows them and that they route."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pika
from pika.exceptions import AMQPError

from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, Json, ManagementApi
from rabbitmq_resilience.sut.node_protocol import Endpoints
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.load import Rebinding
from rabbitmq_resilience.workload.matching import Bound, Reached
from rabbitmq_resilience.workload.queues import insist, no_record, timed
from rabbitmq_resilience.workload.routing import Exchange, PublishArguments, Routing
from rabbitmq_resilience.workload.workload_model import Workload

#: Bindings in one request. A broker takes some hundred a second, and fewer with more nodes.
AT_ONCE = 500
#: How long to wait until all nodes know all bindings, and until each test message has come out of its queues.
KNOWN_WITHIN_S = 180.0
TRIED_WITHIN_S = 180.0

#: What distinguishes one exchange or binding from others.
_Key = tuple[str, ...]
_NUMBER = struct.Struct(">I")
_CALLED = {"consistent_hash": "x-consistent-hash"}


class RoutingNotProven(Exception):
    """A broker does not route as AMQP demands, or does not answer; the text says which queues a message came from."""


def establish(
    cluster: Endpoints, workload: Workload, *, vhost: str, record: Callable[..., object] = no_record
) -> Routes:
    """Declare the routing of the workload between existing queues, prove it, and return the route of each turn.

    ``record`` gets the event "set_up", with the time that brokers took. A plain workload declares nothing, and has one
    route to each queue. Raise ``WaitTimeout`` or ``ApiError`` if brokers do not take a declaration, and
    RoutingNotProven if messages take other routes.
    """
    queues, routing = workload.queue_names, workload.routing
    index = {queue: number for number, queue in enumerate(queues)}
    if routing is None:
        return Routes.of([[index[queue]] for queue in workload.published_queues])
    declare_routing(cluster, routing, queues, vhost=vhost, record=record, to_queues=not workload.owned)
    shards = [[index[queue] for queue in its] for its in routing.shards(queues).values()]
    if workload.owned or workload.limits is not None:  # a missing message proves nothing if its queue may drop it
        ways = [reached.queues for reached in routing.reached(queues)]
    else:
        ways = prove(cluster, routing, queues, vhost=vhost)
    return Routes.of([sorted(index[queue] for queue in way) for way in ways], shards)


def declare_routing(
    cluster: Endpoints,
    routing: Routing,
    queues: Sequence[str],
    *,
    vhost: str,
    record: Callable[..., object] = no_record,
    to_queues: bool = True,
) -> None:
    """Declare the exchanges and the bindings, and wait until every node lists them.

    Bindings to queues are declared only if ``to_queues``. Raise ``WaitTimeout`` if a node does not list them.
    """
    exchanges = [_exchange(one, vhost) for one in routing.exchanges]
    bindings = [_binding(one, vhost) for one in routing.bound(queues) if to_queues or one.to_exchange]
    api = cluster.api(cluster.topology.node_names[0])
    insist(lambda: api.import_definitions({"exchanges": exchanges}), what="exchanges", timeout_s=KNOWN_WITHIN_S)
    with timed(record, what="bindings", count=len(bindings)):
        for first in range(0, len(bindings), AT_ONCE):
            some = {"bindings": bindings[first : first + AT_ONCE]}
            insist(partial(api.import_definitions, some), what="bindings", timeout_s=KNOWN_WITHIN_S)
    await_known(cluster, [*exchanges, *bindings], vhost=vhost, known=_definitions)


def await_bound(cluster: Endpoints, workload: Workload, *, vhost: str) -> None:
    """Wait until every node lists the bindings of consumers. Raise ``WaitTimeout`` if one does not."""
    if workload.owned and workload.routing is not None:
        bound = workload.routing.bound(workload.queue_names)
        await_known(cluster, [_binding(one, vhost) for one in bound], vhost=vhost, known=_bindings)


def rebindings(workload: Workload) -> tuple[Rebinding, ...]:
    """Return the bindings that consumers make for the queues that they declare; () if they declare none."""
    if not workload.owned or workload.routing is None:
        return ()
    index = {queue: number for number, queue in enumerate(workload.queue_names)}
    bound = (one for one in workload.routing.bound(workload.queue_names) if not one.to_exchange)
    return tuple(Rebinding(index[one.destination], one.exchange, one.routing_key, _asked(one)) for one in bound)


def await_known(
    cluster: Endpoints, declared: Sequence[Json], *, vhost: str, known: Callable[[ManagementApi, str], set[_Key]]
) -> None:
    """Wait until ``known`` returns all these exchanges and bindings for every node. Raise ``WaitTimeout`` if not."""
    wanted = {_key(one) for one in declared}

    def lacking() -> list[str]:
        return [
            f"{node} lacks {len(missing)} of {len(wanted)}, such as {missing[0]}"
            for node in cluster.topology.node_names
            if (missing := sorted(wanted - known(cluster.api(node), vhost)))
        ]

    wait_until(
        lacking,
        timeout_s=KNOWN_WITHIN_S,
        what="all nodes to know the exchanges and bindings",
        until=lambda missing: not missing,
    )


def _exchange(exchange: Exchange, vhost: str) -> Json:
    alternate = exchange.alternate_exchange
    return {
        "name": exchange.name,
        "vhost": vhost,
        "type": _CALLED.get(exchange.type, exchange.type),
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {"alternate-exchange": alternate} if alternate else {},
    }


def _binding(bound: Bound, vhost: str) -> Json:
    return {
        "source": bound.exchange,
        "vhost": vhost,
        "destination": bound.destination,
        "destination_type": "exchange" if bound.to_exchange else "queue",
        "routing_key": bound.routing_key,
        "arguments": _asked(bound),
    }


def _asked(bound: Bound) -> dict[str, str]:
    """Return the arguments of a binding, by which a headers exchange chooses."""
    return {"x-match": bound.match, **dict(bound.headers)} if bound.headers or bound.match != "all" else {}


def _key(declared: Json) -> _Key:
    """Return the fields that distinguish an exchange or binding from others."""
    names = ("name", "type", "source", "destination", "destination_type", "routing_key")
    return (*(str(declared.get(name, "")) for name in names), *map(str, sorted(declared["arguments"].items())))


def _bindings(api: ManagementApi, vhost: str) -> set[_Key]:
    """Return the bindings that a node lists. Its definitions do not have those of exclusive queues."""
    try:
        return {_key(declared) for declared in api.bindings(vhost)}
    except (ApiError, ApiUnreachable):
        return set()


def _definitions(api: ManagementApi, vhost: str) -> set[_Key]:
    """Return the exchanges and bindings that a node lists."""
    try:
        listed = api.definitions(vhost, timeout_s=60.0)
    except (ApiError, ApiUnreachable):
        return set()
    return {_key(declared) for kind in ("exchanges", "bindings") for declared in listed[kind]}


def prove(cluster: Endpoints, routing: Routing, queues: Sequence[str], *, vhost: str) -> list[frozenset[str]]:
    """Publish one message for each turn, and return the queues that each message came out of.

    The queues are empty again afterwards. Raise RoutingNotProven unless a message came out of exactly the queues that
    AMQP demands, and of one queue of each consistent hash exchange.
    """
    arrived = _tried(cluster, routing.turns, queues, vhost=vhost)
    _check(routing, queues, arrived)
    return [frozenset(came_from) for came_from in arrived]


def _tried(
    cluster: Endpoints, turns: Sequence[PublishArguments], queues: Sequence[str], *, vhost: str
) -> list[Counter[str]]:
    """Return {queue: how often the message came out of it} for the message of each turn.

    A last message goes straight to each queue. Messages that were published before it on the channel come out before.
    """
    node = cluster.topology.client_nodes[0]
    arrived: list[Counter[str]] = [Counter() for _ in turns]
    waiting = set(queues)

    def on_message(queue: str, body: bytes) -> None:
        (number,) = _NUMBER.unpack(body)
        if number < len(turns):
            arrived[number][queue] += 1
        else:
            waiting.discard(queue)

    parameters = pika.ConnectionParameters(
        **cluster.access.parameters(cluster.amqp_endpoint(node)),
        virtual_host=vhost,
        blocked_connection_timeout=30,
        socket_timeout=10,
    )
    try:
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            for queue in queues:
                channel.basic_consume(
                    queue, lambda *given, queue=queue: on_message(queue, given[-1]), auto_ack=True, consumer_tag=queue
                )
            last = [PublishArguments("", queue, {}) for queue in queues]
            for number, turn in enumerate([*turns, *last]):
                body = _NUMBER.pack(min(number, len(turns)))
                properties = pika.BasicProperties(headers=dict(turn.headers) or None)
                channel.basic_publish(turn.exchange, turn.routing_key, body, properties)
            ends_s = time.monotonic() + TRIED_WITHIN_S
            while waiting and time.monotonic() < ends_s:
                connection.process_data_events(time_limit=0.2)
    except (AMQPError, OSError) as error:
        raise RoutingNotProven(f"{node} failed in the test of the routing: {type(error).__name__}: {error}") from error
    if waiting:
        few = ", ".join(sorted(waiting)[:5])
        raise RoutingNotProven(f"test messages of the routing did not come out of {few} within {TRIED_WITHIN_S:g} s")
    return arrived


def _check(routing: Routing, queues: Sequence[str], arrived: Sequence[Mapping[str, int]]) -> None:
    """Raise RoutingNotProven unless each message came out once of each queue, and of one shard each."""
    shards, reached = routing.shards(queues), routing.reached(queues)
    for turn, expected, came_from in zip(routing.turns, reached, arrived, strict=True):
        if wrong := list(_wrong(expected, shards, came_from)):
            shown = ", ".join(f"{queue} ({count}x)" for queue, count in sorted(came_from.items())) or "no queue"
            raise RoutingNotProven(
                f"a message to {turn.exchange!r} with the routing key {turn.routing_key!r} and the headers "
                f"{dict(turn.headers)} came out of {shown}, and {wrong[0]}"
            )


def _wrong(expected: Reached, shards: Mapping[str, Sequence[str]], came_from: Mapping[str, int]) -> Iterator[str]:
    for queue in sorted(expected.queues):
        if came_from.get(queue, 0) != 1:
            yield f"should come out of {queue} once"
    for exchange in sorted(expected.shards):
        if sum(came_from.get(queue, 0) for queue in shards[exchange]) != 1:
            yield f"should come out of one of {', '.join(shards[exchange])} once"
    allowed = expected.queues.union(*(shards[exchange] for exchange in expected.shards))
    for queue in sorted(came_from.keys() - allowed):
        yield f"should not come out of {queue}"
