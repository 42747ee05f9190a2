"""Stand-ins for the session and the connection of a publisher, and a publisher on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rabbitmq_resilience.history.history import PUBLISHES, Outcome, StreamReader
from rabbitmq_resilience.workload.counters import Count
from rabbitmq_resilience.workload.load import publishes_path, under_way_path
from rabbitmq_resilience.workload.under_way import left_under_way
from tests.workloads import hosted


@dataclass
class Notes:
    """Stands in for a session."""

    counts: Counter[Count] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    #: Whether it was to wait until all is read, each time that it was told to finish.
    finished: list[bool] = field(default_factory=list)
    calls: list[tuple[int, Callable[[], None]]] = field(default_factory=list)

    def counted(self, count: Count) -> int:
        return self.counts[count]

    def count(self, count: Count, value: int) -> None:
        self.counts[count] = value

    def add(self, count: Count, value: int) -> None:
        self.counts[count] += value

    def call_at(self, at_us: int, callback: Callable[[], None]) -> None:
        self.calls.append((at_us, callback))

    def fail(self, reason: str) -> None:
        self.failures.append(reason)

    def finish(self, *, all_read: bool = False) -> None:
        self.finished.append(all_read)

    def ready(self) -> None: ...

    def close(self) -> None: ...

    def record(self, event: str, *, detail: str = "") -> None:  # noqa: ARG002 - one form for all
        self.events.append(event)


class Wire:
    """Stands in for a connection."""

    is_open = True
    unsent_bytes = 0
    on_confirm: Callable[[int, int, bool], None]
    on_nack: Callable[[object], None]
    on_data: Callable[[], None]
    on_blocked: Callable[[], None]
    on_unblocked: Callable[[], None]
    on_return: Callable[[Any, Any, Any, bytes], None]
    asked_for_confirms = False

    def __init__(self, notes: Notes) -> None:
        self.params = SimpleNamespace(frame_max=131_072)
        self.messages: list[bytes] = []
        self._notes = notes
        self.channels = 0

    @property
    def written(self) -> int:
        return len(self.messages)

    def add_on_connection_blocked_callback(self, callback: Callable[[], None]) -> None:
        self.on_blocked = callback

    def add_on_connection_unblocked_callback(self, callback: Callable[[], None]) -> None:
        self.on_unblocked = callback

    def keep_on_return(self, callback: Callable[[Any, Any, Any, bytes], None]) -> None:
        self.on_return = callback

    def channel(self, *, on_open_callback: Callable[[Any], None]) -> None:
        self.channels += 1
        on_open_callback(
            SimpleNamespace(
                channel_number=self.channels,
                add_on_close_callback=id,
                add_on_return_callback=self.keep_on_return,
                confirm_delivery=self._confirm_delivery,
            )
        )

    def _confirm_delivery(self, on_nack: Callable[[object], None], callback: Callable[[object], None]) -> None:
        self.asked_for_confirms, self.on_nack = True, on_nack
        callback(None)

    def close(self) -> None:
        """Channels of the next connection have their own numbers and tags."""
        self.channels = 0

    def write_messages(self, messages: list[bytes]) -> None:
        self.messages += messages
        assert self._notes.counts[Count.SENT] >= self.written, "what is written was counted before"


@dataclass
class Rig:
    folder: Path
    publisher: Any
    notes: Notes
    wire: Wire
    closed: bool = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            hosted.close(self.publisher)

    def rows(self) -> dict[int, Outcome]:
        """The outcomes on record after the connection was lost for good."""
        self.publisher.lost()
        self.publisher.history.flush()
        batches = StreamReader(publishes_path(self.folder, "publisher-0", 0), PUBLISHES).batches()
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert len({row["sequence"] for row in rows}) == len(rows)
        return {row["sequence"]: Outcome(row["outcome"]) for row in rows}

    def sent_us(self) -> int:
        """Return when the oldest message under way was sent."""
        under_way = left_under_way(under_way_path(self.folder, "publisher-0", 0))
        return min(int(place["sent_us"]) for place in under_way)

    def connect(self) -> None:
        self.wire.close()
        self.publisher.opened(self.wire, 0)

    def confirm(self, tag: int, multiple: bool, *, channel: int = 1) -> None:
        self.wire.on_confirm(channel, tag, multiple)
