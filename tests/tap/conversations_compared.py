"""Compare what the tap decodes with the answer of the reference, on one drawn conversation."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from rabbitmq_resilience.tap.amqp_methods import Side
from rabbitmq_resilience.tap.conversation import Conversation
from rabbitmq_resilience.tap.message_identity import Hashes
from rabbitmq_resilience.tap.wire_history import Kind, Row
from tests.tap.drawn_conversations import Drawn
from tests.tap.reference.conversations import Heard, Pieces, Said

_HASHED = ("body", "identity")


def decoded(pieces: Pieces, *, until: int) -> list[Said]:
    """Return what the tap says, in the form of the reference; bodies and identities are hashes."""
    said: list[Said] = []

    def add(row: Row) -> None:
        fields = row._asdict() | {"kind": row.kind.name, "mode": row.mode.name}
        assert fields.pop("connection") == 7
        said.append(("row", fields.pop("t_us"), fields.pop("session"), fields))

    conversation = Conversation(
        7, Hashes(b"key"), add, lambda what, t_us, channel, fields: said.append((what, t_us, channel, dict(fields)))
    )
    for t_us, side, data in pieces:
        conversation.feed(Side(side), data, t_us=t_us)
    conversation.ended(t_us=until)
    return said


def _whole(said: Said) -> Said:
    """Return a row with the fields that it does not have, and values that only their hashes can be compared of."""
    what, t_us, channel, fields = said
    if what != "row":
        return said
    empty: dict[str, Any] = Row(0, 0, 0, Kind.PUBLISHED)._asdict() | {"mode": "PLAIN"}
    for name in ("t_us", "connection", "session"):
        del empty[name]
    return what, t_us, channel, empty | fields


def _without_hashes(said: Said) -> Said:
    return (*said[:3], {name: value for name, value in said[3].items() if name not in _HASHED or said[0] != "row"})


def _one_to_one(pairs: Iterable[tuple[object, object]]) -> bool:
    known = {(repr(one), repr(other)) for one, other in pairs}
    return len({one for one, _ in known}) == len(known) == len({other for _, other in known})


def differences(pieces: Pieces, *, until: int) -> list[str]:
    """Return where the tap and the reference say something else."""
    found, expected = decoded(pieces, until=until), [_whole(each) for each in Heard().hear(pieces, until=until)]
    apart = []
    for at in range(max(len(found), len(expected))):
        ours = _without_hashes(found[at]) if at < len(found) else None
        theirs = _without_hashes(expected[at]) if at < len(expected) else None
        if ours != theirs:
            apart.append(f"{at}: the tap says {ours}, and the reference {theirs}")
    for name in _HASHED:
        pairs = [(a[3][name], b[3][name]) for a, b in zip(found, expected, strict=False) if a[0] == b[0] == "row"]
        if not _one_to_one((one, other) for one, other in pairs if other != 0 or one != 0):
            apart.append(f"the hashes of {name} tell other messages apart than those that differ")
    return apart


def compare(chance: random.Random) -> tuple[list[str], set[str]]:
    """Return the differences of one drawn conversation, and the kinds of what is in it."""
    drawn = Drawn(chance)
    pieces = list(drawn.pieces())
    until = pieces[-1][0] + chance.choice([0, 5_000_000])
    kinds = {str(fields["kind"]) if what == "row" else what for what, _, _, fields in decoded(pieces, until=until)}
    return differences(pieces, until=until), drawn.planted | kinds
