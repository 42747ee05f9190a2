"""What a message costs does not depend on whether the load varies or takes time: counted in calls, not in seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rabbitmq_resilience.workload.counters import Count
from rabbitmq_resilience.workload.message import Encoder
from tests.workloads import hosted
from tests.workloads.rig import Notes, Rig, Wire
from tests.workloads.test_consumer import Acks
from tests.workloads.test_consumer import Wire as consumer_wire
from tests.workloads.test_settlement import load

MESSAGES = 1000
#: For each batch or tick, however many messages it holds.
CALLS_MAX = 30


def calls_of(act: Callable[[], object]) -> int:
    """How many Python functions are called while it acts."""
    count = 0

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


@pytest.fixture
def notes() -> Notes:
    return Notes()


def calls_to_consume(folder: Path, notes: Notes, **fields: Any) -> int:
    folder.mkdir()
    later: list[Callable[[], None]] = []
    stated = load(prefetch=MESSAGES, ack_every=50, **fields)
    client = hosted.consumer(stated, folder, notes, later=later.append)
    wire = consumer_wire(Acks(lambda: notes.counts[Count.RECORDED]))
    client.opened(wire, 0)
    client.vary(0)
    bodies = [Encoder(1, 0, b"payload").encode(sequence) for sequence in range(MESSAGES)]

    def consume() -> None:
        for tag, body in enumerate(bodies, 1):
            wire.on_delivery(b"q1", tag, False, body)
        wire.on_data()
        client.tick()
        while later:
            later.pop()()

    try:
        return calls_of(consume)
    finally:
        hosted.close(client)


def calls_to_publish(folder: Path, notes: Notes, **fields: Any) -> int:
    folder.mkdir()
    notes.counts.clear()
    client = hosted.publisher(load(in_flight=MESSAGES, **fields), folder, notes)
    rig = Rig(folder, client, notes, Wire(notes))
    client.vary(0)
    try:
        return calls_of(rig.connect) + calls_of(client.tick)
    finally:
        hosted.close(client)
        assert rig.wire.written == MESSAGES


def test_processing_time_adds_no_call_to_a_delivery(tmp_path: Path, notes: Notes) -> None:
    calls_to_consume(tmp_path / "first", notes)  # makes some that no later one makes
    plain = calls_to_consume(tmp_path / "plain", notes)
    assert plain >= MESSAGES, "each delivery is decoded"
    assert abs(calls_to_consume(tmp_path / "slow", notes, processing_ms=20) - plain) < CALLS_MAX
    steps = ({"processing_ms": 20.0, "for_s": 3600},)
    assert abs(calls_to_consume(tmp_path / "varying", notes, variable_processing=steps) - plain) < CALLS_MAX


def test_a_variable_rate_adds_no_call_to_a_publish(tmp_path: Path, notes: Notes) -> None:
    calls_to_publish(tmp_path / "first", notes)
    plain = calls_to_publish(tmp_path / "plain", notes)
    assert plain >= MESSAGES, "each message has a header of its own"
    steps = ({"rate_per_s": None, "for_s": 3600},)
    assert abs(calls_to_publish(tmp_path / "varying", notes, variable_rate=steps) - plain) < CALLS_MAX
