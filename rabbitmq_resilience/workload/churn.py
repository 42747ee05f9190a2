"""Open and close connections, channels, queues and bindings all the time, each kind at its own rate."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pika import ConnectionParameters
from pika.channel import Channel

from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.workload.client_host import TICK_S, Client, ClientHost, run_worker
from rabbitmq_resilience.workload.client_session import BACKOFF_S, CLOSE_TIMEOUT_S, SETUP_TIMEOUT_S, parameters
from rabbitmq_resilience.workload.load import Address, Load, WorkerClients
from rabbitmq_resilience.workload.pace import TokenBucket
from rabbitmq_resilience.workload.wire import Connection
from rabbitmq_resilience.workload.workload_fields import CHURN_PREFIX

RECORD_EVERY_S = 1.0
#: How many of each kind may be open at a time. What is due then waits, and is dropped later (``workload.pace``).
UNDER_WAY_MAX = 50
EXCHANGE = "amq.topic"


class Done(Protocol):
    """A callback for the end of one opened thing: it was closed again, or it failed. Call it once for each thing."""

    def __call__(self, *, well: bool) -> None: ...


class ChurnClient(Client):
    """The only client of the churn process.

    Churned connections are opened and closed themselves. Channels, queues and bindings use one held connection; their
    churn pauses while that connection is lost.
    """

    tick_s = TICK_S

    def __init__(self, host: ClientHost) -> None:
        churn = dict(host.load.churn or ())
        self._host = host
        self._load = host.load
        self._paces = {
            kind: TokenBucket(rate_per_s, now_us=now_us())
            for kind in ("connections", "channels", "queues", "bindings")
            if (rate_per_s := churn[f"{kind}_per_s"])
        }
        self._open: dict[str, Callable[[int, Done], None]] = {
            "connections": self._open_connection,
            "channels": self._open_channel,
            "queues": self._open_queue,
            "bindings": self._open_binding,
        }
        self._numbers: Counter[str] = Counter()
        self._under_way: dict[str, set[int]] = {kind: set() for kind in self._paces}
        self._done: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._held: Connection | None = None
        self._channel: Channel | None = None
        self._places = self._load.places(0)
        self._tried = 0
        self._stopping = False
        self._recorded_s = 0.0

    def begin(self) -> None:
        if self._paces.keys() - {"connections"}:
            self._hold()

    def tick(self) -> None:
        for kind, pace in self._paces.items():
            room = UNDER_WAY_MAX - len(self._under_way[kind])
            is_served = kind == "connections" or self._channel is not None
            for _ in pace.take(room if is_served and not self._stopping else 0, now_us=now_us()):
                self._begin(kind)
        now_s = time.monotonic()
        if now_s - self._recorded_s >= RECORD_EVERY_S:
            self._recorded_s = now_s
            self._record()

    def stop(self) -> None:
        self._stopping = True
        if self._held is not None and self._held.is_open:
            self._held.close()
        self._host.loop.call_later(CLOSE_TIMEOUT_S, self._host.finished)

    def close(self) -> None:
        self._record()

    def _begin(self, kind: str) -> None:
        number = self._numbers[kind]
        self._numbers[kind] += 1
        self._under_way[kind].add(number)

        def done(*, well: bool) -> None:
            if number in self._under_way[kind]:  # an answer may come after its connection failed
                self._under_way[kind].discard(number)
                (self._done if well else self._failed)[kind] += 1

        self._open[kind](number, done)

    def _record(self) -> None:
        if self._done or self._failed:
            self._host.events.record("churn", worker="churn-0", done=dict(self._done), failed=dict(self._failed))
            self._done.clear()
            self._failed.clear()

    def _parameters(self, address: Address, name: str) -> ConnectionParameters:
        load = self._load
        return parameters(load, address, self._host.access, name=name, heartbeat_s=load.heartbeat_s)

    # Opening and closing.

    def _open_connection(self, number: int, done: Done) -> None:
        address = self._load.addresses[number % len(self._load.addresses)]
        Connection(
            self._parameters(address, f"{CHURN_PREFIX}{number}"),
            on_open_callback=lambda connection: connection.close(),
            on_open_error_callback=lambda *_: done(well=False),
            on_close_callback=lambda *_: done(well=True),
            custom_ioloop=self._host.loop,
        )

    def _open_channel(self, _number: int, done: Done) -> None:
        def opened(channel: Channel) -> None:
            channel.add_on_close_callback(lambda *_: done(well=True))
            channel.close()

        self._connection_held.channel(on_open_callback=opened)

    def _open_queue(self, number: int, done: Done) -> None:
        channel, name = self._channel_held, f"{CHURN_PREFIX}{number}"

        def declared(_: Any) -> None:
            channel.queue_delete(name, callback=lambda _: done(well=True))

        channel.queue_declare(name, exclusive=True, auto_delete=True, callback=declared)

    def _open_binding(self, number: int, done: Done) -> None:
        channel, key = self._channel_held, f"{CHURN_PREFIX}{number}"

        def bound(_: Any) -> None:
            channel.queue_unbind(self._bound, EXCHANGE, key, callback=lambda _: done(well=True))

        channel.queue_bind(self._bound, EXCHANGE, key, callback=bound)

    # The held connection.

    @property
    def _bound(self) -> str:
        """Return the queue to bind, another one for each connection: a broker may keep the last one for a while."""
        return f"{CHURN_PREFIX}bound-{self._tried}"

    @property
    def _connection_held(self) -> Connection:
        assert self._held is not None
        return self._held

    @property
    def _channel_held(self) -> Channel:
        assert self._channel is not None
        return self._channel

    def _hold(self) -> None:
        if self._stopping:
            return
        address = self._load.addresses[self._places[self._tried % len(self._places)]]
        self._held = Connection(
            self._parameters(address, "churn-0"),
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_lost,
            on_close_callback=self._on_lost,
            custom_ioloop=self._host.loop,
        )

    def _on_open(self, connection: Connection) -> None:
        def opened(channel: Channel) -> None:
            channel.add_on_close_callback(lambda _, reason: connection.abort(str(reason)))
            channel.queue_declare(self._bound, exclusive=True, callback=lambda _: served(channel))

        def served(channel: Channel) -> None:
            self._channel = channel

        def look() -> None:
            if self._channel is None:
                connection.abort("the broker does not answer")

        connection.channel(on_open_callback=opened)
        self._host.loop.call_later(SETUP_TIMEOUT_S, look)

    def _on_lost(self, _connection: Connection, _error: Exception) -> None:
        self._held = self._channel = None
        for kind in self._under_way.keys() - {"connections"}:
            self._failed[kind] += len(self._under_way[kind])
            self._under_way[kind].clear()
        self._failed = +self._failed  # without zeros
        self._tried += 1
        self._host.loop.call_later(BACKOFF_S[1], self._hold)


def _serve(folder: Path, name: str, life: int) -> None:  # noqa: ARG001 - one form for all
    host = ClientHost(Load.read(folder), folder, process=WorkerClients("churn", (0,)), life=life)
    host.serve([ChurnClient(host)])


if __name__ == "__main__":
    run_worker(_serve)
