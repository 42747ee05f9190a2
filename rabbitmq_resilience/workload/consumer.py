"""Run consumers. A consumer records a delivery when it arrives, processes it, and only then acknowledges it.

With ``acks: early`` it acknowledges first, which is not safe.
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

from pika.channel import Channel

from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.workload.client_host import RARE_TICK_S, TICK_S, Client, ClientHost, run_worker
from rabbitmq_resilience.workload.client_session import ClientSession
from rabbitmq_resilience.workload.counters import Count
from rabbitmq_resilience.workload.deliveries import FLUSH_ROWS, Deliveries, Row, Settling
from rabbitmq_resilience.workload.load import Load, WorkerClients, deliveries_path
from rabbitmq_resilience.workload.message import decode
from rabbitmq_resilience.workload.processing import Processing
from rabbitmq_resilience.workload.wire import Connection

#: A consumer acknowledges the last few messages, fewer than ``ack_every``, after this time.
LAST_FEW_S = 0.1


class Consumer(Client):
    """A client with one channel, and one AMQP consumer for each of its queues.

    Without a processing time, the consumer acknowledges all that is recorded at once. With one, it acknowledges
    processed messages ``ack_every`` at a time, and the last few when nothing is left to do. It serves the connection
    meanwhile. Messages in hand when the connection is lost are delivered again. On the order to stop, it acknowledges
    all recorded messages: to process them first would take time and show nothing.

    With ``acks: early`` it acknowledges messages when they arrive, and records them when they are processed. Messages
    in hand when the consumer is killed are lost.
    """

    def __init__(self, session: ClientSession, load: Load, settling: Settling, *, index: int) -> None:
        self._session = session
        self._load = load
        self._index = index
        self._settling = settling
        self._recorded = settling.history.rows
        self._queues = {load.queues[queue].encode(): queue for queue in load.consumer_queues(index)}  # by consumer tag
        self._rebindings = {
            queue: [one for one in load.rebindings if one.queue == queue] for queue in self._queues.values()
        }
        self._waits = load.consumes_at_drain(index)
        self._automatic = load.acks == "automatic"
        self._early = load.acks == "early"
        #: Rows that have arrived. With early acknowledgements they are recorded when they are processed.
        self._arrived: list[Row] = [] if self._early else self._recorded
        self._rejects = load.rejects(index)
        self._to_reject: deque[int] = deque()  # delivery tags that are not settled yet
        processing = load.processing(index)
        takes_time = (processing.plain or 0) > 0 or processing.varies
        self._processing = Processing(processing, now_us=now_us()) if takes_time else None
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._last_tag = 0
        self._done_tag = 0  # up to here messages may be acknowledged
        self._acknowledged_tag = 0
        self._recorded_tag = 0  # used only for early acknowledgements
        self._looked_s = 0.0

    @property
    def tick_s(self) -> float:
        return RARE_TICK_S if self._processing is None else TICK_S

    def begin(self) -> None:
        if not self._waits:
            self._session.begin(self)

    def consume(self) -> None:
        if self._waits:
            self._waits = False
            self._session.begin(self)

    def opened(self, connection: Connection, node: int) -> None:  # noqa: ARG002 - as User has it
        self._connection = connection
        connection.on_delivery = self._on_delivery
        connection.on_data = self._settle
        connection.channel(on_open_callback=self._on_channel)

    def lost(self) -> None:
        self._channel = None
        if self._early:
            self._record(len(self._arrived))
        self._last_tag = self._done_tag = self._acknowledged_tag = self._recorded_tag = 0
        self._to_reject.clear()
        if self._processing is not None:
            self._processing.restart()

    def tick(self) -> None:
        now_s = time.monotonic()
        self._settling.history.tick(now_s)
        if now_s - self._looked_s >= LAST_FEW_S:
            self._looked_s = now_s
            self._work_off(last_few=True)
        elif self._processing is not None:
            self._work_off()

    def vary(self, begins_us: int) -> None:
        if self._processing is not None:
            self._processing.vary(begins_us)

    def stop(self) -> None:
        self._processing = None
        self._work_off(last_few=True)
        self._settling.settle()
        self._session.finish()

    def close(self) -> None:
        self.lost()
        self._session.close()

    def _on_channel(self, channel: Channel) -> None:
        channel.add_on_close_callback(lambda _, reason: self._session.fail(str(reason)))
        channel.add_on_cancel_callback(lambda _: self._session.fail("the broker cancelled a consumer"))
        channel.basic_qos(prefetch_count=self._load.prefetch)
        waiting = set(self._queues)

        def on_consuming(frame: object) -> None:
            waiting.discard(frame.method.consumer_tag.encode())  # type: ignore[attr-defined]
            if not waiting:
                self._session.ready()

        self._channel = channel
        for tag, queue in self._queues.items():
            if self._load.declared_with is not None:
                channel.queue_declare(self._load.queues[queue], **self._load.declared_with)
                for _, exchange, key, arguments in self._rebindings[queue]:
                    channel.queue_bind(self._load.queues[queue], exchange, key, dict(arguments))
            channel.basic_consume(
                self._load.queues[queue],
                _never_called,
                auto_ack=self._automatic,
                consumer_tag=tag.decode(),
                callback=on_consuming,
            )

    def _on_delivery(self, consumer_tag: bytes, delivery_tag: int, redelivered: bool, body: bytes) -> None:
        identity = decode(body)
        queue = self._queues[consumer_tag]
        if identity is None or identity.run != self._load.run:
            self._arrived.append((self._index, 0, queue, 0, now_us(), redelivered, False))
        else:
            _, publisher, sequence = identity
            self._arrived.append((self._index, publisher, queue, sequence, now_us(), redelivered, True))
            if self._rejects is not None and self._rejects(publisher, sequence):
                self._to_reject.append(delivery_tag)
        self._last_tag = delivery_tag

    def _settle(self) -> None:
        """Settle after each chunk of data. With automatic acknowledgement, recording is not urgent."""
        if self._automatic:
            if len(self._recorded) >= FLUSH_ROWS:
                self._settling.settle()
        elif self._processing is not None or self._last_tag - self._acknowledged_tag >= self._load.ack_every:
            self._work_off()

    def _work_off(self, *, last_few: bool = False) -> None:
        """Ask to acknowledge processed messages: ``ack_every`` or more, or with ``last_few`` the last ones of all."""
        done = self._last_tag
        if self._processing is not None:
            done = self._processing.done(self._last_tag, now_us=now_us())
        if self._early:
            self._acknowledge_early(done)
            return
        count = done - max(self._acknowledged_tag, self._done_tag)
        if count >= self._load.ack_every or (last_few and count and done == self._last_tag):
            self._done_tag = done
            self._settling.ask(self)

    def acknowledge(self) -> None:
        """Acknowledge the processed messages, which are recorded by now."""
        if self._done_tag > self._acknowledged_tag:
            self._ack(self._done_tag)

    def _acknowledge_early(self, done: int) -> None:
        """Acknowledge all messages that have arrived, and record those up to ``done``, which are processed."""
        if self._last_tag > self._acknowledged_tag:
            self._ack(self._last_tag)
        self._record(done - self._recorded_tag)
        self._recorded_tag = done

    def _ack(self, tag: int) -> None:
        """Acknowledge all messages up to that tag, except those to reject, and reject these."""
        settled, self._acknowledged_tag = self._acknowledged_tag, tag
        if self._channel is None or not self._channel.is_open or self._automatic:
            return
        while self._to_reject and self._to_reject[0] <= tag:
            rejected = self._to_reject.popleft()
            if rejected - 1 > settled:
                self._channel.basic_ack(rejected - 1, multiple=True)
            self._channel.basic_reject(rejected, requeue=False)
            settled = rejected
        if tag > settled:
            self._channel.basic_ack(tag, multiple=True)

    def _record(self, count: int) -> None:
        """Record the oldest ``count`` of the messages that were acknowledged early."""
        if count:
            self._recorded += self._arrived[:count]
            del self._arrived[:count]
            self._settling.history.flush()


def _never_called(*_: object) -> None:
    raise AssertionError("deliveries are taken out of the stream of frames before pika sees them")


def _serve(folder: Path, name: str, life: int) -> None:
    load = Load.read(folder)
    process = load.process(name)
    host = ClientHost(load, folder, process=process, life=life)
    history = open_history(host, folder, process)
    settling = Settling(history, lambda settle: host.loop.call_later(0, settle))
    host.serve([hosted(host, settling, index) for index in process.clients])
    history.close()


def open_history(host: ClientHost, folder: Path, process: WorkerClients) -> Deliveries:
    """Open the stream of deliveries for this incarnation of the process."""
    return Deliveries(
        deliveries_path(folder, process.name, host.life),
        on_written=lambda consumer, count: host.counters.add(host.load.publishers + consumer, Count.RECORDED, count),
    )


def hosted(host: ClientHost, settling: Settling, index: int) -> Consumer:
    """Return the consumer with this index, on the host of its process."""
    load = host.load
    begins_after_s = 0.0 if load.consumes_at_drain(index) else load.start_spread_s * index / load.consumers
    row = load.publishers + index
    session = ClientSession(host, worker=f"consumer-{index}", row=row, home=index, begins_after_s=begins_after_s)
    return Consumer(session, load, settling, index=index)


if __name__ == "__main__":
    run_worker(_serve)
