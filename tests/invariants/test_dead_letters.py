"""Dead letters: what is judged of generated histories is what was planted in them, told a second time row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.invariants.dead_letters import DeadLetterPromise
from rabbitmq_resilience.invariants.no_loss import NoLoss
from rabbitmq_resilience.invariants.order import Order
from rabbitmq_resilience.invariants.uptime import Uptime
from rabbitmq_resilience.invariants.verdict import History, Verdict
from rabbitmq_resilience.record.history import DELIVERIES, PUBLISHES, Outcome, StreamWriter
from rabbitmq_resilience.record.letters import Letters
from rabbitmq_resilience.record.routes import Routes
from rabbitmq_resilience.workloads.dead_letters import Rejected
from rabbitmq_resilience.workloads.drain import Tally
from rabbitmq_resilience.workloads.load import deliveries_path, publishes_path
from tests.invariants.literal import THREE, Row, cluster, deliver, event, fault, history, node_states, phases, publish

#: The dead letters of q1 and q3 go to d1 and those of q2 to d2.
QUEUES = ("q1", "d1", "q2", "q3", "d2")
TAKEN_BY = {"q1": "d1", "q2": "d2", "q3": "d1"}
PUBLISHED, TAKING = (0, 2, 3), {0: 1, 2: 4, 3: 1}


@dataclass(frozen=True)
class Setting:
    at_least_once: bool
    limited: bool
    faulty: bool
    reject_one_in: int | None
    kind: str = "quorum"
    version: str = "3.10.8"

    def events(self) -> list[Any]:
        places = {name: {"type": self.kind, "members": list(THREE), "leader": "a1"} for name in QUEUES}
        letters = {
            "queues": TAKEN_BY,
            "strategy": "at_least_once" if self.at_least_once else "at_most_once",
            "reject_one_in": self.reject_one_in,
            "limited": self.limited,
        }
        killed = [fault(20, 50, down=["c1"], name="kill")] if self.faulty else []
        declared = event(0, "queues", queues=places, dead_letters=letters)
        return [cluster(version=self.version), declared, phases(), node_states(), *killed]


settings = st.builds(
    Setting,
    at_least_once=st.booleans(),
    limited=st.booleans(),
    faulty=st.booleans(),
    reject_one_in=st.sampled_from([None, 1, 2, 5]),
    kind=st.sampled_from(["quorum", "classic"]),
    version=st.sampled_from(["3.10.8", "4.0.5"]),
)


@dataclass(frozen=True)
class Told:
    """What a history says, and what is true of it."""

    publishes: Sequence[Row]
    deliveries: Sequence[Row]
    owed: int
    lost_letters: int
    lost: int
    unasked: int
    letters: int
    unconsumed: int

    def history(self, setting: Setting) -> History:
        return history(self.publishes, self.deliveries, setting.events())


def told(setting: Setting, random: Random, *, messages: int, losses: int) -> Told:
    """Row by row: each message is sent, maybe confirmed, maybe received (again), maybe a dead letter (again)."""
    rejected = Rejected(setting.reject_one_in) if setting.reject_one_in else lambda *_: False
    publishes, deliveries = [], []
    numbers = dict.fromkeys(("owed", "lost_letters", "lost", "unasked", "letters", "unconsumed"), 0)
    for publisher, sequence in ((p, s) for p in range(2) for s in range(messages)):
        queue, at_s = random.choice(PUBLISHED), 1 + 80 * sequence / messages
        outcome = random.choice([*[Outcome.CONFIRMED] * 6, Outcome.UNKNOWN, Outcome.NACKED])
        publishes.append(publish(sequence, at_s, outcome, publisher=publisher, queue=queue))
        confirmed = outcome is Outcome.CONFIRMED
        fields: dict[str, Any] = {"publisher": publisher, "sequence": sequence}
        came = (confirmed or random.random() < 0.3) and not (setting.limited and random.random() < 0.3)
        letter = (came and rejected(publisher, sequence)) or (confirmed and not came)
        if losses and random.random() < 0.2:
            losses -= 1
            came, letter = random.choice([(came, False), (False, letter), (False, False), (came, True)])
        again_s = random.choice([None, 0.5])
        if came:
            deliveries.append(deliver(at_s=at_s + 0.1, queue=queue, **fields))
            if again_s is not None:
                deliveries.append(deliver(at_s=at_s + again_s, queue=queue, again=True, **fields))
        if letter:
            as_letter = deliver(at_s=at_s + 0.2, queue=TAKING[queue], consumer=1, **fields)
            deliveries += [as_letter] * random.choice([1, 1, 2])
        asked = confirmed and (rejected(publisher, sequence) or (setting.limited and not came))
        numbers["owed"] += asked
        numbers["lost_letters"] += asked and not letter
        numbers["lost"] += confirmed and not came and not letter
        numbers["unasked"] += letter and not rejected(publisher, sequence)
        numbers["letters"] += letter
        accepted = came and not rejected(publisher, sequence)
        numbers["unconsumed"] += confirmed and not accepted and not letter
    deliveries.sort(key=lambda row: row["received_us"])
    return Told(publishes, deliveries, **numbers)


drawn = st.tuples(settings, st.randoms(use_true_random=False), st.integers(1, 60), st.sampled_from([0, 0, 1, 5]))


@given(drawn)
def test_what_is_judged_is_what_was_planted(drawn: tuple[Setting, Random, int, int]) -> None:
    setting, random, messages, losses = drawn
    made = told(setting, random, messages=messages, losses=losses)
    recorded = made.history(setting)
    found = DeadLetterPromise().check(recorded)
    permitted = setting.faulty and not setting.at_least_once
    gives_up_by_itself = setting.kind == "quorum" and setting.version.startswith("4")
    unasked = 0 if setting.limited or gives_up_by_itself else made.unasked
    assert found.numbers["owed"] == made.owed
    assert found.numbers["lost"] == (0 if permitted else made.lost_letters)
    assert found.numbers["lost_permitted"] == (made.lost_letters if permitted else 0)
    assert (found.numbers["unasked"], found.numbers["arrived"]) == (unasked, made.letters)
    wrong = found.numbers["lost"] or unasked
    if wrong:
        assert found.verdict is Verdict.INVALID
    else:
        assert found.verdict is not Verdict.INVALID
    if not made.owed and not wrong:
        assert found.verdict is Verdict.UNKNOWN
    lost = NoLoss().check(recorded).numbers
    assert (lost["lost"], lost["unexpected"], lost["misrouted"]) == (made.lost, 0, 0)


@given(drawn)
def test_the_tally_waits_for_what_was_rejected(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[Setting, Random, int, int]
) -> None:
    setting, random, messages, losses = drawn
    made = told(setting, random, messages=messages, losses=losses)
    folder = tmp_path_factory.mktemp("tally")
    routes = Routes.of([[queue] for queue in PUBLISHED])
    sent = [{**row, "route": PUBLISHED.index(row["queue"])} for row in made.publishes]
    _write(publishes_path(folder, "publisher-0", 0), PUBLISHES, sent)
    _write(deliveries_path(folder, "consumer-0", 0), DELIVERIES, made.deliveries)
    tally = Tally(folder, publishers=2, routes=routes, letters=Letters(TAKING, setting.reject_one_in))
    tally.update()
    assert tally.unconsumed == made.unconsumed


def _write(path: Path, schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> None:
    writer = StreamWriter(path, schema)
    if rows:
        writer.append({name: [row[name] for row in rows] for name in schema.names})
    writer.close()


PLAIN = Setting(at_least_once=True, limited=False, faulty=True, reject_one_in=1, kind="classic")


def test_what_is_missing_is_named() -> None:
    rows = [publish(n, 1 + n) for n in range(40)]
    came = [deliver(n, 1.1 + n) for n in range(40)]
    letters = [deliver(n, 1.2 + n, queue=1, consumer=1) for n in range(40) if n != 25]
    finding = DeadLetterPromise().check(history(rows, came + letters, PLAIN.events()))
    assert finding.verdict is Verdict.INVALID
    assert finding.examples == (
        "lost: publisher 0 sequence 25 of q1, confirmed +26.005 s, never came from d1 as a dead letter, phase chaos, "
        "beside step 0 (kill)",
    )


def test_a_letter_from_the_queue_of_others_is_unexpected() -> None:
    rows, came = [publish(0)], [deliver(0)]
    found = history(rows, [*came, deliver(0, 1.2, queue=4, consumer=1)], PLAIN.events())
    assert NoLoss().check(found).numbers["misrouted"] == 1
    assert DeadLetterPromise().check(found).numbers["lost"] == 1


def test_a_letter_that_was_never_sent_is_unexpected() -> None:
    found = history([publish(0)], [deliver(0), deliver(7, 1.2, queue=1, consumer=1)], PLAIN.events())
    assert NoLoss().check(found).numbers["unexpected"] == 1


def test_dead_letters_have_no_order() -> None:
    rows = [publish(n, 1 + n / 10) for n in range(10)]
    came = [deliver(n, 1.1 + n / 10) for n in range(10)]
    letters = [deliver(9 - n, 3 + n / 10, queue=1, consumer=1) for n in range(10)]
    quiet = Setting(at_least_once=True, limited=False, faulty=False, reject_one_in=1)
    assert Order().check(history(rows, came + letters, quiet.events())).verdict is Verdict.VALID


def test_nobody_publishes_to_queues_of_dead_letters() -> None:
    """So they are not without confirms."""
    rows = [publish(3 * n + i, 1 + n / 10, queue=queue) for n in range(880) for i, queue in enumerate(PUBLISHED)]
    finding = Uptime(outage_s_max=5).check(history(rows, (), PLAIN.events()))
    assert finding.verdict is Verdict.VALID, finding.summary


def test_a_load_without_dead_letters_promises_none() -> None:
    events = [cluster(), event(0, "queues", queues={"q1": {"type": "quorum", "members": list(THREE)}}), phases()]
    finding = DeadLetterPromise().check(history([publish(0)], [deliver(0)], events))
    assert (finding.verdict, finding.summary) == (
        Verdict.UNKNOWN,
        "the load has no dead_letters: state them in the workload",
    )


def test_nothing_is_said_of_a_fault_after_which_nothing_came() -> None:
    finding = DeadLetterPromise().check(
        history([publish(0)], [deliver(0), deliver(0, 1.2, queue=1, consumer=1)], PLAIN.events())
    )
    assert finding.verdict is Verdict.UNKNOWN
    assert "no message was received after step 0 (kill) had begun" in finding.summary


@given(st.integers(1, 50), st.integers(0, 1000), st.integers(0, 10**7))
def test_who_rejects_and_who_judges_draw_alike(one_in: int, publisher: int, first: int) -> None:
    rejected = Rejected(one_in)
    sequence = np.arange(first, first + 300)
    drawn = Letters({}, one_in).rejected(np.full(300, publisher), sequence)
    assert [rejected(publisher, one) for one in sequence.tolist()] == drawn.tolist()


def test_one_in_so_many_is_rejected() -> None:
    for one_in in (1, 2, 10, 100):
        drawn = Letters({}, one_in).rejected(np.full(200_000, 3), np.arange(200_000))
        assert drawn.mean() == pytest.approx(1 / one_in, rel=0.1)
