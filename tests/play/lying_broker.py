"""A broker that lies about one message: an AMQP 0-9-1 proxy between our clients and real brokers.

::

    python -m tests.play.lying_broker LIE (--at N | --one-in N --seed S) --told FILE PORT [PORT ...]

It listens on 127.0.0.1, once for each broker's port, and prints these ports in one line. Everything passes as it is but
the message at which it strikes: the Nth that the lie is about, counted over all connections, or one in N by chance. Of
each it tells the publisher and the sequence, as a JSON line in FILE.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pika import frame, spec

from rabbitmq_resilience.workload.message import decode

#: Small, as each frame is cut out of what was read at once.
READ_BYTES = 1 << 14


@dataclass
class Unit:
    """One method with the content that belongs to it, or any other frame. ``frames`` are as they were on the wire."""

    first: Any
    frames: list[bytes]
    body: bytes = b""

    @property
    def method(self) -> Any:
        return getattr(self.first, "method", None)

    @property
    def wire(self) -> bytes:
        return b"".join(self.frames)


class Cutter:
    """Cuts one direction of a connection into units. What carries content is held until that is complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._open: dict[int, tuple[Unit, int]] = {}  # by channel, with the bytes of body that are to come

    def cut(self, data: bytes) -> Iterator[Unit]:
        self._rest += data
        at = 0
        while True:
            size_bytes, decoded = frame.decode_frame(self._rest[at:])
            if decoded is None:
                break
            raw = self._rest[at : at + size_bytes]
            at += size_bytes
            if (unit := self._complete(decoded, raw)) is not None:
                yield unit
        self._rest = self._rest[at:]

    def _complete(self, decoded: Any, raw: bytes) -> Unit | None:
        if isinstance(decoded, frame.Method) and spec.has_content(decoded.method.INDEX):
            self._open[decoded.channel_number] = Unit(decoded, [raw]), 0
            return None
        if not isinstance(decoded, frame.Header | frame.Body):
            return Unit(decoded, [raw])
        unit, left_bytes = self._open.pop(decoded.channel_number)
        unit.frames.append(raw)
        if isinstance(decoded, frame.Header):
            left_bytes = decoded.body_size
        else:
            unit.body += decoded.fragment
            left_bytes -= len(decoded.fragment)
        if left_bytes:
            self._open[decoded.channel_number] = unit, left_bytes
            return None
        return unit


@dataclass
class Conversation:
    """One client's connection. ``published`` are the messages that it sent, by delivery tag from 1 on (one channel, as
    our clients have)."""

    client: asyncio.StreamWriter
    published: list[bytes] = field(default_factory=list)
    held: Unit | None = None
    broken_off: bool = False


@dataclass
class Liar:
    lie: str
    strikes: Callable[[int], bool]
    told: Path
    seen: int = 0

    def is_now(self) -> bool:
        """To be asked once for each message that the lie could be about."""
        self.seen += 1
        return self.strikes(self.seen)

    def tell(self, body: bytes) -> None:
        identity = decode(body)
        assert identity is not None, "a message that is not ours"
        with self.told.open("a", encoding="utf-8") as file:
            row = {"lie": self.lie, "publisher": identity.publisher, "sequence": identity.sequence}
            file.write(json.dumps(row) + "\n")

    def from_broker(self, unit: Unit, conversation: Conversation) -> bytes:
        """What the client is given for it."""
        if isinstance(unit.method, spec.Basic.Deliver) and self.lie in _OF_DELIVERIES:
            if conversation.held is not None:
                held, conversation.held = conversation.held, None
                return b"".join([held.frames[0], *unit.frames[1:], unit.frames[0], *held.frames[1:]])
            if self.is_now():
                self.tell(unit.body)
                return _OF_DELIVERIES[self.lie](unit, conversation)
        refused = isinstance(unit.method, spec.Basic.Nack) and self.lie == "confirm_what_is_refused"
        if refused and self.is_now():
            tag = unit.method.delivery_tag
            self.tell(conversation.published[tag - 1])
            others = unit.wire if unit.method.multiple else b""
            return _confirm(unit, tag) + others
        return unit.wire

    def from_client(self, unit: Unit, conversation: Conversation) -> bytes:
        """What the broker is given for it."""
        if not isinstance(unit.method, spec.Basic.Publish):
            return unit.wire
        conversation.published.append(unit.body)
        if self.lie != "confirm_what_is_not_forwarded" or not self.is_now():
            return unit.wire
        self.tell(unit.body)
        conversation.client.write(_confirm(unit, len(conversation.published)))
        conversation.broken_off = True
        return b""


def _confirm(unit: Unit, tag: int) -> bytes:
    marshalled: bytes = frame.Method(unit.first.channel_number, spec.Basic.Ack(tag)).marshal()
    return marshalled


def _drop(unit: Unit, conversation: Conversation) -> bytes:  # noqa: ARG001 - one form for all
    """The client's next acknowledgement covers it too, so that the broker forgets it."""
    return b""


def _duplicate(unit: Unit, conversation: Conversation) -> bytes:  # noqa: ARG001
    return unit.wire * 2


def _reorder(unit: Unit, conversation: Conversation) -> bytes:
    """It is held until the next delivery comes, and the two change places."""
    conversation.held = unit
    return b""


def _corrupt(unit: Unit, conversation: Conversation) -> bytes:  # noqa: ARG001
    """One bit of the body's last byte."""
    last = bytearray(unit.frames[-1])
    last[-2] ^= 1
    return b"".join([*unit.frames[:-1], bytes(last)])


_OF_DELIVERIES = {"drop": _drop, "duplicate": _duplicate, "reorder": _reorder, "corrupt": _corrupt}
LIES = (*_OF_DELIVERIES, "confirm_what_is_refused", "confirm_what_is_not_forwarded")


async def converse(liar: Liar, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serves one client until either side is gone."""
    broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", port)
    conversation = Conversation(writer)

    async def pass_on(
        source: asyncio.StreamReader, target: asyncio.StreamWriter, told: Callable[[Unit, Conversation], bytes]
    ) -> None:
        cutter = Cutter()
        while not conversation.broken_off and (data := await source.read(READ_BYTES)):
            for unit in cutter.cut(data):
                if not conversation.broken_off:
                    target.write(told(unit, conversation))
            await target.drain()

    directions = [
        asyncio.ensure_future(pass_on(reader, broker_writer, liar.from_client)),
        asyncio.ensure_future(pass_on(broker_reader, writer, liar.from_broker)),
    ]
    try:
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        broker_writer.close()
        if conversation.broken_off:  # a reset could overtake the confirm: let the client read it, then the end
            writer.write_eof()
            while await reader.read(READ_BYTES):
                pass
    except OSError:
        pass  # the client is gone already
    finally:
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        broker_writer.close()
        writer.close()


async def serve(liar: Liar, ports: list[int]) -> None:
    servers = [await asyncio.start_server(partial(converse, liar, port), "127.0.0.1", 0) for port in ports]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("lie", choices=[*LIES, "none"])
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--at", type=int, default=0, help="the number of the message, from 1 on")
    when.add_argument("--one-in", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--told", type=Path, required=True)
    parser.add_argument("ports", type=int, nargs="+")
    given = parser.parse_args()
    chance = random.Random(given.seed)  # noqa: S311 - a seeded choice, no secret

    def strikes(number: int) -> bool:
        return number == given.at if given.one_in is None else chance.randrange(given.one_in) == 0

    asyncio.run(serve(Liar(given.lie, strikes, given.told), given.ports))


if __name__ == "__main__":
    main()
