"""Compare what goes on through a tap with rules with the answer of the slow model, on one drawn script."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rabbitmq_resilience.tap.amqp_methods import Side
from rabbitmq_resilience.tap.method_rules import ActiveRule, MethodRule
from rabbitmq_resilience.tap.ruled_connection import RuledConnection
from tests.tap.drawn_frames import drawn_frames, drawn_rules
from tests.tap.frames import cut
from tests.tap.reference.slow_rules import SlowRule, SlowTap, by_channel


class Passed:
    """A connection with rules, and all that it sends: (receiver, bytes)."""

    def __init__(self, *rules: MethodRule, process: str = "app") -> None:
        self.rules = [ActiveRule(rule) for rule in rules]
        self.out: list[tuple[int, bytes]] = []
        self.notes: list[tuple[str, int]] = []
        self.connection = RuledConnection(
            process,
            self.rules,
            lambda side, data: self.out.append((int(side), data)),
            lambda what, _, channel: self.notes.append((what, channel)),
        )

    def send(self, side: int, data: bytes, *, now_s: float = 0.0) -> list[tuple[int, bytes]]:
        """Return what goes on now."""
        before = len(self.out)
        self.connection.received(Side(side), data, now_s=now_s)
        return self.out[before:]

    def at(self, now_s: float) -> list[tuple[int, bytes]]:
        before = len(self.out)
        self.connection.advanced(now_s=now_s)
        return self.out[before:]


def joined(out: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Return the bytes of each receiver."""
    return [(side, data) for side in (0, 1) if (data := b"".join(each for to, each in out if to == side))]


def slow(rule: MethodRule) -> SlowRule:
    return SlowRule(int(rule.sent.sender), rule.sent.ids, rule.treatment, rule.for_s, rule.times, rule.code)


def compare(chance: random.Random) -> tuple[list[str], set[str]]:
    """Play one drawn script through both. Return where they differ, and what rules did."""
    rules = drawn_rules(chance)
    fast, model = Passed(*rules), SlowTap([slow(rule) for rule in rules])
    pieces = {
        side: cut(b"".join(drawn_frames(chance, side)), [chance.randrange(4000) for _ in range(20)]) for side in (0, 1)
    }
    now_s, apart = 0.0, []
    while pieces[0] or pieces[1]:
        side = chance.choice([each for each in (0, 1) if pieces[each]])
        now_s += chance.choice([0.0, 0.1, 0.7, 3.0]) * chance.random()
        while (due_s := model.due_s) is not None and due_s <= now_s:
            apart += differ(f"due {due_s}", fast.connection.due_s, due_s)
            before = len(model.out)
            model.advanced(due_s)
            apart += differ(
                f"let go at {due_s}", by_channel(joined(fast.at(due_s))), by_channel(joined(model.out[before:]))
            )
        if chance.random() < 0.05 and rules:
            number = chance.randrange(len(rules))
            fast.rules[number].active, model.rules[number].ended = False, True
            before = len(model.out)
            model.advanced(now_s)
            apart += differ(f"rule {number} ended", whole(fast.at(now_s)), whole(model.out[before:]))
        before, data = len(model.out), pieces[side].pop(0)
        model.received(side, data, now_s)
        apart += differ(
            f"{now_s}: {side} sent {data.hex()}", joined(fast.send(side, data, now_s=now_s)), joined(model.out[before:])
        )
        if apart:
            break
    apart += differ("met", [rule.count for rule in fast.rules], [rule.met for rule in model.rules])
    apart += differ("closed", fast.connection.closed_for, model.closing and model.agreed == {0, 1})
    return apart, {what for what, _ in fast.notes} | ({"connection closed"} if model.closing else set())


def whole(out: Sequence[tuple[int, bytes]]) -> list[tuple[int, int]]:
    """Return how many bytes each receiver gets: frames that are let go may come with a part of the next."""
    return [(side, len(data)) for side, data in joined(out)]


def differ(where: str, found: object, expected: object) -> list[str]:
    return [] if found == expected else [f"{where}\n  found    {found}\n  expected {expected}"]
