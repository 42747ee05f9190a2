"""What the lying broker makes of the frames that pass it: the same bytes, but for one message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pika import BasicProperties, frame, spec

from rabbitmq_resilience.workload.message import HEADER_BYTES, Encoder
from rabbitmq_resilience.workload.routing import PublishArguments
from rabbitmq_resilience.workload.wire import PublishFrames
from tests.play.lying_broker import Conversation, Cutter, Liar, Unit

MESSAGES = Encoder(7, 2, b"payload" * 40)
GREETING = frame.ProtocolHeader().marshal()
HEARTBEAT = frame.Heartbeat().marshal()


def published(sequence: int) -> bytes:
    """In frames so small that a message takes several."""
    frames = PublishFrames(
        channel=1,
        turn=PublishArguments("", "q1", {}),
        payload=MESSAGES.payload,
        persistent=True,
        frame_max_bytes=HEADER_BYTES + 80,
    )
    return frames.marshal(MESSAGES.header(sequence))


def delivered(tag: int, sequence: int) -> bytes:
    body = MESSAGES.encode(sequence)
    frames = [
        frame.Method(1, spec.Basic.Deliver("q1", tag, False, "", "q1")),
        frame.Header(1, len(body), BasicProperties(delivery_mode=2)),
        frame.Body(1, body[:100]),
        frame.Body(1, body[100:]),
    ]
    return b"".join(each.marshal() for each in frames)


def cut(wire: bytes, piece_bytes: int = 1 << 20) -> list[Unit]:
    cutter = Cutter()
    pieces = [wire[at : at + piece_bytes] for at in range(0, len(wire), piece_bytes)]
    return [unit for piece in pieces for unit in cutter.cut(piece)]


@pytest.mark.parametrize("piece_bytes", [1, 7, 64, 1 << 20])
def test_whatever_the_pieces_each_message_is_one_unit_and_no_byte_changes(piece_bytes: int) -> None:
    wire = GREETING + published(0) + HEARTBEAT + published(1) + delivered(1, 2)
    units = cut(wire, piece_bytes)
    assert b"".join(unit.wire for unit in units) == wire
    assert [unit.body for unit in units if unit.body] == [MESSAGES.encode(n) for n in (0, 1, 2)]


def test_an_unfinished_message_is_held_back() -> None:
    assert [unit.wire for unit in cut(HEARTBEAT + published(0)[:-1])] == [HEARTBEAT]


class Heard:
    """What the client of a conversation was told beside what the broker said."""

    def __init__(self) -> None:
        self.wire = b""

    def write(self, data: bytes) -> None:
        self.wire += data


def lied(lie: str, at: int, folder: Path) -> tuple[Liar, Any]:
    return Liar(lie, lambda seen: seen == at, folder / "told"), Conversation(Heard())  # type: ignore[arg-type]


def told(folder: Path) -> list[tuple[int, int]]:
    file = folder / "told"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [(row["publisher"], row["sequence"]) for row in rows]


def sequences(wire: bytes) -> list[tuple[int, bytes]]:
    """The deliveries, by their tags, with their bodies."""
    return [(unit.method.delivery_tag, unit.body) for unit in cut(wire)]


@pytest.mark.parametrize(
    ("lie", "left"),
    [
        ("none", [(1, 10), (2, 11), (3, 12), (4, 13)]),
        ("drop", [(1, 10), (3, 12), (4, 13)]),
        ("duplicate", [(1, 10), (2, 11), (2, 11), (3, 12), (4, 13)]),
        ("reorder", [(1, 10), (2, 12), (3, 11), (4, 13)]),
    ],
)
def test_a_lie_about_a_delivery(lie: str, left: list[tuple[int, int]], tmp_path: Path) -> None:
    liar, conversation = lied(lie, 2, tmp_path)
    wire = b"".join(delivered(tag, 9 + tag) + HEARTBEAT for tag in range(1, 5))
    given = b"".join(liar.from_broker(unit, conversation) for unit in cut(wire))
    assert sequences(given.replace(HEARTBEAT, b"")) == [(tag, MESSAGES.encode(n)) for tag, n in left]
    assert told(tmp_path) == ([] if lie == "none" else [(2, 11)])


def test_a_damaged_message_is_of_the_same_length_and_of_no_one(tmp_path: Path) -> None:
    liar, conversation = lied("corrupt", 1, tmp_path)
    (unit,) = cut(liar.from_broker(cut(delivered(1, 5))[0], conversation))
    assert len(unit.body) == len(MESSAGES.encode(5))
    assert sum(a != b for a, b in zip(unit.body, MESSAGES.encode(5), strict=True)) == 1
    assert told(tmp_path) == [(2, 5)]


@pytest.mark.parametrize("multiple", [False, True])
def test_a_refusal_becomes_a_confirm(multiple: bool, tmp_path: Path) -> None:
    liar, conversation = lied("confirm_what_is_refused", 1, tmp_path)
    for sequence in range(3):
        (unit,) = cut(published(sequence))
        assert liar.from_client(unit, conversation) == published(sequence)
    refusal = frame.Method(1, spec.Basic.Nack(3, multiple)).marshal()
    given = [unit.method for unit in cut(liar.from_broker(cut(refusal)[0], conversation))]
    assert isinstance(given[0], spec.Basic.Ack)
    assert (given[0].delivery_tag, given[0].multiple) == (3, False)
    assert [type(method) for method in given[1:]] == ([spec.Basic.Nack] if multiple else [])
    assert told(tmp_path) == [(2, 2)]
    assert liar.from_broker(cut(refusal)[0], conversation) == refusal


def test_what_is_confirmed_before_it_is_forwarded_never_is(tmp_path: Path) -> None:
    liar, conversation = lied("confirm_what_is_not_forwarded", 2, tmp_path)
    first, second = cut(published(0) + published(1))
    assert liar.from_client(first, conversation) == published(0)
    assert liar.from_client(second, conversation) == b""
    (confirm,) = cut(conversation.client.wire)
    assert (confirm.method.delivery_tag, confirm.method.multiple) == (2, False)
    assert conversation.broken_off
    assert told(tmp_path) == [(2, 1)]
