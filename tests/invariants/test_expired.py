"""What is lost with queues that expire: broker and clients played moment by moment, and what is judged of that."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.exclusive_owners import NOTICED_EARLIER_S
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.verdict import History, Verdict
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import (
    Row,
    cluster,
    deliver,
    event,
    fault,
    history,
    load,
    node_states,
    phases,
    publish,
    us,
)

EXPIRES_S = 15.0
#: Of the moments, ten to a second.
END = 900


@dataclass
class Played:
    """What happened, and which messages are gone with the queue. ``away``: when the consumer was, by moments, and
    whether it was killed."""

    events: list[Any] = field(default_factory=list)
    publishes: list[Row] = field(default_factory=list)
    deliveries: list[Row] = field(default_factory=list)
    expired: set[int] = field(default_factory=set)
    away: list[tuple[int, int, bool]] = field(default_factory=list)

    def consumer(self, at: int, what: str) -> None:
        self.events.append(event(at / 10, "worker", worker="consumer-0", event=what, node="a1"))

    def history(self) -> History:
        places = {"q1": {"type": "expiring", "members": ["a1"], "leader": "a1", "consumer": 0, "expires_s": EXPIRES_S}}
        made = [cluster(), event(0, "queues", queues=places), phases(), node_states(), load(10, 10)]
        return history(self.publishes, self.deliveries, [*made, *self.events])

    def may_be_gone(self, number: int) -> bool:
        """Whether the queue may have expired with that message in it, as far as clients know."""
        later_us = [row["received_us"] for row in self.deliveries if row["sequence"] > number]
        return any(
            number < back and min(later_us, default=us(END)) > us(gone / 10) and (back - noticed) / 10 >= EXPIRES_S
            for gone, back, killed in self.away
            for noticed in [gone if killed else gone - 10 * NOTICED_EARLIER_S]
        )


def played(random: Random, *, losses: int) -> Played:
    """One message a moment. The consumer is there and away in turn: it is killed, which its broker notices then or
    later, or its connection is lost, which the broker may notice before. From then on the queue has its time; where it
    is gone, messages are returned. So many ``losses`` are planted besides."""
    told = Played()
    told.consumer(1, "connected")
    held: list[int] = []
    there, queue_is_there, gone, back, noticed = True, True, random.randrange(50, 200), 0, 0
    for at in range(2, END):
        if there and at == gone:
            killed = random.random() < 0.5
            told.consumer(at, "killed" if killed else "connection_lost")
            earlier = 0 if killed else random.randrange(10 * int(NOTICED_EARLIER_S))
            noticed = at + random.choice([random.randrange(20), -earlier])
            there, back = False, min(END - 20, at + random.choice([5, 30, 100, 140, 149, 150, 160, 200, 300]))
            told.away.append((at, back, killed))
        if not there and at == back:
            told.consumer(at, "connected")
            there, queue_is_there, gone = True, True, at + random.randrange(20, 200)
            gone = gone if gone < END - 40 else END
        if not there and queue_is_there and at >= noticed + 10 * EXPIRES_S:
            told.expired |= {*held}
            held, queue_is_there = [], False
        told.publishes.append(publish(at, at / 10, Outcome.CONFIRMED if queue_is_there else Outcome.RETURNED))
        held += [at] if queue_is_there else []
        if there:
            told.deliveries += [deliver(number, at / 10 + 0.01) for number in held]
            held = []
    planted = random.sample([row["sequence"] for row in told.deliveries], losses)
    told.deliveries = [row for row in told.deliveries if row["sequence"] not in planted]
    return told


@given(st.randoms(use_true_random=False), st.sampled_from([0, 0, 1, 20]))
def test_what_expired_may_be_lost_and_nothing_else(random: Random, losses: int) -> None:
    told = played(random, losses=losses)
    received = {row["sequence"] for row in told.deliveries}
    missing = [row["sequence"] for row in told.publishes if row["outcome"] == Outcome.CONFIRMED]
    missing = [number for number in missing if number not in received]
    permitted = [number for number in missing if told.may_be_gone(number)]
    assert told.expired <= {*permitted}
    found = NoLoss().check(told.history())
    assert (found.numbers["lost"], found.numbers["lost_permitted"]) == (len(missing) - len(permitted), len(permitted))
    assert found.verdict is (Verdict.INVALID if len(missing) > len(permitted) else Verdict.VALID)
    assert ("expires" in found.summary) == bool(permitted)


@pytest.mark.parametrize(
    ("ended", "back_s", "apart", "verdict"),
    [
        ("killed", 46, False, Verdict.VALID),
        ("killed", 44, False, Verdict.INVALID),
        ("killed", 44, True, Verdict.VALID),  # the broker may have missed it before
        ("connection_lost", 36, False, Verdict.VALID),
        ("connection_lost", 34, False, Verdict.INVALID),
        ("connection_lost", None, False, Verdict.VALID),
    ],
)
def test_a_queue_had_to_be_without_its_consumer_for_as_long(
    ended: str, back_s: float | None, apart: bool, verdict: Verdict
) -> None:
    told = Played(publishes=[publish(0, 20), publish(1, 80)], deliveries=[deliver(1, 81)])
    told.consumer(10, "connected")
    told.consumer(300, ended)
    if back_s is not None:
        told.consumer(round(10 * back_s), "connected")
    if apart:
        told.events.append(fault(25, 35, down=["a1"], name="pause"))
    assert NoLoss().check(told.history()).verdict is verdict
