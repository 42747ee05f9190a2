"""One consumer process: records each delivery as it arrives, and only then, when it is processed, acknowledges it (or,
if that is asked for, the other way round, which is not safe)."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from pika.channel import Channel

from reports.history import DELIVERIES, StreamWriter, now_us
from workloads.counters import Count
from workloads.load import Load, deliveries_path
from workloads.message import decode
from workloads.processing import Processing
from workloads.session import Session, run_worker
from workloads.wire import Connection

#: The last few messages, fewer than ``ack_every``, are acknowledged after this time.
FLUSH_S = 0.1
FLUSH_ROWS = 4096


class Deliveries:
    """Rows of the history, collected for one write."""

    def __init__(self, path: Path, *, consumer: int) -> None:
        self._writer = StreamWriter(path, DELIVERIES)
        self._consumer = consumer
        self.rows: list[tuple[int, int, int, int, bool, bool]] = []

    def flush(self, count: int) -> None:
        """Write the first ``count`` rows, which must be there."""
        publisher, queue, sequence, received_us, redelivered, intact = zip(*self.rows[:count], strict=True)
        columns = {
            "consumer": np.full(count, self._consumer, dtype=np.uint16),
            "publisher": np.array(publisher, dtype=np.uint16),
            "queue": np.array(queue, dtype=np.uint16),
            "sequence": np.array(sequence, dtype=np.uint32),
            "received_us": np.array(received_us, dtype=np.int64),
            "redelivered": np.array(redelivered, dtype=np.bool_),
            "intact": np.array(intact, dtype=np.bool_),
        }
        self._writer.append(columns)
        del self.rows[:count]

    def close(self) -> None:
        self._writer.close()


class Consumer:
    """A ``Client`` of a session, with one channel and one AMQP consumer a queue.

    Without a time to process messages, all that is recorded is acknowledged at once. With one, they are acknowledged
    ``ack_every`` together as they are done, the last few when nothing is left to do; the connection is served
    meanwhile. What is in hand when the connection is lost comes again. When told to stop, it acknowledges whatever it
    has recorded: to work that off first would keep everybody waiting, and tell nothing.

    With ``acks: early`` everything is acknowledged as it arrives, and recorded when it is processed: what a consumer
    has in hand when it is killed is gone.
    """

    def __init__(self, load: Load, folder: Path, *, index: int, life: int) -> None:
        self._session = Session(
            load,
            folder,
            worker=f"consumer-{index}",
            row=load.publishers + index,
            home=index,
            life=life,
            begins_after_s=load.start_spread_s * index / load.consumers,
        )
        self._load = load
        self._history = Deliveries(deliveries_path(folder, index, life), consumer=index)
        self._queues = {load.queues[queue].encode(): queue for queue in load.consumer_queues(index)}  # by consumer tag
        self._automatic = load.acks == "automatic"
        self._early = load.acks == "early"
        takes_time = load.processing_ms > 0 or load.processing.varies
        self._processing = Processing(load.processing, now_us=now_us()) if takes_time else None
        self._channel: Channel | None = None
        self._last_tag = 0
        self._acknowledged_tag = 0
        self._recorded_tag = 0  # told only of early acknowledgements
        self._flushed_s = 0.0

    def run(self) -> None:
        self._session.run(self)

    def opened(self, connection: Connection, node: int) -> None:  # noqa: ARG002
        connection.on_delivery = self._on_delivery
        connection.on_data = self._settle
        connection.channel(on_open_callback=self._on_channel)

    def lost(self) -> None:
        self._channel = None
        self._record()
        self._last_tag = self._acknowledged_tag = self._recorded_tag = 0
        if self._processing is not None:
            self._processing.begin_anew()

    def tick(self) -> None:
        now_s = time.monotonic()
        if now_s - self._flushed_s >= FLUSH_S:
            self._flushed_s = now_s
            if not self._early:
                self._record()
            self._acknowledge(last_few=True)
        elif self._processing is not None:
            self._acknowledge()

    def vary(self, begins_us: int) -> None:
        if self._processing is not None:
            self._processing.vary(begins_us)

    def stop(self) -> None:
        self._processing = None
        self._acknowledge(last_few=True)
        self._session.finish()

    def close(self) -> None:
        self.lost()
        self._history.close()

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
            self._history.rows.append((0, queue, 0, now_us(), redelivered, False))
        else:
            _, publisher, sequence = identity
            self._history.rows.append((publisher, queue, sequence, now_us(), redelivered, True))
        self._last_tag = delivery_tag

    def _settle(self) -> None:
        """After each chunk of data. Automatic acknowledgement has no reason to hurry with the record."""
        if self._automatic:
            if len(self._history.rows) >= FLUSH_ROWS:
                self._record()
        elif self._processing is not None or len(self._history.rows) >= self._load.ack_every:
            self._acknowledge()

    def _record(self, count: int | None = None) -> None:
        """The oldest ``count`` that are not recorded yet, all of them by default."""
        count = len(self._history.rows) if count is None else count
        if count:
            self._history.flush(count)
            self._session.add(Count.RECEIVED, count)

    def _acknowledge(self, *, last_few: bool = False) -> None:
        """Acknowledge what is done, if that is ``ack_every`` or, where ``last_few`` will do, all there is; but first
        record it."""
        done = self._last_tag
        if self._processing is not None:
            done = self._processing.done(self._last_tag, now_us=now_us())
        if self._early:
            self._acknowledge_early(done)
            return
        count = done - self._acknowledged_tag
        if count < self._load.ack_every and not (last_few and count and done == self._last_tag):
            return
        self._record()
        if self._channel is not None and self._channel.is_open and not self._automatic:
            self._channel.basic_ack(done, multiple=True)
        self._acknowledged_tag = done

    def _acknowledge_early(self, done: int) -> None:
        """All that has arrived, whatever is done with it; only what is done is recorded."""
        if self._channel is not None and self._channel.is_open and self._last_tag > self._acknowledged_tag:
            self._channel.basic_ack(self._last_tag, multiple=True)
            self._acknowledged_tag = self._last_tag
        self._record(done - self._recorded_tag)
        self._recorded_tag = done


def _never_called(*_: object) -> None:
    raise AssertionError("deliveries are taken out of the stream of frames before pika sees them")


def _serve(folder: Path, index: int, life: int) -> None:
    Consumer(Load.read(folder), folder, index=index, life=life).run()


if __name__ == "__main__":
    run_worker(_serve)
