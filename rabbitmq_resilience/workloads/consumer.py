"""Consumers: each records a delivery as it arrives, and only then, when it is processed, acknowledges it (or, if that
is asked for, the other way round, which is not safe)."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

from pika.channel import Channel

from rabbitmq_resilience.record.history import now_us
from rabbitmq_resilience.workloads.counters import Count
from rabbitmq_resilience.workloads.deliveries import FLUSH_ROWS, Deliveries, Row, Settling
from rabbitmq_resilience.workloads.host import RARE_TICK_S, TICK_S, Client, Host, run_worker
from rabbitmq_resilience.workloads.load import Load, Process, deliveries_path
from rabbitmq_resilience.workloads.message import decode
from rabbitmq_resilience.workloads.processing import Processing
from rabbitmq_resilience.workloads.session import Session
from rabbitmq_resilience.workloads.wire import Connection

#: The last few messages, fewer than ``ack_every``, are acknowledged after this time.
LAST_FEW_S = 0.1


class Consumer(Client):
    """A client of its process, with one channel and one AMQP consumer a queue.

    Without a time to process messages, all that is recorded is acknowledged at once. With one, they are acknowledged
    ``ack_every`` together as they are done, the last few when nothing is left to do; the connection is served
    meanwhile. What is in hand when the connection is lost comes again. When told to stop, it acknowledges whatever it
    has recorded: to work that off first would keep everybody waiting, and tell nothing.

    With ``acks: early`` everything is acknowledged as it arrives, and recorded when it is processed: what a consumer
    has in hand when it is killed is gone.
    """

    def __init__(self, session: Session, load: Load, settling: Settling, *, index: int) -> None:
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
        #: What has arrived: where it is acknowledged early, it is recorded when it is done.
        self._arrived: list[Row] = [] if self._early else self._recorded
        self._rejects = load.rejects(index)
        self._to_reject: deque[int] = deque()  # delivery tags, of what is not settled yet
        processing = load.processing(index)
        takes_time = (processing.plain or 0) > 0 or processing.varies
        self._processing = Processing(processing, now_us=now_us()) if takes_time else None
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._last_tag = 0
        self._done_tag = 0  # what may be acknowledged
        self._acknowledged_tag = 0
        self._recorded_tag = 0  # told only of early acknowledgements
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

    def opened(self, connection: Connection, node: int) -> None:  # noqa: ARG002 - one form for all
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
            self._processing.begin_anew()

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
        """After each chunk of data. Automatic acknowledgement has no reason to hurry with the record."""
        if self._automatic:
            if len(self._recorded) >= FLUSH_ROWS:
                self._settling.settle()
        elif self._processing is not None or self._last_tag - self._acknowledged_tag >= self._load.ack_every:
            self._work_off()

    def _work_off(self, *, last_few: bool = False) -> None:
        """Ask to acknowledge what is done, if that is ``ack_every`` or, where ``last_few`` will do, all there is."""
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
        """What is done; it is recorded."""
        if self._done_tag > self._acknowledged_tag:
            self._ack(self._done_tag)

    def _acknowledge_early(self, done: int) -> None:
        """All that has arrived, whatever is done with it; only what is done is recorded."""
        if self._last_tag > self._acknowledged_tag:
            self._ack(self._last_tag)
        self._record(done - self._recorded_tag)
        self._recorded_tag = done

    def _ack(self, tag: int) -> None:
        """All up to that one, but for what is to be rejected."""
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
        """The oldest ``count`` of those that are acknowledged early."""
        if count:
            self._recorded += self._arrived[:count]
            del self._arrived[:count]
            self._settling.history.flush()


def _never_called(*_: object) -> None:
    raise AssertionError("deliveries are taken out of the stream of frames before pika sees them")


def _serve(folder: Path, name: str, life: int) -> None:
    load = Load.read(folder)
    process = load.process(name)
    host = Host(load, folder, process=process, life=life)
    history = open_history(host, folder, process)
    settling = Settling(history, lambda settle: host.loop.call_later(0, settle))
    host.serve([hosted(host, settling, index) for index in process.clients])
    history.close()


def open_history(host: Host, folder: Path, process: Process) -> Deliveries:
    """The stream of this life of the process."""
    return Deliveries(
        deliveries_path(folder, process.name, host.life),
        on_written=lambda consumer, count: host.counters.add(host.load.publishers + consumer, Count.RECORDED, count),
    )


def hosted(host: Host, settling: Settling, index: int) -> Consumer:
    """The consumer of this index in its process."""
    load = host.load
    begins_after_s = 0.0 if load.consumes_at_drain(index) else load.start_spread_s * index / load.consumers
    row = load.publishers + index
    session = Session(host, worker=f"consumer-{index}", row=row, home=index, begins_after_s=begins_after_s)
    return Consumer(session, load, settling, index=index)


if __name__ == "__main__":
    run_worker(_serve)
