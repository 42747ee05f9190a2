"""Sizes and priorities that a load mixes: drawn as its weights tell, and known from a message's number alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame
from pydantic import ValidationError

from rabbitmq_resilience.history.draws import Priorities, Weighted, draws
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.workload.load import Load
from rabbitmq_resilience.workload.message import HEADER_BYTES, Encoder, Identity, decode
from rabbitmq_resilience.workload.mix import MESSAGE_BYTES_MAX, MessageKind, Mix
from rabbitmq_resilience.workload.queues import queue_arguments
from rabbitmq_resilience.workload.routing import PublishArguments
from rabbitmq_resilience.workload.wire import PublishFrames
from rabbitmq_resilience.workload.workload_model import Workload
from tests.messages import Messages
from tests.workloads import hosted
from tests.workloads.refusals import LINKS
from tests.workloads.rig import Notes, Rig, Wire
from tests.workloads.test_settlement import load

BITS = 2**64 - 1
SIZES = ({"message_bytes": 24, "weight": 7}, {"message_bytes": 1000, "weight": 2}, {"message_bytes": 300, "weight": 1})


def drawn_slowly(publisher: int, sequence: int, seed: int) -> int:
    """In Python's own numbers."""

    def mixed(number: int) -> int:
        number &= BITS
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            number = (number ^ number >> shift) * factor & BITS
        return number ^ number >> 31

    counter = [seed & BITS, publisher]
    for _ in range(2):
        counter = [mixed((number + 1) * 0x9E3779B97F4A7C15) for number in counter]
    return mixed((sequence + (counter[0] ^ counter[1] << 1 & BITS)) * 0x9E3779B97F4A7C15)


@given(st.integers(0, 2**32), st.integers(0, 2**32), st.integers(0, 2**63 - 1))
def test_a_draw_is_the_same_for_all_who_compute_it(publisher: int, sequence: int, seed: int) -> None:
    expected = [drawn_slowly(publisher, sequence + place, seed) for place in range(3)]
    assert draws(publisher, np.arange(sequence, sequence + 3), seed=seed).tolist() == expected


@pytest.mark.parametrize("publisher", [0, 1, 7])
@pytest.mark.parametrize("seed", [0, 1, 4711])
def test_each_choice_is_drawn_as_often_as_its_weight_shows(publisher: int, seed: int) -> None:
    drawn = Counter(Weighted((7, 2, 1), seed).of(publisher, np.arange(20_000)).tolist())
    assert {choice: round(count / 2000) for choice, count in drawn.items()} == {0: 7, 1: 2, 2: 1}


def test_publishers_and_seeds_draw_apart_from_each_other() -> None:
    rows = [draws(publisher, np.arange(50), seed=seed).tolist() for publisher in range(20) for seed in range(20)]
    assert len({number for row in rows for number in row}) == 20 * 20 * 50


def test_a_plain_load_has_one_kind() -> None:
    mix = load().mix
    assert (mix.kinds, mix.of(0, 3, 6)) == ([MessageKind(100, None)], [0, 0, 0])


@given(st.integers(0, 9), st.integers(0, 10**6), st.integers(0, 30), st.sampled_from([(), (0, 9), (4, 4, 1)]))
def test_kinds_are_by_number_wherever_a_row_of_messages_begins(
    publisher: int, first: int, count: int, priorities: tuple[int, ...]
) -> None:
    mix = Mix(((24, 7), (1000, 2)), priorities, 5)
    whole = mix.of(publisher, first, first + count)
    assert whole == [kind for n in range(first, first + count) for kind in mix.of(publisher, n, n + 1)]
    told = [mix.kinds[kind].priority for kind in whole]
    sequence = np.arange(first, first + count)
    assert told == (Priorities(priorities).of(publisher, sequence).tolist() if priorities else [None] * count)


def messages(written: Sequence[bytes]) -> Iterator[tuple[Any, bytes]]:
    """Properties and body of each, as pika reads the frames."""
    for data in written:
        frames, at = [], 0
        while at < len(data):
            size, one = frame.decode_frame(data[at:])
            at += size
            frames.append(one)
        _, header, *bodies = frames
        body = b"".join(piece.fragment for piece in bodies)
        assert header.body_size == len(body)
        yield header.properties, body


def published(folder: Path, load: Load) -> list[tuple[Any, bytes]]:
    notes = Notes()
    client = hosted.publisher(load, folder, notes)
    wire = Wire(notes)
    rig = Rig(folder, client, notes, wire)
    rig.connect()
    client.tick()
    rig.close()
    return list(messages(wire.messages))


def test_what_is_published_has_the_size_and_the_priority_that_are_drawn(tmp_path: Path) -> None:
    mixed = load(queues=2, in_flight=1000, message_sizes=SIZES, priorities=(0, 0, 9))
    found = published(tmp_path, mixed)
    kinds = [mixed.mix.kinds[kind] for kind in mixed.mix.of(0, 0, 1000)]
    assert [MessageKind(len(body), properties.priority) for properties, body in found] == kinds
    assert [decode(body) for _, body in found] == [Identity(1, 0, n) for n in range(1000)]
    assert {MessageKind(size, priority) for size in (24, 1000, 300) for priority in (0, 9)} == set(kinds)


def test_the_largest_message_is_cut_into_frames_and_whole_again() -> None:
    payload = bytes(range(256)) * (MESSAGE_BYTES_MAX // 256)
    encoder = Encoder(1, 2, payload[: MESSAGE_BYTES_MAX - HEADER_BYTES])
    frames = PublishFrames(
        channel=1,
        turn=PublishArguments("", "q1", {}),
        payload=encoder.payload,
        persistent=True,
        frame_max_bytes=131_072,
        priority=3,
    )
    ((properties, body),) = messages([frames.marshal(encoder.header(7))])
    assert (len(body), decode(body), properties.priority) == (MESSAGE_BYTES_MAX, Identity(1, 2, 7), 3)


def test_a_mixed_load_is_read_as_it_was_saved(tmp_path: Path) -> None:
    saved = load(message_sizes=SIZES, priorities=(0, 9))
    saved.save(tmp_path)
    assert Load.read(tmp_path) == saved


THREE = topology_catalogue.load("three_nodes_three_zones")


@pytest.mark.parametrize(("kind", "told"), [("classic", {"x-max-priority": 9}), ("mirrored", {"x-max-priority": 9})])
def test_classic_queues_are_declared_with_the_highest_priority(kind: str, told: dict[str, int]) -> None:
    plain = Workload.model_validate({"queue_type": kind})
    assert queue_arguments(plain.model_copy(update={"priorities": (0, 9, 3)}), THREE) == {
        **queue_arguments(plain, THREE),
        **told,
    }


def test_quorum_queues_take_no_such_argument() -> None:
    assert queue_arguments(Workload(priorities=(0, 9)), THREE) == queue_arguments(Workload(), THREE)


@pytest.mark.parametrize(
    "fields",
    [
        {"message_sizes": [{"message_bytes": 23}]},
        {"message_sizes": [{"message_bytes": 16777217}]},
        {"message_sizes": [{"message_bytes": 24, "weight": 0}]},
        {"message_sizes": [{"message_bytes": 24}], "message_bytes": 2000},
        {"priorities": [0, 32]},
        {"queue_type": "classic", "priorities": [256]},
        {"queue_type": "classic", "priorities": [0, 0]},
    ],
)
def test_refused(fields: dict[str, Any], message: Messages) -> None:
    with message.of(ValidationError, hide=LINKS):
        Workload.model_validate(fields)


def test_a_mixed_workload_can_be_scaled() -> None:
    mixed = Workload.model_validate({"message_sizes": SIZES, "priorities": [0, 9], "queues": 2})
    assert mixed.scaled(2).message_sizes == mixed.message_sizes
