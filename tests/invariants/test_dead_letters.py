"""Dead letters: what is judged of generated histories is what was planted in them, told a second time row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.invariants.dead_letters import SETTLED_WITHIN_S, DeadLetterPromise
from rabbitmq_resilience.invariants.no_loss import NoLoss
from rabbitmq_resilience.invariants.order import Order
from rabbitmq_resilience.invariants.uptime import Uptime
from rabbitmq_resilience.invariants.verdict import History, Verdict
from rabbitmq_resilience.record.history import DELIVERIES, PUBLISHES, Outcome
from rabbitmq_resilience.record.letters import Letters
from rabbitmq_resilience.record.routes import Routes
from rabbitmq_resilience.workloads.dead_letters import Rejected
from rabbitmq_resilience.workloads.drain import Tally
from rabbitmq_resilience.workloads.load import deliveries_path, publishes_path
from tests.invariants.literal import (
    THREE,
    Row,
    cluster,
    deliver,
    event,
    fault,
    history,
    node_states,
    phases,
    publish,
    write_stream,
)

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
    held_s: float = 0

    def events(self) -> list[Any]:
        places = {name: {"type": self.kind, "members": list(THREE), "leader": "a1"} for name in QUEUES}
        letters = {
            "queues": TAKEN_BY,
            "strategy": "at_least_once" if self.at_least_once else "at_most_once",
            "reject_one_in": self.reject_one_in,
            "limited": self.limited,
            "held_s": self.held_s,
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
class Message:
    """One message of a history, and what became of it; times in seconds."""

    publisher: int
    sequence: int
    queue: int
    confirmed: bool
    came: bool
    letter: bool
    turned_down: bool
    asked: bool
    first_s: float
    last_s: float

    def left_s(self, others: Sequence[Message]) -> float:
        """When it had left its queue at the latest."""
        if self.came:
            return self.last_s
        behind = [m for m in others if m.came and m.sequence > self.sequence]
        return min((m.first_s for m in behind if (m.publisher, m.queue) == (self.publisher, self.queue)), default=inf)


@dataclass(frozen=True)
class Told:
    """What a history says, and what is true of it. ``repeated``: letters that came twice, unmarked."""

    publishes: Sequence[Row]
    deliveries: Sequence[Row]
    messages: Sequence[Message]
    repeated: int

    def history(self, setting: Setting) -> History:
        return history(self.publishes, self.deliveries, setting.events())

    def count(self, of: Callable[[Message], bool]) -> int:
        return sum(map(of, self.messages))

    def excused(self, setting: Setting, m: Message) -> bool:
        """Whether at_most_once may have lost its letter: all were sent before what the fault did was over."""
        disturbed = setting.faulty and not setting.at_least_once
        return disturbed and m.left_s(self.messages) + SETTLED_WITHIN_S >= FAULT_S


def told(setting: Setting, random: Random, *, messages: int, losses: int) -> Told:
    """Row by row: each message is sent, maybe confirmed, maybe received (again), maybe a dead letter (again)."""
    rejected = Rejected(setting.reject_one_in) if setting.reject_one_in else lambda *_: False
    publishes, deliveries, found, repeated = [], [], [], 0
    for publisher, sequence in ((p, s) for p in range(2) for s in range(messages)):
        queue, at_s = random.choice(PUBLISHED), 1 + 75 * sequence / messages
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
            marked = deliver(at_s=at_s + 0.3, queue=TAKING[queue], consumer=1, again=True, **fields)
            deliveries += random.choice([[as_letter], [as_letter, marked], [as_letter, as_letter]])
            repeated += deliveries[-2:] == [as_letter, as_letter]
        turned_down = came and rejected(publisher, sequence)
        asked = turned_down or (setting.limited and confirmed and not came)
        last_s = at_s + max(0.1, again_s or 0)
        whole = (publisher, sequence, queue, confirmed, came, letter, turned_down, asked, at_s + 0.1, last_s)
        found.append(Message(*whole))
    deliveries.sort(key=lambda row: row["received_us"])
    return Told(publishes, deliveries, found, repeated)


drawn = st.tuples(settings, st.randoms(use_true_random=False), st.integers(1, 60), st.sampled_from([0, 0, 1, 5]))


@given(drawn)
def test_what_is_judged_is_what_was_planted(drawn: tuple[Setting, Random, int, int]) -> None:
    setting, random, messages, losses = drawn
    made = told(setting, random, messages=messages, losses=losses)
    recorded = made.history(setting)
    found = DeadLetterPromise().check(recorded)
    gone = [m for m in made.messages if m.asked and not m.letter]
    permitted = [m for m in gone if made.excused(setting, m)]
    gives_up = setting.kind == "quorum" and setting.version.startswith("4") and setting.faulty
    unasked = made.count(lambda m: m.letter and not m.turned_down and not (m.came and gives_up))
    unasked = 0 if setting.limited else unasked
    assert found.numbers["owed"] == made.count(lambda m: m.asked)
    assert found.numbers["lost"] == len(gone) - len(permitted)
    assert found.numbers["lost_permitted"] == len(permitted)
    assert (found.numbers["unasked"], found.numbers["arrived"]) == (unasked, made.count(lambda m: m.letter))
    doubled = made.repeated if not setting.faulty and not setting.at_least_once else 0
    wrong = len(gone) > len(permitted) or unasked or doubled
    assert (found.verdict is Verdict.INVALID) == bool(wrong)
    if not found.numbers["owed"] and not wrong:
        assert found.verdict is Verdict.UNKNOWN
    lost = NoLoss().check(recorded).numbers
    missing = [m for m in made.messages if m.confirmed and not m.came and not m.letter]
    excused = [m for m in missing if setting.limited and made.excused(setting, m)]
    assert (lost["lost"], lost["lost_permitted"]) == (len(missing) - len(excused), len(excused))
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
    write_stream(publishes_path(folder, "publisher-0", 0), PUBLISHES, sent)
    write_stream(deliveries_path(folder, "consumer-0", 0), DELIVERIES, made.deliveries)
    tally = Tally(folder, publishers=2, routes=routes, letters=Letters(TAKING, setting.reject_one_in))
    tally.update()
    awaited = made.count(
        lambda m: (m.confirmed or m.turned_down) and not (m.came and not m.turned_down) and not m.letter
    )
    assert tally.unconsumed == awaited


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


def each_second(*letters: int) -> list[Row]:
    """A message each second that is received and rejected, and these dead letters."""
    came = [deliver(n, n + 0.6) for n in range(89)]
    return came + [deliver(n, n + 0.7, queue=1, consumer=1) for n in letters]


def test_what_was_sent_long_after_a_fault_is_owed() -> None:
    rows = [publish(n, n + 0.5) for n in range(89)]
    setting = Setting(at_least_once=False, limited=False, faulty=False, reject_one_in=1)
    killed = fault(12, 13, down=["c1"], name="kill")
    found = DeadLetterPromise().check(history(rows, each_second(88), [*setting.events(), killed]))
    assert (found.verdict, found.numbers["lost"]) == (Verdict.INVALID, 2 + 45)  # before 2 s, and from 43 s on


@pytest.mark.parametrize(("held_s", "verdict"), [(0, Verdict.INVALID), (20, Verdict.VALID)])
def test_a_consumer_that_is_slow_rejects_late(held_s: float, verdict: Verdict) -> None:
    rows = [publish(n, n + 0.5) for n in range(89)]
    deliveries = each_second(*(n for n in range(89) if n != 6))
    setting = Setting(at_least_once=False, limited=False, faulty=False, reject_one_in=1, held_s=held_s)
    killed = fault(20, 21, down=["c1"], name="kill")
    assert DeadLetterPromise().check(history(rows, deliveries, [*setting.events(), killed])).verdict is verdict


def test_a_leader_that_moves_may_cost_letters_that_come_at_most_once() -> None:
    rows = [publish(n, n + 0.5) for n in range(89)]
    deliveries = each_second(*(n for n in range(89) if n != 30))
    setting = Setting(at_least_once=False, limited=False, faulty=False, reject_one_in=1)
    moved = fault(30, 31, name="rebalance", operation=True)
    assert DeadLetterPromise().check(history(rows, deliveries, [*setting.events(), moved])).verdict is Verdict.VALID
