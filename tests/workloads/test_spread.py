"""How a publisher's messages spread over queues and channels, against a broker that counts the bytes it is given."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.workload.message import decode
from rabbitmq_resilience.workload.spread import Spread
from rabbitmq_resilience.workload.workload_model import Workload
from tests.messages import Messages
from tests.workloads import hosted
from tests.workloads.refusals import LINKS
from tests.workloads.rig import Notes, Rig, Wire
from tests.workloads.test_publisher import nack, table
from tests.workloads.test_settlement import load


class Arrived(NamedTuple):
    """A message as the bytes on the wire tell it."""

    channel: int
    queue: str
    sequence: int


def arrived(message: bytes) -> Arrived:
    """A small one: a method frame (basic.publish to the default exchange), a header frame and one body frame."""
    _, channel, method_bytes = struct.unpack_from(">BHI", message)
    key_at = 7 + 4 + 2 + 1  # class and method, a reserved short, the empty name of the exchange
    queue = message[key_at + 1 : key_at + 1 + message[key_at]].decode()
    header_at = 7 + method_bytes + 1
    (header_bytes,) = struct.unpack_from(">I", message, header_at + 3)
    identity = decode(message[header_at + 7 + header_bytes + 1 + 7 : -1])
    assert identity is not None
    return Arrived(channel, queue, identity.sequence)


@dataclass
class Broker:
    """The slow way: each message has an outcome of its own, and is looked for from the first one on."""

    wire: Wire
    seen: list[Arrived] = field(default_factory=list)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    tags: dict[int, list[int]] = field(default_factory=dict)  # channel: the sequences of its tags, from 1

    def read(self) -> None:
        for message in self.wire.messages[len(self.seen) :]:
            self.seen.append(arrived(message))
            self.tags.setdefault(self.seen[-1].channel, []).append(self.seen[-1].sequence)

    def answer(self, channel: int, tag: int, *, multiple: bool, outcome: Outcome) -> None:
        for number, sequence in enumerate(self.tags.get(channel, []), 1):
            if number == tag or (multiple and number < tag):
                self.outcomes.setdefault(sequence, outcome)

    def lose(self) -> None:
        for sequence in (sequence for sequences in self.tags.values() for sequence in sequences):
            self.outcomes.setdefault(sequence, Outcome.UNKNOWN)
        self.tags.clear()


QUEUES = ("q1", "q2", "q3")
answers = st.tuples(
    st.sampled_from([Outcome.CONFIRMED, Outcome.NACKED]), st.integers(1, 3), st.integers(1, 9), st.booleans()
)
steps = st.lists(st.one_of(answers, st.sampled_from(["tick", "lose"])), max_size=60)


@given(steps, st.sampled_from(["one", "per_queue"]), st.integers(1, 4), st.integers(1, 3), st.integers(1, 12))
def test_each_message_ends_as_the_broker_says_on_its_own_channel(  # noqa: PLR0917 - what is generated
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], channel: str, run: int, queues: int, in_flight: int
) -> None:
    folder, notes = tmp_path_factory.mktemp("history"), Notes()
    spread = {"channel": channel, "run": run}
    stated = load(in_flight=in_flight, queues=queues, spread=spread)
    rig = Rig(folder, hosted.publisher(stated, folder, notes), notes, Wire(notes))
    rig.connect()
    broker = Broker(rig.wire)
    broker.read()
    for step in steps:
        if step == "tick":
            rig.publisher.tick()
        elif step == "lose":
            broker.lose()
            rig.publisher.lost()
            rig.connect()
        elif step[1] <= rig.wire.channels:
            outcome, number, tag, multiple = step
            broker.answer(number, tag, multiple=multiple, outcome=outcome)
            if outcome is Outcome.CONFIRMED:
                rig.confirm(tag, multiple, channel=number)
            else:
                rig.wire.on_nack(nack(tag, multiple=multiple, channel=number))
        broker.read()
        assert len(broker.seen) - len(broker.outcomes) <= in_flight
    broker.lose()
    rig.publisher.lost()
    rows = table(rig)
    assert [row["sequence"] for row in rows] == list(range(len(rows))), "each message has one outcome"
    assert {row["sequence"]: Outcome(row["outcome"]) for row in rows} == broker.outcomes
    assert [(row["sequence"], QUEUES[row["route"]]) for row in rows] == [(a.sequence, a.queue) for a in broker.seen]
    assert [row["route"] for row in rows] == [n // run % queues for n in range(len(rows))]
    assert {(a.queue, a.channel) for a in broker.seen} <= {
        (queue, place if channel == "per_queue" else 1) for place, queue in enumerate(QUEUES, 1)
    }, "messages to one queue go over one channel, within which their order is promised"
    hosted.close(rig.publisher)


def test_patience_is_with_the_oldest_on_any_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    notes = Notes()
    stated = load(in_flight=3, queues=len(QUEUES), spread={"channel": "per_queue"})
    rig = Rig(tmp_path, hosted.publisher(stated, tmp_path, notes), notes, Wire(notes))
    rig.connect()
    sent_us = rig.sent_us()
    monkeypatch.setattr("rabbitmq_resilience.workload.publisher.now_us", lambda: sent_us + 31_000_000)
    for channel in (1, 3):
        rig.confirm(1, False, channel=channel)
    rig.publisher.tick()
    (failure,) = rig.notes.failures
    message(failure)
    hosted.close(rig.publisher)


def test_more_channels_than_a_connection_may_have_are_refused(message: Messages) -> None:
    wide = Spread(channel="per_queue")
    assert wide.problem(queues=4094, publishers=2) == Spread().problem(queues=10_000, publishers=1) == ""
    message(wide.problem(queues=4095, publishers=2))


def test_copies_are_of_single_messages(message: Messages) -> None:
    with message.of(ValidationError, hide=LINKS):
        Workload.model_validate({"copy_every": 10, "spread": {"run": 10}})
