"""Pass the frames of one connection on, by rules for single methods; pure, as it neither reads a socket nor a clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pika import spec
from pika.frame import Method as MethodFrame

from rabbitmq_resilience.tap.amqp_methods import (
    BODY,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    CONTENT_HEADER,
    METHOD,
    WITH_CONTENT,
    Side,
)
from rabbitmq_resilience.tap.frame_stream import Frame, FrameStream, NotAmqpError
from rabbitmq_resilience.tap.method_rules import CONNECTION_ERRORS, ActiveRule, MethodRule

#: (what was done, rule, channel): "held", "let go", "dropped" or "answered".
Noted = Callable[[str, MethodRule, int], None]
Send = Callable[[Side, bytes], None]


@dataclass
class _ContentLeft:
    """Follow a content to its end. ``left_bytes`` is -1 before its header."""

    left_bytes: int = -1

    def ends_with(self, frame: Frame) -> bool:
        """Take the next frame of the channel. Return whether the content ends with it."""
        if frame.kind == CONTENT_HEADER:
            self.left_bytes = int.from_bytes(frame.payload[4:12])
        elif frame.kind == BODY:
            self.left_bytes -= len(frame.payload)
        return self.left_bytes <= 0


@dataclass
class _Channel:
    """One direction of a channel: the frames that wait, until when, and what is left of a content that is dropped."""

    #: Each with the time of its arrival.
    waiting: deque[tuple[Frame, float]] = field(default_factory=deque)
    waiting_bytes: int = 0
    holder: ActiveRule | None = None
    held_until_s: float = 0.0
    #: Whether the frame at the head has waited already, so that no rule meets it again.
    let_go: bool = False
    #: What is left of a content that is dropped; None outside of one.
    drops: _ContentLeft | None = None

    def add(self, frame: Frame, *, now_s: float) -> None:
        self.waiting.append((frame, now_s))
        self.waiting_bytes += len(frame.data)

    def pop(self) -> None:
        self.waiting_bytes -= len(self.waiting.popleft()[0].data)


@dataclass
class _Answered:
    """A channel that the tap closes towards both sides. What the client sends after it has agreed waits for the
    broker to agree, too. ``refusal`` is what the client gets; it waits for the end of a content on its way."""

    refusal: spec.Channel.Close
    refused: bool = False
    client_agreed: bool = False
    broker_agreed: bool = False
    waiting: list[Frame] = field(default_factory=list)


class RuledConnection:
    """Pass one connection through a tap.

    ``received`` takes the bytes of one side, and passes them to the other side by ``send``. Without a rule in effect
    they go on as they came, before their borders are known. ``process`` is the name of the client's process.
    ``noted`` gets what rules do. ``now_s`` is a monotonic time.
    """

    def __init__(self, process: str, rules: Sequence[ActiveRule], send: Send, noted: Noted) -> None:
        self._process = process
        self._rules = rules
        self._send_on = send
        self._going: dict[Side, list[bytes]] = {side: [] for side in Side}
        self._noted = noted
        self._streams = {side: FrameStream() for side in Side}
        self._channels: dict[tuple[Side, int], _Channel] = {}
        self._answered: dict[int, _Answered] = {}
        #: By channel, a message of the broker of which the client has a part.
        self._delivering: dict[int, _ContentLeft] = {}
        #: What the tap itself says to the client; it waits for the end of a frame that passes.
        self._own = b""
        self._closing = False
        self._agreed: set[Side] = set()
        self._ordered = True  # False once the bytes are no frames

    @property
    def closed_for(self) -> bool:
        """Return whether both sides agreed to an error of the connection, so that its sockets can be closed."""
        return self._closing and self._agreed == set(Side)

    @property
    def due_s(self) -> float | None:
        """Return when ``advanced`` must be called next; None while nothing is held."""
        times = [channel.held_until_s for channel in self._channels.values() if channel.holder is not None]
        return min(times, default=None)

    def held_bytes(self, sender: Side) -> int:
        """Return how many bytes of that side wait."""
        held = sum(channel.waiting_bytes for (side, _), channel in self._channels.items() if side is sender)
        answered = self._answered.values() if sender is Side.CLIENT else ()
        return held + sum(len(frame.data) for state in answered for frame in state.waiting)

    def received(self, sender: Side, data: bytes, *, now_s: float) -> None:
        """Take bytes from a side."""
        stream = self._streams[sender]
        if not self._ordered:
            self._send_on(sender.other, data)
            return
        try:
            if not stream.kept_bytes and not self._in_effect:
                self._delivering.clear()
                self._send_on(sender.other, data)
                stream.passed(data)
                return
            for piece in stream.frames(data):
                self._take(sender, piece, now_s=now_s)
            self._let_through()
        except NotAmqpError:
            self._give_up()
        self._send_all()

    def advanced(self, *, now_s: float) -> None:
        """Let go what was held long enough, or whose rule has ended."""
        for (sender, number), channel in list(self._channels.items()):
            if self._channels.get((sender, number)) is channel:  # none before it has closed the channel
                self._flushed(sender, number, channel, now_s=now_s)
        try:
            self._let_through()
        except NotAmqpError:
            self._give_up()
        self._send_all()

    def ended(self, sender: Side) -> None:
        """Take the end of what a side sends. All that is kept or held of it goes on, so that the end may follow."""
        self._let_go_all(sender)
        if self._ordered and not self._closing and (data := self._streams[sender].taken()):
            self._send(sender.other, data)
        self._send_all()

    def _send(self, receiver: Side, data: bytes) -> None:
        self._going[receiver].append(data)

    def _send_all(self) -> None:
        """Send what goes on to each side as one piece: a system call a frame would take most of the time."""
        for receiver, pieces in self._going.items():
            if pieces:
                data = b"".join(pieces)
                pieces.clear()
                self._send_on(receiver, data)

    def _let_go_all(self, sender: Side) -> None:
        waiting: list[tuple[Frame, float]] = []
        for key, channel in list(self._channels.items()):
            if key[0] is sender:
                waiting += channel.waiting
                del self._channels[key]
                if channel.holder is not None:
                    self._noted("let go", channel.holder.rule, key[1])
        for frame, _ in sorted(waiting, key=lambda each: each[1]):
            self._send(sender.other, frame.data)
        for state in self._answered.values() if sender is Side.CLIENT else ():
            for frame in state.waiting:
                self._send(Side.BROKER, frame.data)
            state.waiting.clear()

    def _let_through(self) -> None:
        """Pass on what is kept of incomplete frames, if no rule is in effect any more."""
        if self._in_effect or not self._ordered:
            return
        for sender, stream in self._streams.items():
            if data := stream.taken():
                self._send(sender.other, data)
                stream.passed(data)

    @property
    def _in_effect(self) -> bool:
        """Return whether frames must be looked at one by one."""
        if self._channels or self._answered or self._closing or self._own:
            return True
        return any(active.may_meet(self._process) for active in self._rules)

    def _give_up(self) -> None:
        """Pass everything on from now on: without borders, the channels cannot be distinguished."""
        self._ordered = False
        for sender, stream in self._streams.items():
            self._let_go_all(sender)
            if data := stream.taken():
                self._send(sender.other, data)
        self._flush_own()

    def _take(self, sender: Side, piece: bytes | Frame, *, now_s: float) -> None:
        if not isinstance(piece, Frame):
            self._send(sender.other, piece)
            self._flush_own()
        elif self._closing:
            if piece.method == CONNECTION_CLOSE_OK:
                self._agreed.add(sender)
            elif piece.method == CONNECTION_CLOSE:
                self._method(sender, 0, spec.Connection.CloseOk())
        elif piece.channel in self._answered:
            self._at_answered(sender, piece, now_s=now_s)
        else:
            key = (sender, piece.channel)
            channel = self._channels.setdefault(key, _Channel())
            channel.add(piece, now_s=now_s)
            self._flushed(sender, piece.channel, channel, now_s=now_s)

    def _flushed(self, sender: Side, number: int, channel: _Channel, *, now_s: float) -> None:
        """Send what waits and is not held any more. Forget the channel if nothing is left of it."""
        while channel.waiting:
            if channel.holder is not None:
                if channel.holder.active and now_s < channel.held_until_s:
                    return
                self._noted("let go", channel.holder.rule, number)
                channel.holder, channel.let_go = None, True
            frame, arrived_s = channel.waiting[0]
            rule = None if channel.let_go or channel.drops is not None else self._meeting(sender, frame)
            channel.let_go = False
            if rule is not None and rule.rule.treatment == "hold":
                channel.holder, channel.held_until_s = rule, arrived_s + rule.rule.for_s
                self._noted("held", rule.rule, number)
                continue
            channel.pop()
            if channel.drops is not None and frame.kind in {CONTENT_HEADER, BODY}:
                channel.drops = None if channel.drops.ends_with(frame) else channel.drops
            elif rule is None:
                channel.drops = None
                self._pass(sender, frame)
            elif rule.rule.treatment == "drop":
                self._noted("dropped", rule.rule, number)
                channel.drops = _ContentLeft() if frame.method in WITH_CONTENT else None
            else:
                self._answer(rule.rule, frame, [later for later, _ in channel.waiting], now_s=now_s)
                return
        if channel.holder is None and channel.drops is None:
            self._channels.pop((sender, number), None)

    def _pass(self, sender: Side, frame: Frame) -> None:
        """Send a frame on, and follow messages of the broker: the tap must not speak in the middle of one."""
        self._send(sender.other, frame.data)
        if sender is Side.BROKER:
            if frame.method in WITH_CONTENT:
                self._delivering[frame.channel] = _ContentLeft()
            elif (content := self._delivering.get(frame.channel)) is not None and (
                frame.kind == METHOD or content.ends_with(frame)
            ):
                del self._delivering[frame.channel]

    def _meeting(self, sender: Side, frame: Frame) -> ActiveRule | None:
        if frame.kind != METHOD:
            return None
        return next((rule for rule in self._rules if rule.meets(sender, self._process, frame)), None)

    def _answer(self, rule: MethodRule, frame: Frame, later: Sequence[Frame], *, now_s: float) -> None:
        """Reply with an error: close the channel, or the connection, towards both sides."""
        self._noted("answered", rule, frame.channel)
        ids = frame.method or (0, 0)
        held = [each for each, _ in self._channels.pop((Side.BROKER, frame.channel), _Channel()).waiting]
        self._channels.pop((Side.CLIENT, frame.channel), None)
        if rule.code in CONNECTION_ERRORS:
            self._closing = True
            self._channels.clear()
            for side, text in ((Side.CLIENT, rule.text), (Side.BROKER, "closed")):
                self._method(side, 0, spec.Connection.Close(rule.code, text, *ids))
            return
        self._answered[frame.channel] = _Answered(spec.Channel.Close(rule.code, rule.text, *ids))
        self._method(Side.BROKER, frame.channel, spec.Channel.Close(200, "closed", 0, 0))
        self._refuse(frame.channel)
        for sender, frames in ((Side.BROKER, held), (Side.CLIENT, later)):
            for waiting in frames:
                self._at_answered(sender, waiting, now_s=now_s)

    def _refuse(self, channel: int) -> None:
        """Send the client its error, unless it has a part of a message on that channel."""
        state = self._answered[channel]
        if not state.refused and channel not in self._delivering:
            state.refused = True
            self._method(Side.CLIENT, channel, state.refusal)

    def _at_answered(self, sender: Side, frame: Frame, *, now_s: float) -> None:
        """Take a frame of a channel that the tap has closed: only what the sides agree to counts."""
        state = self._answered[frame.channel]
        if sender is Side.BROKER and frame.channel in self._delivering:
            self._pass(sender, frame)
            self._refuse(frame.channel)
        elif sender is Side.CLIENT and state.client_agreed:
            state.waiting.append(frame)
        elif frame.method == CHANNEL_CLOSE_OK:
            state.client_agreed |= sender is Side.CLIENT
            state.broker_agreed |= sender is Side.BROKER
        elif frame.method == CHANNEL_CLOSE:
            self._method(sender, frame.channel, spec.Channel.CloseOk())
        if state.client_agreed and state.broker_agreed:
            del self._answered[frame.channel]
            for waiting in state.waiting:
                self._take(Side.CLIENT, waiting, now_s=now_s)

    def _method(self, receiver: Side, channel: int, method: object) -> None:
        data = MethodFrame(channel, method).marshal()
        if receiver is Side.BROKER:  # a whole frame of the client has just come, so none is passing
            self._send(receiver, data)
        else:
            self._own += data
            self._flush_own()

    def _flush_own(self) -> None:
        if self._own and (self._streams[Side.BROKER].between_frames or not self._ordered):
            data, self._own = self._own, b""
            self._send(Side.CLIENT, data)
