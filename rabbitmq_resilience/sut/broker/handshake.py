"""Probe a path to a broker by the first message of a protocol and its answer.

Sources: https://www.erlang.org/doc/apps/erts/erl_dist_protocol.html (distribution handshake): ``N`` names the
caller, the callee answers ``s`` and a status. AMQP 0-9-1, sections 2.2.4 and 4.2.2: the client sends the protocol
header, the server answers with Connection.Start (class 10, method 10) on channel 0. The probe then closes the
connection, before the broker asks for the cookie or a password.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from rabbitmq_resilience.tools.closing import Closing

#: The capabilities that a node of OTP 25 and later must offer, and those of version 6 of the protocol.
_CAPABILITIES = (
    0x4  # EXTENDED_REFERENCES
    | 0x10  # FUN_TAGS
    | 0x80  # NEW_FUN_TAGS
    | 0x100  # EXTENDED_PIDS_PORTS
    | 0x200  # EXPORT_PTR_TAG
    | 0x400  # BIT_BINARIES
    | 0x800  # NEW_FLOATS
    | 0x10000  # UTF8_ATOMS
    | 0x20000  # MAP_TAG
    | 0x40000  # BIG_CREATION
    | 0x1000000  # HANDSHAKE_23
    | 0x2000000  # UNLINK_ID
    | 1 << 34  # V4_NC
)
_CREATION = 4

#: Linux records when it received the bytes that we read (socket(7), SO_TIMESTAMPNS: seconds and nanoseconds of the wall
#: clock). Elsewhere the moment of reading is used. It is later by the time that this process waited for a CPU.
_SO_TIMESTAMPNS = 35 if sys.platform == "linux" else None
_TIMESTAMP = struct.Struct("@ll")
#: The number of readings of both clocks. At least one of them is not interrupted.
_READINGS = 5

_LISTENER_PROBE_TIMEOUT_S = 0.5


@dataclass(frozen=True)
class Greeting:
    """The first message of the caller, and the test that recognises its answer."""

    message: bytes
    is_answer: Callable[[bytes], bool]
    answer_bytes_max: int = 64


def distribution_greeting(node_name: str) -> Greeting:
    """Return the greeting of Erlang's distribution protocol. ``node_name`` must not be a node of the cluster, and must
    not be used by a probe that still waits for its answer."""
    name = node_name.encode()
    message = b"N" + struct.pack(">QIH", _CAPABILITIES, _CREATION, len(name)) + name
    return Greeting(struct.pack(">H", len(message)) + message, lambda answer: answer[2:3] == b"s")


AMQP_GREETING = Greeting(
    b"AMQP\x00\x00\x09\x01", lambda answer: answer[:3] == b"\x01\x00\x00" and answer[7:11] == b"\x00\x0a\x00\x0a"
)


def _wall_ahead_s() -> float:
    """Return how far the wall clock is ahead of the monotonic clock, in seconds.

    The reading with the shortest interval counts. If this process loses its CPU between the two clocks, the wait would
    look like a difference of the clocks.
    """
    readings = []
    for _ in range(_READINGS):
        before_s = time.monotonic()
        wall_s = time.time()
        readings.append((time.monotonic() - before_s, wall_s - before_s))
    return min(readings)[1]


class Probe(Closing):
    """An open connection that sends a greeting when the caller wants it."""

    def __init__(self, connected: socket.socket, greeting: Greeting) -> None:
        """Take over the connection; ``close`` closes it."""
        self._greeting = greeting
        self._socket = connected
        if _SO_TIMESTAMPNS is not None and connected.family != socket.AF_UNIX:
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            except OSError:
                self._socket.close()
                raise

    @classmethod
    def to(cls, address: tuple[str, int], greeting: Greeting, *, timeout_s: float) -> Self:
        """Connect to ``address``. Raise OSError if the connection is not accepted."""
        return cls(socket.create_connection(address, timeout=timeout_s), greeting)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self) -> None:
        self._socket.sendall(self._greeting.message)

    def receive(self, *, timeout_s: float) -> float | None:
        """Return when the answer arrived, on the monotonic clock, in seconds. Return None if the connection was closed
        or the answer is wrong. Raise TimeoutError if no answer arrives."""
        self._socket.settimeout(max(0.001, timeout_s))
        answer, notes, _, _ = self._socket.recvmsg(self._greeting.answer_bytes_max, socket.CMSG_SPACE(_TIMESTAMP.size))
        read_s = time.monotonic()
        if not self._greeting.is_answer(answer):
            return None
        stamps = [data for level, kind, data in notes if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS)]
        if not stamps:
            return read_s
        came_s, came_ns = map(int, _TIMESTAMP.unpack(stamps[0]))
        return min(read_s, came_s + came_ns / 1e9 - _wall_ahead_s())

    def close(self) -> None:
        self._socket.close()


def round_trip_ms(address: tuple[str, int], greeting: Greeting, *, timeout_s: float) -> float | None:
    """Return the milliseconds from the greeting to its answer on a new connection; None without an answer within
    ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    try:
        with Probe.to(address, greeting, timeout_s=timeout_s) as probe:
            return answer_ms(probe, timeout_s=deadline - time.monotonic())
    except OSError:
        return None


def answer_ms(probe: Probe, *, timeout_s: float) -> float | None:
    """Return the milliseconds from the greeting to its answer on the connection of ``probe``; None without a valid
    answer. Raise OSError if the connection fails or times out."""
    begun = time.monotonic()
    probe.send()
    answered_s = probe.receive(timeout_s=timeout_s)
    return None if answered_s is None else (answered_s - begun) * 1000


def accepts(host: str, port: int) -> bool:
    """Return whether a listener accepts connections. The broker ignores a connection that closes before any byte."""
    try:
        with socket.create_connection((host, port), timeout=_LISTENER_PROBE_TIMEOUT_S):
            return True
    except OSError:
        return False
