"""Decode what both sides of one connection say into rows and events, from copies of its bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pika import spec

from rabbitmq_resilience.tap.amqp_methods import BODY, CONTENT_HEADER, METHOD, PROTOCOL_HEADER_BEGINS, Side, word
from rabbitmq_resilience.tap.frame_stream import Frame, FrameStream, NotAmqpError
from rabbitmq_resilience.tap.message_identity import Hashes
from rabbitmq_resilience.tap.recorded_text import decode_texts, recorded_text
from rabbitmq_resilience.tap.tapped_channel import TappedChannel, reason
from rabbitmq_resilience.tap.wire_history import Row

#: Of a client's properties, those that say which program it is.
_CLIENT_NAMES = ("product", "version", "platform", "connection_name")
_VERSION = b"AMQP\x00\x00\x09\x01"
#: Nothing of these is read.
_SECRET = frozenset({spec.Connection.Secure, spec.Connection.SecureOk, spec.Connection.UpdateSecret})


class Conversation:
    """One connection, as its client sees it.

    ``add`` gets each row, and ``keep`` the properties of each row that is a message. ``event`` gets everything else:
    ``event(what, t_us, channel, fields)``. Credentials are skipped: of ``start-ok`` only the client's name is read, and
    nothing of ``secure``, ``secure-ok`` and ``update-secret``.
    """

    def __init__(
        self,
        connection: int,
        hashes: Hashes,
        add: Callable[[Row], None],
        event: Callable[[str, int, int, Mapping[str, Any]], None],
        keep: Callable[[Row, Mapping[str, Any]], None] = lambda *_: None,
    ) -> None:
        self._connection = connection
        self._hashes = hashes
        self._event = event
        self.row = add
        self.properties = keep
        self.t_us = 0
        self._streams = {side: FrameStream() for side in Side}
        self._channels: dict[int, TappedChannel] = {}
        self._sessions = 0
        self._heartbeat_s = 0
        self._heard_us: dict[Side, int] = {}
        self._readable = True

    def feed(self, sender: Side, data: bytes, *, t_us: int) -> None:
        """Take bytes that one side sent. After bytes that cannot be read no more is read, and an event says why."""
        if not self._readable:
            return
        self.t_us = t_us
        self._check_silence(sender)
        self._heard_us[sender] = t_us
        try:
            for frame in self._streams[sender].frames(data):
                assert isinstance(frame, Frame)  # nothing passes unread
                self._take(sender, frame)
        except NotAmqpError as error:
            self._unreadable(sender, str(error))
        except Exception as error:  # a decoder may raise anything at damaged bytes
            # Without its text, which may have a value of the frame.
            self._unreadable(sender, f"a frame cannot be decoded ({type(error).__name__})")

    def ended(self, *, t_us: int) -> None:
        """Take the end of the connection. An event says which side's last frame was incomplete."""
        self.t_us = t_us
        for side, stream in self._streams.items():
            self._check_silence(side)
            if self._readable and stream.kept_bytes:
                self.say("cut_short", fields={"sender": word(side), "kept_bytes": stream.kept_bytes})

    def say(self, what: str, *, channel: int = 0, fields: Mapping[str, Any] | None = None) -> None:
        """Report an event of this moment."""
        self._event(what, self.t_us, channel, fields or {})

    def _unreadable(self, sender: Side, why: str) -> None:
        self._readable = False
        self.say("unreadable", fields={"sender": word(sender), "detail": why})

    def _check_silence(self, side: Side) -> None:
        """Report a side that sent nothing, not even a heartbeat, for more than two of the agreed intervals."""
        heard_us = self._heard_us.get(side)
        if not self._heartbeat_s or heard_us is None:
            return
        silent_s = (self.t_us - heard_us) / 1e6
        if silent_s > 2 * self._heartbeat_s:
            fields = {"sender": word(side), "for_s": round(silent_s, 1), "heartbeat_s": self._heartbeat_s}
            self.say("silent", fields=fields)

    def _take(self, sender: Side, frame: Frame) -> None:
        if frame.kind == METHOD:
            self._method(sender, frame)
        elif frame.kind in {CONTENT_HEADER, BODY}:
            # Without a channel, it was closed: what was on its way does not count.
            if (channel := self._channels.get(frame.channel)) is not None:
                (channel.header if frame.kind == CONTENT_HEADER else channel.body)(sender, frame.payload)
        elif frame.kind == PROTOCOL_HEADER_BEGINS and frame.data != _VERSION:
            version = frame.data[4:].hex(" ")
            raise NotAmqpError(f"the {word(sender)} speaks another protocol than AMQP 0-9-1 ({version})")

    def _method(self, sender: Side, frame: Frame) -> None:
        ids = frame.method
        known = spec.methods.get((ids[0] << 16) | ids[1]) if ids else None
        if known is None:
            raise NotAmqpError(f"AMQP 0-9-1 has no method {ids}")
        if known in _SECRET:
            return
        method = known()
        method.decode(frame.payload, 4)
        decode_texts(method)
        if frame.channel == 0:
            self._of_connection(sender, method)
        elif known is spec.Channel.Open:
            opened = TappedChannel(self._connection, frame.channel, self._sessions, self._hashes, self)
            self._channels[frame.channel] = opened
            self._sessions += 1
        elif known is spec.Channel.CloseOk:
            self._closed(frame.channel, agreed=sender)
        elif (channel := self._channels.get(frame.channel)) is not None:
            channel.method(sender, method)

    def _closed(self, number: int, *, agreed: Side) -> None:
        """Forget a channel. If both sides asked to close it, the second agreement may come when its number is in use
        again."""
        channel = self._channels.get(number)
        if channel is not None and agreed.other in channel.closed_by:
            del self._channels[number]

    def _of_connection(self, sender: Side, method: Any) -> None:
        match method:
            case spec.Connection.StartOk():
                properties = method.client_properties or {}
                named = {
                    name: recorded_text(value) for name in _CLIENT_NAMES if (value := properties.get(name)) is not None
                }
                self.say("client", fields=named)
            case spec.Connection.TuneOk():
                self._heartbeat_s = method.heartbeat
                self.say("tuned", fields={"heartbeat_s": method.heartbeat, "frame_bytes_max": method.frame_max})
            case spec.Connection.Open():
                self.say("asks", fields={"vhost": method.virtual_host})
            case spec.Connection.OpenOk():
                self.say("connected")
            case spec.Connection.Close():
                self.say("connection_closed", fields={"by": word(sender), **reason(method)})
            case spec.Connection.Blocked():
                self.say("blocked", fields={"detail": str(method.reason)})
            case spec.Connection.Unblocked():
                self.say("unblocked")
            case _:
                pass
