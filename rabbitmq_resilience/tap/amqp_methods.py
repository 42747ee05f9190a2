"""Name the methods of AMQP 0-9-1, and say which side sends each of them."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from pika import amqp_object, spec

#: The first byte of a frame.
METHOD, CONTENT_HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
#: Type, channel, and size of the payload.
FRAME_HEAD = struct.Struct(">BHI")
#: The last byte of each frame.
FRAME_END = 0xCE
#: A client begins with this, and a broker of another version answers with it: ``AMQP`` and four bytes more.
PROTOCOL_HEADER_BYTES = 8
PROTOCOL_HEADER_BEGINS = ord("A")

_IDS = struct.Struct(">HH")


class Side(IntEnum):
    """The end of a connection that sent something."""

    CLIENT = 0
    BROKER = 1

    @property
    def other(self) -> Side:
        return Side(1 - self)


def word(side: Side) -> str:
    return "client" if side is Side.CLIENT else "broker"


#: What a rule may name instead of a method that both sides send.
CONFIRMS = "confirms"
ACKNOWLEDGEMENTS = "acknowledgements"

_ACK, _NACK = (60, 80), (60, 120)
_RETURNED, _DELIVERED, _GOT = (60, 50), (60, 60), (60, 71)
PUBLISHED = (60, 40)
#: Methods that a content header and bodies follow.
WITH_CONTENT = frozenset({PUBLISHED, _RETURNED, _DELIVERED, _GOT})

CHANNEL_OPEN, CHANNEL_CLOSE, CHANNEL_CLOSE_OK = (20, 10), (20, 40), (20, 41)
CONNECTION_CLOSE, CONNECTION_CLOSE_OK = (10, 50), (10, 51)

Ids = tuple[int, int]


def name_of(method: type[amqp_object.Method]) -> str:
    """Return the name of a method as the specification writes it, such as ``queue.declare-ok``."""
    group, _, own = str(method.NAME).partition(".")
    return f"{group.lower()}.{re.sub(r'(?<!^)(?=[A-Z])', '-', own).lower()}"


_KNOWN: Mapping[Ids, type[amqp_object.Method]] = {
    (int(index) >> 16, int(index) & 0xFFFF): method for index, method in spec.methods.items()
}

#: {(class, method): its name}
NAMES: Mapping[Ids, str] = {ids: name_of(method) for ids, method in _KNOWN.items()}

#: Methods that both sides may send.
_OF_BOTH = frozenset(
    {"connection.close", "connection.close-ok", "channel.close", "channel.close-ok", "channel.flow", "channel.flow-ok"}
    | {"basic.ack", "basic.nack", "basic.cancel", "basic.cancel-ok"}
)
#: Methods that only brokers send, apart from those whose names end in ``-ok``.
_OF_BROKERS = frozenset(
    {"connection.start", "connection.secure", "connection.tune", "connection.blocked", "connection.unblocked"}
    | {"basic.return", "basic.deliver", "basic.get-empty"}
)
#: ``-ok`` that clients send.
_OF_CLIENTS = frozenset({"connection.start-ok", "connection.secure-ok", "connection.tune-ok"})


@dataclass(frozen=True)
class SentMethods:
    """The methods that one name of a rule means, and the side that sends them. ``answered``: a broker replies to it."""

    sender: Side
    ids: frozenset[Ids]
    answered: bool


def _sender(name: str) -> Side:
    if name in _OF_BROKERS or (name.endswith("-ok") and name not in _OF_CLIENTS):
        return Side.BROKER
    return Side.CLIENT


#: What rules may name.
NAMED: Mapping[str, SentMethods] = {
    **{
        name: SentMethods(_sender(name), frozenset({ids}), bool(_KNOWN[ids].synchronous))
        for ids, name in NAMES.items()
        if name not in _OF_BOTH
    },
    CONFIRMS: SentMethods(Side.BROKER, frozenset({_ACK, _NACK}), answered=False),
    ACKNOWLEDGEMENTS: SentMethods(Side.CLIENT, frozenset({_ACK}), answered=False),
}


def ids_of(payload: bytes | memoryview) -> Ids:
    """Return (class, method) of a method's payload. Raise struct.error if it is shorter than four bytes."""
    group, method = _IDS.unpack_from(payload)
    return group, method
