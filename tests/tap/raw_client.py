"""Speak AMQP 0-9-1 on a plain socket, frame by frame: what no client library can be made to do."""

from __future__ import annotations

import socket
from typing import Any, NamedTuple

from tests.tap.frames import ALIVE, PROTOCOL, content, frame
from tests.tap.reference.amqp_grammar import arguments, read_method

_WITHIN_S = 60.0
GUEST = b"\x00guest\x00guest"


class Heard(NamedTuple):
    """A frame of the broker. ``name`` is that of its method, or ``alive``, ``header`` or ``body``."""

    channel: int
    name: str
    fields: dict[str, Any]
    payload: bytes


class RawClient:
    """One connection. ``heartbeat_s`` is what the client asks for."""

    def __init__(self, port: int, *, heartbeat_s: int = 0, mechanism: str = "PLAIN", response: bytes = GUEST) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), _WITHIN_S)
        self._heartbeat_s = heartbeat_s
        self._rest = b""
        self._send_greeting(mechanism, response)

    def _send_greeting(self, mechanism: str, response: bytes) -> None:
        self.send(PROTOCOL)
        self.expect("connection.start")
        given = {"product": "raw client", "capabilities": {"connection.blocked": True, "basic.nack": True}}
        self.say(0, "connection.start-ok", properties=given, mechanism=mechanism, response=response, locale="en_US")

    def log_in(self) -> RawClient:
        tune = self.expect("connection.tune").fields
        self.say(0, "connection.tune-ok", **tune | {"heartbeat": self._heartbeat_s})
        self.say(0, "connection.open", vhost="/")
        self.expect("connection.open-ok")
        return self

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def say(self, channel: int, name: str, **values: Any) -> None:
        self.send(frame(1, channel, arguments(name, **values)))

    def publish(self, channel: int, queue: str, body: bytes, *, properties: bytes = b"\x00\x00") -> None:
        self.say(channel, "basic.publish", key=queue)
        self.send(b"".join(content(channel, body, properties=properties)))

    def alive(self) -> None:
        self.send(ALIVE)

    def open(self, channel: int) -> None:
        self.say(channel, "channel.open")
        self.expect("channel.open-ok", channel)

    def next(self) -> Heard:
        """Return the next frame. Raise ConnectionError at the end, TimeoutError if nothing comes."""
        while len(self._rest) < 7 or len(self._rest) < 8 + int.from_bytes(self._rest[3:7]):
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the other side has ended")
            self._rest += data
        end = 8 + int.from_bytes(self._rest[3:7])
        data, self._rest = self._rest[:end], self._rest[end:]
        kind, channel, payload = data[0], int.from_bytes(data[1:3]), data[7:-1]
        if kind == 1:
            return Heard(channel, *read_method(payload), payload)
        return Heard(channel, {2: "header", 3: "body", 8: "alive"}[kind], {}, payload)

    def expect(self, name: str, channel: int = 0) -> Heard:
        """Return the next frame that is no heartbeat; it has that name and channel."""
        while (heard := self.next()).name == "alive":
            self.alive()
        assert (heard.name, heard.channel) == (name, channel), heard
        return heard

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
