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

from rabbitmq_resilience.invariants.dead_letters import SETTLED_WITHIN_S, DeadLetterPromise
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
FAULT_S = 20
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
        killed = [fault(FAULT_S, 50, down=["c1"], name="kill")] if self.faulty else []
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
    #: Of the lost letters those whose messages were received more than ten seconds before the fault.
    early: int
    repeated: int

    def history(self, setting: Setting) -> History:
        return history(self.publishes, self.deliveries, setting.events())


def told(setting: Setting, random: Random, *, messages: int, losses: int) -> Told:
    """Row by row: each message is sent, maybe confirmed, maybe received (again), maybe a dead letter (again)."""
    rejected = Rejected(setting.reject_one_in) if setting.reject_one_in else lambda *_: False
    publishes, deliveries = [], []
    numbers = dict.fromkeys(
        ("owed", "lost_letters", "lost", "unasked", "letters", "unconsumed", "early", "repeated"), 0
    )
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
            times = random.choice([1, 1, 2])
            deliveries += [as_letter] * times
            numbers["repeated"] += times - 1
        turned_down = came and rejected(publisher, sequence)
        asked = turned_down or (setting.limited and confirmed and not came)
        numbers["owed"] += asked
        numbers["lost_letters"] += asked and not letter
        last_s = at_s + max(0.1, again_s or 0)
        numbers["early"] += turned_down and not letter and last_s < FAULT_S - SETTLED_WITHIN_S
        numbers["lost"] += confirmed and not came and not letter
        numbers["unasked"] += letter and not turned_down
        numbers["letters"] += letter
        accepted = came and not rejected(publisher, sequence)
        numbers["unconsumed"] += (confirmed or turned_down) and not accepted and not letter
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
    gives_up_by_itself = setting.kind == "quorum" and setting.version.startswith("4") and setting.faulty
    unasked = 0 if setting.limited or gives_up_by_itself else made.unasked
    lost_letters = made.early if permitted else made.lost_letters
    assert found.numbers["owed"] == made.owed
    assert found.numbers["lost"] == lost_letters
    assert found.numbers["lost_permitted"] == made.lost_letters - lost_letters
    assert (found.numbers["unasked"], found.numbers["arrived"]) == (unasked, made.letters)
    doubled = made.repeated if not setting.faulty and not setting.at_least_once else 0
    wrong = lost_letters or unasked or doubled
    if wrong:
        assert found.verdict is Verdict.INVALID
    else:
        assert found.verdict is not Verdict.INVALID
    if not made.owed and not wrong:
        assert found.verdict is Verdict.UNKNOWN
    lost = NoLoss().check(recorded).numbers
    excused = made.lost if permitted and setting.limited else 0
    assert (lost["lost"], lost["lost_permitted"]) == (made.lost - excused, excused)
    assert (lost["unexpected"], lost["misrouted"]) == (0, 0)


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
        "lost: publisher 0 sequence 25 of q1, sent +26.000 s, never came from d1 as a dead letter, phase chaos, "
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


def test_what_no_consumer_received_was_not_rejected() -> None:
    rows = [publish(n, 1 + n) for n in range(40)]
    letters = [deliver(n, 1.2 + n, queue=1, consumer=1) for n in range(40)]
    finding = DeadLetterPromise().check(history(rows, letters, PLAIN.events()))
    assert (finding.verdict, finding.numbers["unasked"]) == (Verdict.INVALID, 40)


def test_what_happens_to_clients_excuses_no_letter() -> None:
    rows = [publish(n, n + 0.5) for n in range(89)]
    came = [deliver(n, n + 0.6) for n in range(89)]
    letters = [deliver(88, 88.8, queue=1, consumer=1)]
    setting = Setting(at_least_once=False, limited=False, faulty=False, reject_one_in=1)
    steps: tuple[list[Any], ...] = ([], fault(80, 81, name="kill_client"), fault(80, 81, name="kill", down=["c1"]))
    lost = [DeadLetterPromise().check(history(rows, came + letters, [*setting.events(), step])) for step in steps]
    assert [found.numbers["lost"] for found in lost] == [88, 88, 70]
    assert {found.verdict for found in lost} == {Verdict.INVALID}


def test_nothing_is_said_of_a_fault_after_which_no_letter_came() -> None:
    rows = [publish(n, n + 0.5) for n in range(89)]
    came = [deliver(n, n + 0.6) for n in range(89)]
    rejected = Rejected(10)
    early = [deliver(n, n + 0.7, queue=1, consumer=1) for n in range(15) if rejected(0, n)]
    setting = Setting(at_least_once=True, limited=False, faulty=True, reject_one_in=10)
    finding = DeadLetterPromise().check(history(rows[:15], came[:15] + early, setting.events()))
    assert finding.verdict is Verdict.UNKNOWN
