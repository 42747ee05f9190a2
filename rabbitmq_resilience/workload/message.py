"""Encode and decode messages: run, publisher, sequence, and a checksum over all of the message."""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

_IDENTITY = struct.Struct(">QIQ")  # run, publisher, sequence
_HEADER = struct.Struct(">QIQI")  # run, publisher, sequence, checksum
IDENTITY_BYTES = _IDENTITY.size
HEADER_BYTES = _HEADER.size


class Identity(NamedTuple):
    """The identity of a message. ``sequence`` counts from 0 for each ``publisher`` of a ``run``."""

    run: int
    publisher: int
    sequence: int


class Encoder:
    """Encode the messages of one publisher, which differ only in their headers.

    The checksum covers the payload first and the identity last. So the payload, which does not change, is summed once
    for all messages.
    """

    def __init__(self, run: int, publisher: int, payload: bytes) -> None:
        self._run = run
        self._publisher = publisher
        self.payload = payload
        self._payload_crc32 = crc32(payload)

    def header(self, sequence: int) -> bytes:
        """Return the ``HEADER_BYTES`` that precede the payload."""
        identity = _IDENTITY.pack(self._run, self._publisher, sequence)
        return identity + crc32(identity, self._payload_crc32).to_bytes(4, "big")

    def encode(self, sequence: int) -> bytes:
        return self.header(sequence) + self.payload


def decode(message: bytes) -> Identity | None:
    """Return the identity of a message, or None if it is too short or its checksum is wrong."""
    if len(message) < HEADER_BYTES:
        return None
    run, publisher, sequence, checksum = _HEADER.unpack_from(message)
    if checksum != crc32(message[:IDENTITY_BYTES], crc32(message[HEADER_BYTES:])):
        return None
    return Identity(run, publisher, sequence)
