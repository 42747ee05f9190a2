"""Say frame by frame what a tap with rules sends on, from one list of what waits.

It parses by itself, and looks at all that waits again and again until nothing can move.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.tap.frames import method, refusal

CLIENT, BROKER = 0, 1
_WITH_CONTENT = {(60, 40), (60, 50), (60, 60), (60, 71)}
_CONNECTION_ERRORS = {320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541}


@dataclass
class SlowRule:
    """One rule. ``side`` sends what it meets."""

    side: int
    ids: frozenset[tuple[int, int]]
    treatment: str
    for_s: float
    times: int | None
    code: int
    met: int = 0
    ended: bool = False

    @property
    def used_up(self) -> bool:
        return self.ended or self.met == self.times


@dataclass(eq=False)
class Waiting:
    """A frame that has come and has not gone on."""

    side: int
    data: bytes
    came_s: float
    until_s: float | None = None
    by: SlowRule | None = None
    free: bool = False

    kind = property(lambda self: self.data[0])
    channel = property(lambda self: int.from_bytes(self.data[1:3]))
    payload = property(lambda self: self.data[7:-1])

    @property
    def ids(self) -> tuple[int, int] | None:
        return struct.unpack_from(">HH", self.data, 7) if self.kind == 1 else None


@dataclass
class Refused:
    """A channel that was closed towards both sides."""

    close: bytes
    said: bool = False
    agreed: set[int] = field(default_factory=set)
    later: list[Waiting] = field(default_factory=list)


def content_left(left: int | None, frame: Waiting) -> int | None:
    """Return how many bytes of a message are missing after this frame: -1 before its header, None at its end."""
    if frame.kind == 1:
        return -1 if frame.ids in _WITH_CONTENT else None
    if left is None or frame.kind not in {2, 3}:
        return left
    left = int.from_bytes(frame.payload[4:12]) if frame.kind == 2 else left - len(frame.payload)
    return left if left > 0 else None


class SlowTap:
    """What goes on: ``out`` has (receiver, bytes) in order."""

    def __init__(self, rules: Sequence[SlowRule]) -> None:
        self.rules = list(rules)
        self.out: list[tuple[int, bytes]] = []
        self._kept = {CLIENT: b"", BROKER: b""}
        self._begun = {CLIENT: b"", BROKER: b""}
        self._waiting: list[Waiting] = []
        self._dropping: dict[tuple[int, int], int] = {}
        self._delivering: dict[int, int] = {}
        self._refused: dict[int, Refused] = {}
        self._own = b""
        self.closing = False
        self.agreed: set[int] = set()

    @property
    def due_s(self) -> float | None:
        return min((each.until_s for each in self._waiting if each.until_s is not None), default=None)

    def received(self, side: int, data: bytes, now_s: float) -> None:
        pool, self._kept[side] = self._kept[side] + data, b""
        if not self._looks():
            self._delivering.clear()
        while pool:
            begun = self._begun[side]
            known = begun + pool
            length = None if len(known) < 7 else 8 if known[0] == ord("A") else int.from_bytes(known[3:7]) + 8
            if not begun and self._looks():
                if length is None or len(pool) < length:
                    break
                self._waiting.append(Waiting(side, pool[:length], now_s))
                pool = pool[length:]
                self._settle(now_s)
                continue
            step = len(pool) if length is None else min(len(pool), length - len(begun))
            self._emit(1 - side, pool[:step])
            self._begun[side] = b"" if len(begun) + step == length else begun + pool[:step]
            pool = pool[step:]
            self._say_own()
        self._kept[side] = pool
        self._pass_what_is_kept()

    def advanced(self, now_s: float) -> None:
        self._settle(now_s)
        self._pass_what_is_kept()

    def _pass_what_is_kept(self) -> None:
        for side in () if self._looks() else (CLIENT, BROKER):
            if self._kept[side]:
                self._emit(1 - side, self._kept[side])
                self._begun[side], self._kept[side] = self._kept[side], b""

    def _looks(self) -> bool:
        busy = self._waiting or self._dropping or self._refused or self.closing or self._own
        return bool(busy) or any(not rule.used_up for rule in self.rules)

    def _emit(self, receiver: int, data: bytes) -> None:
        self.out.append((receiver, data))

    def _say_own(self, more: bytes = b"") -> None:
        self._own += more
        if self._own and not self._begun[BROKER]:
            self._emit(CLIENT, self._own)
            self._own = b""

    def _settle(self, now_s: float) -> None:
        """Move all that can move, channel by channel: that decides which of two a rule meets that meets only one."""
        moved = True
        while moved:
            moved = False
            for place in dict.fromkeys((each.side, each.channel) for each in self._waiting):
                while (first := self._first(place)) is not None and self._step(first, now_s):
                    moved = True

    def _first(self, place: tuple[int, int]) -> Waiting | None:
        return next((each for each in self._waiting if (each.side, each.channel) == place), None)

    def _step(self, each: Waiting, now_s: float) -> bool:
        """Move a frame that is the first of its channel and direction. Return whether anything changed."""
        place = (each.side, each.channel)
        if self.closing:
            self._at_end(each)
        elif each.channel in self._refused:
            self._at_refused(each, self._refused[each.channel], now_s)
        elif each.until_s is not None and each.by is not None and now_s < each.until_s and not each.by.ended:
            return False
        elif each.until_s is not None:
            each.until_s, each.free = None, True
        elif place in self._dropping and each.kind in {2, 3}:
            self._waiting.remove(each)
            left = content_left(self._dropping.pop(place), each)
            self._dropping |= {} if left is None else {place: left}
        else:
            rule = None if each.free or each.kind != 1 or place in self._dropping else self._meeting(each)
            if rule is None:
                self._dropping.pop(place, None)
                self._go(each)
            elif rule.treatment == "hold":
                each.until_s, each.by = each.came_s + rule.for_s, rule
            else:
                self._waiting.remove(each)
                if rule.treatment == "answer":
                    self._refuse(rule, each)
                elif each.ids in _WITH_CONTENT:
                    self._dropping[place] = -1
        return True

    def _meeting(self, each: Waiting) -> SlowRule | None:
        for rule in self.rules:
            if not rule.used_up and rule.side == each.side and each.ids in rule.ids:
                rule.met += 1
                return rule
        return None

    def _go(self, each: Waiting) -> None:
        self._waiting.remove(each)
        self._emit(1 - each.side, each.data)
        if each.side == BROKER:
            left = content_left(self._delivering.pop(each.channel, None), each)
            self._delivering |= {} if left is None else {each.channel: left}

    def _refuse(self, rule: SlowRule, each: Waiting) -> None:
        ids = each.ids or (0, 0)
        if rule.code in _CONNECTION_ERRORS:
            self.closing = True
            self._waiting.clear()
            self._say_own(refusal(0, rule.code, "no", ids))
            self._emit(BROKER, refusal(0, rule.code, "closed", ids))
            return
        self._emit(BROKER, refusal(each.channel, 200, "closed", (0, 0)))
        for side in (CLIENT, BROKER):
            self._dropping.pop((side, each.channel), None)
        for other in self._waiting:
            other.until_s = None if other.channel == each.channel else other.until_s
        state = self._refused[each.channel] = Refused(refusal(each.channel, rule.code, "no", ids))
        self._say_refusal(each.channel, state)
        self._waiting.sort(key=lambda one: one.channel != each.channel or one.side != BROKER)

    def _say_refusal(self, channel: int, state: Refused) -> None:
        if not state.said and channel not in self._delivering:
            state.said = True
            self._say_own(state.close)

    def _at_end(self, each: Waiting) -> None:
        self._waiting.remove(each)
        if each.ids == (10, 51):
            self.agreed.add(each.side)
        elif each.ids == (10, 50):
            self._say(each.side, method(0, (10, 51)))

    def _at_refused(self, each: Waiting, state: Refused, now_s: float) -> None:
        if each.side == BROKER and each.channel in self._delivering:
            self._go(each)
            self._say_refusal(each.channel, state)
            return
        self._waiting.remove(each)
        if each.side == CLIENT and CLIENT in state.agreed:
            state.later.append(each)
        elif each.ids == (20, 41):
            state.agreed.add(each.side)
        elif each.ids == (20, 40):
            self._say(each.side, method(each.channel, (20, 41)))
        if state.agreed == {CLIENT, BROKER}:
            del self._refused[each.channel]
            for later in state.later:
                later.came_s = now_s
            self._waiting = state.later + self._waiting

    def _say(self, receiver: int, data: bytes) -> None:
        if receiver == CLIENT:
            self._say_own(data)
        else:
            self._emit(BROKER, data)


def by_channel(out: Sequence[tuple[int, bytes]]) -> Mapping[tuple[int, int], bytes]:
    """Return what each receiver gets on each channel, of whole frames."""
    found: dict[tuple[int, int], bytes] = {}
    for receiver, data in out:
        at = 0
        while at < len(data):
            end = at + 8 + int.from_bytes(data[at + 3 : at + 7])
            key = (receiver, int.from_bytes(data[at + 1 : at + 3]))
            found[key] = found.get(key, b"") + data[at:end]
            at = end
    return found
