"""One publisher process: keeps up to ``in_flight`` messages unconfirmed, and records what became of each."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import numpy as np
from pika import spec
from pika.channel import Channel

from reports.history import PUBLISHES, Outcome, StreamWriter, now_us
from workloads.counters import Count
from workloads.load import Load, publishes_path
from workloads.message import Encoder, decode
from workloads.queues import COPIES
from workloads.session import Session, run_worker
from workloads.wire import Connection, PublishFrames

FLUSH_S = 0.1
FLUSH_ROWS = 4096
#: How much of its rate a publisher may make up for after a pause, for instance of the scheduler.
BURST_S = 0.25
#: Without confirms nothing but the socket limits what is written.
UNSENT_BYTES_MAX = 1 << 18


class Pace:
    """A token bucket: how many messages the target rate allows now. A rate of None allows any number."""

    def __init__(self, rate_per_s: float | None, *, now_s: float) -> None:
        self.change(rate_per_s, now_s=now_s)

    def change(self, rate_per_s: float | None, *, now_s: float) -> None:
        """Keep another rate from now on; what was saved up at the old one is forgotten."""
        self._rate_per_s = rate_per_s
        self._burst = max(1.0, (rate_per_s or 0) * BURST_S)
        self._tokens = 0.0
        self._filled_s = now_s

    def take(self, wanted: int, *, now_s: float) -> int:
        """At most ``wanted`` tokens, fewer if there are fewer."""
        if self._rate_per_s is None:
            return wanted
        self._tokens = min(self._burst, self._tokens + (now_s - self._filled_s) * self._rate_per_s)
        self._filled_s = now_s
        taken = min(wanted, int(self._tokens))
        self._tokens -= taken
        return taken


class Publishes:
    """Rows of the history, collected for one write. Queues follow from the sequences."""

    def __init__(self, path: Path, *, publisher: int, queues: tuple[int, ...]) -> None:
        self._writer = StreamWriter(path, PUBLISHES)
        self._publisher = publisher
        self._queues = np.array(queues, dtype=np.uint16)
        self._clear()

    def _clear(self) -> None:
        self._sequences: list[int] = []
        self._sent_us: list[int] = []
        self._outcomes: list[int] = []
        self._outcomes_us: list[int] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def add(self, sequences: list[int], sent_us: list[int], outcome: Outcome) -> None:
        count = len(sequences)
        self._sequences += sequences
        self._sent_us += sent_us
        self._outcomes += [outcome] * count
        self._outcomes_us += [now_us()] * count

    def flush(self, *, node: int) -> None:
        if not self._sequences:
            return
        sequences = np.array(self._sequences, dtype=np.uint32)
        columns = {
            "publisher": np.full(len(sequences), self._publisher, dtype=np.uint16),
            "queue": self._queues[sequences % len(self._queues)],
            "sequence": sequences,
            "sent_us": np.array(self._sent_us, dtype=np.int64),
            "outcome": np.array(self._outcomes, dtype=np.uint8),
            "outcome_us": np.array(self._outcomes_us, dtype=np.int64),
            "node": np.full(len(sequences), node, dtype=np.uint8),
        }
        self._writer.append(columns)
        self._clear()

    def close(self) -> None:
        self._writer.close()


class Publisher:
    """A ``Client`` of a session. Messages are numbered by sequence, and on each channel by delivery tags from 1."""

    def __init__(self, load: Load, folder: Path, *, index: int, life: int) -> None:
        self._session = Session(
            load,
            folder,
            worker=f"publisher-{index}",
            row=index,
            home=index,
            life=life,
            begins_after_s=load.start_spread_s * index / load.publishers,
        )
        self._session.count(Count.BLOCKED, 0)  # a life before this one may have been killed while it was blocked
        self._load = load
        self._promised_when_written = load.confirms != "awaited"
        self._queues = load.publisher_queues(index)
        self._history = Publishes(publishes_path(folder, index, life), publisher=index, queues=self._queues)
        self._encoder = Encoder(load.run, index, load.payload)
        self._rate = load.rate  # of all publishers together
        self._rate_now = load.rate.plain
        self._pace = Pace(self._own_rate_per_s(), now_s=time.monotonic())
        self._next = self._session.counted(Count.SENT)
        self._before_first = self._next - 1  # the sequence that would have the tag 0
        self._pending: dict[int, int] = {}  # delivery tag to time of sending, in the order of tags
        self._returned: set[int] = set()  # sequences
        self._connection: Connection | None = None  # None while it is of no use
        self._frames: list[PublishFrames] = []
        self._node = 0
        self._flushed_s = 0.0
        self._blocked = False
        self._unblocked_us = 0
        self._stopping = False

    def run(self) -> None:
        self._session.run(self)

    # What the session calls.

    def opened(self, connection: Connection, node: int) -> None:
        connection.add_on_connection_blocked_callback(lambda *_: self._block(True))
        connection.add_on_connection_unblocked_callback(lambda *_: self._block(False))
        connection.channel(on_open_callback=lambda channel: self._on_channel(connection, channel, node))

    def lost(self) -> None:
        self._connection = None
        if self._blocked:
            self._block(False)
        self._resolve(list(self._pending), Outcome.UNKNOWN)
        self._flush()

    def tick(self) -> None:
        now_s = time.monotonic()
        if now_s - self._flushed_s >= FLUSH_S:
            self._flushed_s = now_s
            self._flush()
            self._check_patience()
        if self._rate.begins_us is not None:
            self._keep_up(now_s)
        self._publish()

    def vary(self, begins_us: int) -> None:
        self._rate = replace(self._rate, begins_us=begins_us)

    def stop(self) -> None:
        self._stopping = True
        self._publish()

    def close(self) -> None:
        self.lost()
        self._history.close()

    # What the connection calls.

    def _on_channel(self, connection: Connection, channel: Channel, node: int) -> None:
        channel.add_on_close_callback(lambda _, reason: self._session.fail(str(reason)))
        channel.add_on_return_callback(self._on_return)
        payload, frame_max_bytes = self._encoder.payload, connection.params.frame_max
        every = self._load.copy_every
        self._frames = [  # in the order of sequences, until it is the same again
            PublishFrames(
                channel=channel.channel_number,
                queue=self._load.queues[self._queues[place % len(self._queues)]],
                payload=payload,
                persistent=self._load.persistent,
                frame_max_bytes=frame_max_bytes,
                copied_to=COPIES if every and place % every == 0 else None,
            )
            for place in range(len(self._queues) * (every or 1))
        ]
        if self._load.confirms == "none":
            self._on_ready(connection, node)
            return
        heeded = self._load.confirms == "awaited"
        connection.on_confirm = self._on_confirm if heeded else _unheeded
        connection.on_data = self._publish if heeded else None
        on_nack = self._on_nack if heeded else _unheeded
        channel.confirm_delivery(on_nack, callback=lambda _: self._on_ready(connection, node))

    def _on_ready(self, connection: Connection, node: int) -> None:
        self._before_first = self._next - 1
        self._connection, self._node = connection, node
        self._session.ready()
        self._publish()

    def _on_confirm(self, tag: int, multiple: bool) -> None:
        self._resolve(self._tags(tag, multiple), Outcome.CONFIRMED)

    def _on_nack(self, frame: object) -> None:
        method = frame.method  # type: ignore[attr-defined]
        outcome = Outcome.NACKED if isinstance(method, spec.Basic.Nack) else Outcome.CONFIRMED
        self._resolve(self._tags(method.delivery_tag, method.multiple), outcome)

    def _on_return(self, _channel: Channel, _method: object, _properties: object, body: bytes) -> None:
        """A message that no queue took comes back before its confirm."""
        identity = decode(body)
        if identity is not None:
            self._returned.add(identity.sequence)

    def _block(self, blocked: bool) -> None:
        self._blocked = blocked
        self._unblocked_us = now_us()
        self._session.count(Count.BLOCKED, int(blocked))
        self._session.record("blocked" if blocked else "unblocked")

    # What follows from that.

    def _own_rate_per_s(self) -> float | None:
        return None if self._rate_now is None else self._rate_now / self._load.publishers

    def _keep_up(self, now_s: float) -> None:
        """Take the target that holds now, if it is another one."""
        rate_now = self._rate.at(now_us())
        if rate_now != self._rate_now:
            self._rate_now = rate_now
            self._pace.change(self._own_rate_per_s(), now_s=now_s)

    def _tags(self, tag: int, multiple: bool) -> list[int]:
        if not multiple:
            return [tag] if tag in self._pending else []
        return list(takewhile(lambda pending: pending <= tag, self._pending))

    def _resolve(self, tags: list[int], outcome: Outcome) -> None:
        if not tags:
            return
        sequences = [self._before_first + tag for tag in tags]
        sent_us = [self._pending.pop(tag) for tag in tags]
        if self._returned and outcome is Outcome.CONFIRMED:
            for sequence, sent in zip(sequences, sent_us, strict=True):
                self._add([sequence], [sent], Outcome.RETURNED if sequence in self._returned else outcome)
            self._returned.difference_update(sequences)
        else:
            self._add(sequences, sent_us, outcome)

    def _add(self, sequences: list[int], sent_us: list[int], outcome: Outcome) -> None:
        self._history.add(sequences, sent_us, outcome)
        self._session.add(_COUNTED_AS[outcome], len(sequences))
        if len(self._history) >= FLUSH_ROWS:
            self._flush()

    def _flush(self) -> None:
        self._history.flush(node=self._node)

    def _publish(self) -> None:
        """Send as many messages as the limit in flight and the rate allow, in one go."""
        connection = self._connection
        if self._stopping:
            if not self._pending:
                self._session.finish()
            return
        if connection is None or self._blocked or not connection.is_open:
            return
        room = self._load.in_flight - len(self._pending)
        if self._promised_when_written and connection.unsent_bytes > UNSENT_BYTES_MAX:
            room = 0
        count = self._pace.take(room, now_s=time.monotonic()) if room > 0 else 0
        if count > 0:
            self._send(connection, range(self._next, self._next + count))

    def _send(self, connection: Connection, sequences: range) -> None:
        sent_us = now_us()
        self._session.count(Count.SENT_US, sent_us)
        self._session.count(Count.SENT, sequences.stop)  # before the first byte is written
        self._next = sequences.stop
        frames, header = self._frames, self._encoder.header
        if len(frames) == 1:
            marshal = frames[0].marshal
            connection.write_messages([marshal(header(sequence)) for sequence in sequences])
        else:
            connection.write_messages([frames[s % len(frames)].marshal(header(s)) for s in sequences])
        first_tag = sequences.start - self._before_first
        self._pending.update(dict.fromkeys(range(first_tag, first_tag + len(sequences)), sent_us))
        if self._promised_when_written:
            self._resolve(list(self._pending), Outcome.CONFIRMED)

    def _check_patience(self) -> None:
        if self._connection is None or self._blocked or self._stopping or not self._pending:
            return  # one that stops sends nothing more, so another node would be of no use to it
        since_us = max(next(iter(self._pending.values())), self._unblocked_us)  # a blocked one is not even read
        waited_s = (now_us() - since_us) / 1e6
        if waited_s > self._load.confirm_timeout_s:
            self._session.fail(f"no confirm for {waited_s:.1f} s")


def _unheeded(*_: object) -> None:
    """What a publisher does with confirms that it ignores."""


_COUNTED_AS = {
    Outcome.CONFIRMED: Count.CONFIRMED,
    Outcome.NACKED: Count.REFUSED,
    Outcome.RETURNED: Count.REFUSED,
    Outcome.UNKNOWN: Count.UNKNOWN,
}


def _serve(folder: Path, index: int, life: int) -> None:
    Publisher(Load.read(folder), folder, index=index, life=life).run()


if __name__ == "__main__":
    run_worker(_serve)
