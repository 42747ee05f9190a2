"""Run publishers. Each keeps up to ``in_flight`` messages unconfirmed, and records the outcome of each message."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from pika import spec
from pika.channel import Channel
from pika.frame import Method

from rabbitmq_resilience.history.history import Outcome, now_us
from rabbitmq_resilience.workload.client_host import RARE_TICK_S, TICK_S, Client, ClientHost, run_worker
from rabbitmq_resilience.workload.client_session import ClientSession
from rabbitmq_resilience.workload.counters import Count
from rabbitmq_resilience.workload.load import COPIES, Load, WorkerClients, publishes_path, under_way_path
from rabbitmq_resilience.workload.message import HEADER_BYTES, Encoder, decode
from rabbitmq_resilience.workload.outstanding import Outstanding
from rabbitmq_resilience.workload.pace import TokenBucket
from rabbitmq_resilience.workload.publishes import Publishes, under_way_max
from rabbitmq_resilience.workload.under_way import UnderWay
from rabbitmq_resilience.workload.wire import Connection, PublishFrames

#: How often a publisher checks whether its confirms are overdue.
LOOK_EVERY_S = 0.1
#: Without confirms only the socket limits how much is written.
UNSENT_BYTES_MAX = 1 << 18


class Outgoing(NamedTuple):
    """A message to one route: the number of its channel, and the wire format of each kind of message."""

    route: int
    channel: int
    frames: list[PublishFrames]


class Publisher(Client):
    """A client that publishes. It numbers its messages by sequence, over all its channels."""

    def __init__(self, session: ClientSession, load: Load, history: Publishes, *, index: int) -> None:
        self._session = session
        self._session.count(Count.BLOCKED, 0)  # an earlier incarnation may have been killed while it was blocked
        self._load = load
        self._index = index
        self._promised_when_written = load.confirms != "awaited"
        self._routes = load.publisher_routes(index)
        self._history = history
        self._under_way = history.under_way
        self._mix = load.mix
        payload = memoryview(load.payload)
        payloads = {size: bytes(payload[: size - HEADER_BYTES]) for size, _ in self._mix.kinds}
        self._encoders = [Encoder(load.run, index, payloads[kind.message_bytes]) for kind in self._mix.kinds]
        self._rate = load.rate  # of all publishers together
        self._rate_now = load.rate.plain
        self._pace = self._new_pace()
        self._waits = True  # until all clients are connected: busy brokers take connections slowly
        self._next = self._session.counted(Count.SENT)
        self._in_flight = 0
        self._channels: dict[int, Outstanding] = {}  # by channel number
        self._channel_of: dict[int, int] = {}  # route to channel number
        self._not_open = 0  # channels
        self._returned: set[int] = set()  # sequences
        self._connection: Connection | None = None  # None while it cannot be used
        self._turns: list[Outgoing] = []  # one full round, then the first again
        self._run = load.spread.run
        self._turn = 0  # counts messages
        self._node = 0
        self._looked_s = 0.0
        self._wakes_us: int | None = None  # time of the next wake-up, if one is set
        self._blocked = False
        self._unblocked_us = 0
        self._stopping = False

    # Calls from the process and the session.

    @property
    def tick_s(self) -> float:
        return TICK_S if self._promised_when_written or self._rate.varies else RARE_TICK_S

    def begin(self) -> None:
        self._session.begin(self)

    def opened(self, connection: Connection, node: int) -> None:
        connection.add_on_connection_blocked_callback(lambda *_: self._block(True))
        connection.add_on_connection_unblocked_callback(lambda *_: self._block(False))
        shares = self._load.channel_shares(self._routes)
        self._channels, self._channel_of, self._not_open = {}, {}, len(shares)
        for routes in shares:
            connection.channel(on_open_callback=partial(self._on_channel, connection, node, routes))

    def lost(self) -> None:
        self._connection = None
        if self._blocked:
            self._block(False)
        self._resolve_all(Outcome.UNKNOWN)

    def tick(self) -> None:
        now_s = time.monotonic()
        self._history.tick(now_s)
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._check_patience()
        if self._rate.begins_us is not None:
            self._keep_up()
        self._publish()

    def publish(self) -> None:
        if self._waits:
            self._waits, self._pace = False, self._new_pace()
            self._publish()

    def vary(self, begins_us: int) -> None:
        self._rate = replace(self._rate, begins_us=begins_us)

    def stop(self) -> None:
        self._stopping = True
        self._publish()

    def close(self) -> None:
        self.lost()
        self._session.close()

    # Calls from the connection.

    def _on_channel(self, connection: Connection, node: int, routes: tuple[int, ...], channel: Channel) -> None:
        channel.add_on_close_callback(lambda _, reason: self._session.fail(str(reason)))
        channel.add_on_return_callback(self._on_return)
        self._channels[channel.channel_number] = Outstanding()
        self._channel_of |= dict.fromkeys(routes, channel.channel_number)
        if self._load.confirms == "none":
            self._on_selected(connection, node)
            return
        heeded = self._load.confirms == "awaited"
        connection.on_confirm = self._on_confirm if heeded else _ignored
        connection.on_data = self._refill if heeded else None
        on_nack = self._on_nack if heeded else _ignored
        channel.confirm_delivery(on_nack, callback=lambda _: self._on_selected(connection, node))

    def _on_selected(self, connection: Connection, node: int) -> None:
        """Count one more usable channel; with the last one the connection is usable."""
        self._not_open -= 1
        if not self._not_open:
            self._turns = self._all_turns(connection)
            self._connection, self._node = connection, node
            self._session.ready()
            self._publish()

    def _all_turns(self, connection: Connection) -> list[Outgoing]:
        frame_max_bytes = connection.params.frame_max
        every, routed = self._load.copy_every, self._load.routed
        return [
            Outgoing(
                route,
                self._channel_of[route],
                [
                    PublishFrames(
                        channel=self._channel_of[route],
                        turn=routed[route],
                        payload=encoder.payload,
                        persistent=self._load.persistent,
                        frame_max_bytes=frame_max_bytes,
                        copied_to=COPIES if every and place % every == 0 else None,
                        priority=kind.priority,
                    )
                    for kind, encoder in zip(self._mix.kinds, self._encoders, strict=True)
                ],
            )
            for place, route in enumerate(self._routes * (every or 1))
        ]

    def _on_confirm(self, channel: int, tag: int, multiple: bool) -> None:
        self._resolve(self._channels[channel].take(tag, multiple=multiple), Outcome.CONFIRMED)

    def _on_nack(self, frame: Method) -> None:
        method = frame.method
        outcome = Outcome.NACKED if isinstance(method, spec.Basic.Nack) else Outcome.CONFIRMED
        places = self._channels[frame.channel_number].take(method.delivery_tag, multiple=method.multiple)
        self._resolve(places, outcome)

    def _on_return(self, _channel: Channel, _method: object, _properties: object, body: bytes) -> None:
        """Note a message that no queue took; the broker returns it before its confirm."""
        identity = decode(body)
        if identity is not None:
            self._returned.add(identity.sequence)

    def _block(self, blocked: bool) -> None:
        self._blocked = blocked
        self._unblocked_us = now_us()
        self._session.count(Count.BLOCKED, int(blocked))
        self._session.record("blocked" if blocked else "unblocked")
        if not blocked and self._connection is not None:
            self._publish()

    # Sending, and recording outcomes.

    def _new_pace(self) -> TokenBucket:
        return TokenBucket(self._own_rate_per_s(), now_us=now_us(), ahead=self._index / self._load.publishers)

    def _own_rate_per_s(self) -> float | None:
        return None if self._rate_now is None else self._rate_now / self._load.publishers

    def _keep_up(self) -> None:
        """Change to the target rate that holds now, if it is another one."""
        t_us = now_us()
        rate_now = self._rate.at(t_us)
        if rate_now != self._rate_now:
            self._rate_now = rate_now
            self._pace.change(self._own_rate_per_s(), now_us=t_us)

    def _resolve(self, places: list[int], outcome: Outcome) -> None:
        self._in_flight -= len(places)
        if self._returned and outcome is Outcome.CONFIRMED:
            for place in places:
                sequence = self._under_way.sequence(place)
                self._add([place], Outcome.RETURNED if sequence in self._returned else outcome)
                self._returned.discard(sequence)
        elif places:
            self._add(places, outcome)

    def _resolve_all(self, outcome: Outcome) -> None:
        for outstanding in self._channels.values():
            self._resolve(outstanding.take_all(), outcome)

    def _add(self, places: list[int], outcome: Outcome) -> None:
        self._history.add(places, outcome)
        self._session.add(_COUNTED_AS[outcome], len(places))

    def _refill(self) -> None:
        """Publish after data has arrived, which may be confirms. Without a rate, wait until half of ``in_flight`` are
        confirmed, or until the next tick: brokers need less CPU for messages that arrive together."""
        if self._stopping or self._rate_now is not None or 2 * self._in_flight <= self._load.in_flight:
            self._publish()

    def _publish(self) -> None:
        """Send as many messages together as ``in_flight`` and the rate allow."""
        connection = self._connection
        if self._stopping:
            if not self._in_flight:
                self._session.finish(all_read=self._promised_when_written)
            return
        if self._waits or connection is None or self._blocked or not connection.is_open:
            return
        room = self._load.in_flight - self._in_flight
        if self._promised_when_written and connection.unsent_bytes > UNSENT_BYTES_MAX:
            room = 0
        if room <= 0:
            return
        t_us = now_us()
        due_us = self._pace.take(room, now_us=t_us)
        if due_us:
            self._send(connection, due_us, t_us)
        if len(due_us) < room or self._promised_when_written:  # otherwise confirms make room, and call this
            self._await_next()

    def _await_next(self) -> None:
        """Wake up when the next message is due, not only at the next tick. If it is due and had no room, wake up at
        once; other clients of the process have their turn in between."""
        next_us = self._pace.next_us
        if next_us is not None and (self._wakes_us is None or next_us < self._wakes_us):
            self._wakes_us = next_us
            self._session.call_at(next_us, partial(self._wake, next_us))

    def _wake(self, at_us: int) -> None:
        if at_us == self._wakes_us:
            self._wakes_us = None
            self._publish()

    def _send(self, connection: Connection, due_us: list[int], sent_us: int) -> None:
        first, end = self._next, self._next + len(due_us)
        turns = self._next_turns(len(due_us))
        places = self._under_way.take(self._index, first, [turn.route for turn in turns], due_us, sent_us, self._node)
        self._session.count(Count.SENT, end)  # before the first byte is written
        self._next = end
        encoders, kinds = self._encoders, self._mix.of(self._index, first, end)
        connection.write_messages(
            [
                turn.frames[kind].marshal(encoders[kind].header(sequence))
                for sequence, kind, turn in zip(range(first, end), kinds, turns, strict=True)
            ]
        )
        self._in_flight += len(places)
        channels = [turn.channel for turn in turns]
        for channel, sent in groupby(zip(channels, places, strict=True), key=itemgetter(0)):
            self._channels[channel].add([place for _, place in sent])
        if self._promised_when_written:
            self._resolve_all(Outcome.CONFIRMED)

    def _next_turns(self, count: int) -> list[Outgoing]:
        turns, run, at = self._turns, self._run, self._turn
        self._turn = (at + count) % (len(turns) * run)
        return [turns[message // run % len(turns)] for message in range(at, at + count)]

    def _check_patience(self) -> None:
        if self._connection is None or self._blocked or self._stopping or not self._in_flight:
            return  # a stopping publisher sends nothing more, so another node is of no use
        oldest = (outstanding.oldest for outstanding in self._channels.values())
        sent_us = min(self._under_way.sent_us(place) for place in oldest if place is not None)
        since_us = max(sent_us, self._unblocked_us)  # a broker does not read from a blocked publisher
        waited_s = (now_us() - since_us) / 1e6
        if waited_s > self._load.confirm_timeout_s:
            self._session.fail(f"no confirm for {waited_s:.1f} s")


def _ignored(*_: object) -> None:
    """Ignore a confirm."""


_COUNTED_AS = {
    Outcome.CONFIRMED: Count.CONFIRMED,
    Outcome.NACKED: Count.REFUSED,
    Outcome.RETURNED: Count.REFUSED,
    Outcome.UNKNOWN: Count.UNKNOWN,
}


def _serve(folder: Path, name: str, life: int) -> None:
    load = Load.read(folder)
    process = load.process(name)
    host = ClientHost(load, folder, process=process, life=life)
    history = open_history(host, folder, process)
    host.serve([hosted(host, history, index) for index in process.clients])
    history.close()


def open_history(host: ClientHost, folder: Path, process: WorkerClients) -> Publishes:
    """Open the stream of this incarnation of the process, and its table of messages under way."""
    size = under_way_max(host.load.in_flight, publishers=len(process.clients))
    return Publishes(
        publishes_path(folder, process.name, host.life),
        under_way=UnderWay(under_way_path(folder, process.name, host.life), size=size),
        on_written=lambda publisher, count: host.counters.add(publisher, Count.RECORDED, count),
    )


def hosted(host: ClientHost, history: Publishes, index: int) -> Publisher:
    """Return the publisher with this index, on the host of its process."""
    begins_after_s = host.load.start_spread_s * index / host.load.publishers
    session = ClientSession(host, worker=f"publisher-{index}", row=index, home=index, begins_after_s=begins_after_s)
    return Publisher(session, host.load, history, index=index)


if __name__ == "__main__":
    run_worker(_serve)
