"""The first step of Erlang's distribution handshake, as a probe of a path to a broker.

Source: https://www.erlang.org/doc/apps/erts/erl_dist_protocol.html (distribution handshake): ``N`` names
the caller, the callee answers ``s`` and a status. We hang up then; the cookie is never asked for.
"""

from __future__ import annotations

import socket
import struct
import time

#: The capabilities that a node of OTP 25 and later must offer, and those that make up version 6 of the protocol.
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


def distribution_round_trip_ms(port: int, *, node_name: str, timeout_s: float) -> float | None:
    """Milliseconds from naming ourselves to the status; None if none came in ``timeout_s``.

    ``node_name`` must be no node of the cluster, nor one that is still being probed.
    """
    name = node_name.encode()
    message = b"N" + struct.pack(">QIH", _CAPABILITIES, _CREATION, len(name)) + name
    deadline = time.monotonic() + timeout_s
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            begun = time.monotonic()
            connection.sendall(struct.pack(">H", len(message)) + message)
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            answer = connection.recv(64)
            return (time.monotonic() - begun) * 1000 if answer[2:3] == b"s" else None
    except OSError:
        return None
