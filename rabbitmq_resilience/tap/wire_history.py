"""Define what a tap records of messages: one Arrow stream of rows, in the order in which the client's side saw them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from rabbitmq_resilience.history.history import StreamWriter

WIRE_FILE = "tap.wire.arrows"
EVENTS_FILE = "tap.jsonl"
#: Not ``.jsonl``, as those files of a history hold numbered events.
PROPERTIES_FILE = "tap.properties.ndjson"

#: A batch is written when it has as many rows.
BATCH_ROWS = 2_000


class Kind(IntEnum):
    """What a row says of messages."""

    PUBLISHED = 0
    CONFIRMED = 1
    NACKED = 2
    RETURNED = 3
    DELIVERED = 4
    #: Delivered as the answer to ``basic.get``.
    GOT = 5
    ACKED = 6
    REJECTED = 7
    COMMITTED = 8
    ROLLED_BACK = 9


class Mode(IntEnum):
    """What the channel of a publish was set to, or whether a delivery needs no acknowledgement."""

    PLAIN = 0
    CONFIRMS = 1
    TRANSACTIONS = 2
    AUTOMATIC = 3


class Row(NamedTuple):
    """One row. Fields that its kind does not have are 0 or empty.

    - ``connection``: a number of the tap's. ``session``: the number of the channel in its connection, in the order in
      which channels were opened; a channel that is opened again has another one.
    - ``tag``: the delivery tag; of a publish with confirms the number that its confirm will have, and in
      transactions its number on the channel; of a transaction's end the last number that belongs to it; otherwise 0.
    - ``multiple``: all tags up to this one. ``flag``: of a publish and a return mandatory, of a delivery redelivered,
      of a rejection requeue.
    - ``place``: the exchange of a publish or a return, the queue of a delivery; empty if it is not known.
      ``recorded_text`` says how this and ``routing_key`` are written if they are no UTF-8.
    - ``priority``: that of the message; 0 if it states none. ``expires``: whether it has a time to live of its own.
    - ``size_bytes``, ``body``: length and checksum of the body. ``identity``: what distinguishes the message from
      others; from its message_id if it is ``named``. Both are hashes with a key that is kept nowhere.
    """

    t_us: int
    connection: int
    session: int
    kind: Kind
    tag: int = 0
    multiple: bool = False
    flag: bool = False
    mode: Mode = Mode.PLAIN
    persistent: bool = False
    place: str = ""
    routing_key: str = ""
    size_bytes: int = 0
    body: int = 0
    identity: int = 0
    named: bool = False
    expires: bool = False
    priority: int = 0


WIRE = pa.schema(
    [
        ("t_us", pa.int64()),
        ("connection", pa.uint32()),
        ("session", pa.uint32()),
        ("kind", pa.uint8()),
        ("tag", pa.uint64()),
        ("multiple", pa.bool_()),
        ("flag", pa.bool_()),
        ("mode", pa.uint8()),
        ("persistent", pa.bool_()),
        ("place", pa.string()),
        ("routing_key", pa.string()),
        ("size_bytes", pa.uint64()),
        ("body", pa.uint64()),
        ("identity", pa.uint64()),
        ("named", pa.bool_()),
        ("expires", pa.bool_()),
        ("priority", pa.uint8()),
    ]
)


class WireWriter:
    """Write rows to the stream in a folder, in batches."""

    def __init__(self, folder: Path) -> None:
        self._stream = StreamWriter(folder / WIRE_FILE, WIRE)
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the rows so far; they are in the kernel then."""
        if self._rows:
            columns: dict[str, Any] = dict(zip(WIRE.names, zip(*self._rows, strict=True), strict=True))
            self._rows = []
            self._stream.append(columns)

    def close(self) -> None:
        self.flush()
        self._stream.close()


class PropertiesWriter:
    """Write the properties of messages to a file in a folder, one message a line: the fields by which its row is found,
    and its properties by their names in AMQP. Numbers with fractions are in hexadecimal digits."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / PROPERTIES_FILE).open("a", encoding="ascii")

    def add(self, row: Row, values: Mapping[str, Any]) -> None:
        named = {name: getattr(row, name) for name in ("t_us", "connection", "session", "tag", "identity")}
        self._file.write(json.dumps({**named, "kind": row.kind.name, "properties": values}) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
