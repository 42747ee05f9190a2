"""Read the copies of a tap on standard input, and record what they say: ``python -m ...recorder FOLDER PROPERTIES``.

Copies hold credentials. They are only in memory: rows and events are all that is written, and the properties of
messages if PROPERTIES is ``values``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rabbitmq_resilience.history.event_log import EventLog
from rabbitmq_resilience.tap.amqp_methods import Side
from rabbitmq_resilience.tap.conversation import Conversation
from rabbitmq_resilience.tap.copied_bytes import Copied, Copy, read_copies
from rabbitmq_resilience.tap.message_identity import KEY_VARIABLE, Hashes
from rabbitmq_resilience.tap.wire_history import EVENTS_FILE, PropertiesWriter, WireWriter

#: Rows are written this long after they were made, or a little later.
_FLUSH_EVERY_S = 0.25


class Recorder:
    """Record the conversations of all connections of a tap into a folder. ``key``: that of all hashes. ``values``: with
    the properties of messages."""

    def __init__(self, folder: Path, key: bytes, *, values: bool = False) -> None:
        self._rows = WireWriter(folder)
        self._properties = PropertiesWriter(folder) if values else None
        self._events = EventLog(folder / EVENTS_FILE)
        self._hashes = Hashes(key)
        self._open: dict[int, Conversation] = {}
        self._flushed_us = 0

    def take(self, copy: Copy) -> None:
        """Record one copy."""
        if copy.what is Copied.REMARK:
            self._remark(copy.connection, copy.t_us, copy.remark)
        elif copy.connection in self._open:
            self._open[copy.connection].feed(Side(int(copy.what)), copy.data, t_us=copy.t_us)
        if copy.t_us - self._flushed_us > _FLUSH_EVERY_S * 1e6:
            self.flush()
            self._flushed_us = copy.t_us

    def flush(self) -> None:
        """Write all rows so far."""
        self._rows.flush()
        if self._properties is not None:
            self._properties.flush()

    def close(self) -> None:
        self._rows.close()
        if self._properties is not None:
            self._properties.close()
        self._events.__exit__(None, None, None)

    def _remark(self, connection: int, t_us: int, remark: dict[str, Any]) -> None:
        what = remark.pop("what")
        if what == "opened":
            self._open[connection] = self._conversation(connection)
        elif what in {"closed", "not_copied"} and (ended := self._open.pop(connection, None)) is not None:
            ended.ended(t_us=t_us)
        self._say(connection, what, t_us, remark.pop("channel", 0), remark)

    def _conversation(self, connection: int) -> Conversation:
        def event(what: str, t_us: int, channel: int, fields: Mapping[str, Any]) -> None:
            self._say(connection, what, t_us, channel, fields)

        kept = {} if self._properties is None else {"keep": self._properties.add}
        return Conversation(connection, self._hashes, self._rows.add, event, **kept)

    def _say(self, connection: int, what: str, t_us: int, channel: int, fields: Mapping[str, Any]) -> None:
        self._events.record("wire", t_us=t_us, connection=connection, channel=channel, what=what, fields=dict(fields))


#: Copies come many at a time. While all of them are read in one go, the process that forwards, or a client, may have to
#: wait for a processor for as long: for 2 ms in one of a hundred messages, where less than 1 ms is wanted.
_let_others_run = getattr(os, "sched_yield", lambda: None)


def main(folder: Path, properties: str) -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)  # the end of the input ends it, so that the record is whole
    recorder = Recorder(folder, bytes.fromhex(os.environ[KEY_VARIABLE]), values=properties == "values")
    try:
        for copy in read_copies(sys.stdin.fileno(), idle_s=_FLUSH_EVERY_S):
            if copy is None:
                recorder.flush()
            else:
                recorder.take(copy)
                _let_others_run()
    finally:
        recorder.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
