"""Dead letters: what is judged of generated histories is what was planted in them, told a second time row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.invariants.dead_letters import FELT_FOR_S, SETTLED_WITHIN_S, DeadLetterPromise
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

QUEUES = ("q1", "d1", "q2", "q3", "d2")
FAULT_S = 20
#: When consumer 0 is killed, and when it is connected again.
GONE_S, BACK_S = 30, 31
PUBLISHED = (0, 2, 3)
TAKING: Mapping[int, tuple[int, ...]] = {0: (1,), 2: (4,), 3: (1,)}


@dataclass(frozen=True)
class Layout:
    """The queues of each route, and who takes the dead letters of each queue, by their indexes."""

    routes: Sequence[tuple[int, ...]] = ((0,), (2,), (3,))
    taking: Mapping[int, tuple[int, ...]] = field(default_factory=lambda: TAKING)

    @property
    def table(self) -> Routes:
        return Routes.of([list(route) for route in self.routes])


EACH = Layout()
FANNED_OUT = Layout(routes=((0, 2), (3,), (2, 3)))
#: Those of q1 go to both.
DOUBLED = Layout(taking={**TAKING, 0: (1, 4)})
BOTH = Layout(routes=((0, 3), (2,)), taking={0: (1,), 2: (1, 4), 3: (4,)})


@dataclass(frozen=True)
class Setting:
    at_least_once: bool
    limited: bool
    faulty: bool
    reject_one_in: int | None
    kind: str = "quorum"
    version: str = "3.10.8"
    held_s: float = 0
    layout: Layout = EACH
    acks: str = "manual"

    def events(self) -> list[Any]:
        places = {name: {"type": self.kind, "members": list(THREE), "leader": "a1"} for name in QUEUES}
        letters = {
            "queues": {QUEUES[queue]: [QUEUES[to] for to in taking] for queue, taking in self.layout.taking.items()},
            "strategy": "at_least_once" if self.at_least_once else "at_most_once",
            "reject_one_in": self.reject_one_in,
            "limited": self.limited,
            "held_s": self.held_s,
            "acks": self.acks,
        }
        killed = [fault(FAULT_S, 50, down=["c1"], name="kill")] if self.faulty else []
        declared = event(0, "queues", queues=places, dead_letters=letters)
        lost = [(0, "connected"), (GONE_S, "killed"), (BACK_S, "connected")]
        consumer = [event(at_s, "worker", worker="consumer-0", event=what, node="a1") for at_s, what in lost]
        return [cluster(version=self.version), declared, phases(), node_states(), *killed, *consumer]


settings = st.builds(
    Setting,
    at_least_once=st.booleans(),
    limited=st.booleans(),
    faulty=st.booleans(),
    reject_one_in=st.sampled_from([None, 1, 2, 5]),
    kind=st.sampled_from(["quorum", "classic"]),
    version=st.sampled_from(["3.10.8", "4.0.5"]),
    layout=st.sampled_from([EACH, FANNED_OUT, DOUBLED, BOTH]),
    acks=st.sampled_from(["manual", "manual", "automatic", "early"]),
)


@dataclass(frozen=True)
class Copy:
    """A message in one of its queues, and what became of it; times in seconds. ``letters``: the queues from which it
    came as a dead letter."""

    publisher: int
    sequence: int
    queue: int
    confirmed: bool
    came: bool
    letters: frozenset[int]
    rejectable: bool
    sent_s: float
    first_s: float
    last_s: float

    @property
    def turned_down(self) -> bool:
        return self.came and self.rejectable

    def left_s(self, others: Sequence[Copy]) -> float:
        """When it had left its queue at the latest."""
        if self.came:
            return self.last_s
        behind = [m for m in others if m.came and m.sequence > self.sequence]
        return min((m.first_s for m in behind if (m.publisher, m.queue) == (self.publisher, self.queue)), default=inf)


@dataclass(frozen=True)
class Told:
    """What a history says, and what is true of it. ``repeated``: letters that came twice, unmarked."""

    setting: Setting
    publishes: Sequence[Row]
    deliveries: Sequence[Row]
    copies: Sequence[Copy]
    repeated: int

    def history(self) -> History:
        return history(self.publishes, self.deliveries, self.setting.events())

    def letters(self) -> Iterator[tuple[Copy, int]]:
        """Each copy with each queue that would take its dead letter."""
        return ((m, taking) for m in self.copies for taking in self.setting.layout.taking[m.queue])

    def asked(self, m: Copy) -> bool:
        return m.turned_down or (self.setting.limited and m.confirmed and not m.came)

    def disturbed(self, m: Copy) -> bool:
        """Whether at_most_once may have lost its letter: all were sent before what the fault did was over."""
        disturbed = self.setting.faulty and not self.setting.at_least_once
        return disturbed and m.left_s(self.copies) + SETTLED_WITHIN_S >= FAULT_S

    def in_hand(self, m: Copy) -> bool:
        """Whether the consumer may have held it when it was killed, though it told nobody."""
        unheard = self.setting.acks != "manual" and not m.came
        return unheard and m.sent_s < BACK_S + FELT_FOR_S and m.left_s(self.copies) + SETTLED_WITHIN_S >= GONE_S

    def unasked(self, m: Copy) -> bool:
        gives_up = self.setting.kind == "quorum" and self.setting.version.startswith("4") and self.setting.faulty
        known = m.turned_down or (m.came and gives_up) or (m.rejectable and self.in_hand(m))
        return not known and not self.setting.limited


def told(setting: Setting, random: Random, *, messages: int, losses: int) -> Told:
    """Row by row: each message is sent, maybe confirmed, and in each of its queues maybe received (again), maybe a dead
    letter (again)."""
    rejected = Rejected(setting.reject_one_in) if setting.reject_one_in else lambda *_: False
    publishes, deliveries, found, repeated = [], [], [], 0
    lanes = setting.layout.table.lanes
    for publisher, sequence in ((p, s) for p in range(2) for s in range(messages)):
        route, at_s = random.choice(setting.layout.routes), 1 + 75 * sequence / messages
        outcome = random.choice([*[Outcome.CONFIRMED] * 6, Outcome.UNKNOWN, Outcome.NACKED])
        confirmed = outcome is Outcome.CONFIRMED
        fields: dict[str, Any] = {"publisher": publisher, "sequence": sequence}
        for queue in route:
            publishes.append(publish(sequence, at_s, outcome, publisher=publisher, queue=queue, lane=int(lanes[queue])))
            taking = setting.layout.taking[queue]
            came = (confirmed or random.random() < 0.3) and not (setting.limited and random.random() < 0.3)
            letter = (came and rejected(publisher, sequence)) or (confirmed and not came)
            letters = {*taking} if letter else set()
            if losses and random.random() < 0.2:
                losses -= 1
                came = random.random() < 0.5
                letters = {one for one in taking if random.random() < 0.5}
            again_s = random.choice([None, 0.5])
            if came:
                deliveries.append(deliver(at_s=at_s + 0.1, queue=queue, **fields))
                if again_s is not None:
                    deliveries.append(deliver(at_s=at_s + again_s, queue=queue, again=True, **fields))
            for one in sorted(letters):
                as_letter = deliver(at_s=at_s + 0.2, queue=one, consumer=1, **fields)
                marked = deliver(at_s=at_s + 0.3, queue=one, consumer=1, again=True, **fields)
                deliveries += random.choice([[as_letter], [as_letter, marked], [as_letter, as_letter]])
                repeated += deliveries[-2:] == [as_letter, as_letter]
            last_s, turned = at_s + max(0.1, again_s or 0), rejected(publisher, sequence)
            whole = (publisher, sequence, queue, confirmed, came, frozenset(letters), turned, at_s, at_s + 0.1, last_s)
            found.append(Copy(*whole))
    deliveries.sort(key=lambda row: row["received_us"])
    return Told(setting, publishes, deliveries, found, repeated)


drawn = st.tuples(settings, st.randoms(use_true_random=False), st.integers(1, 60), st.sampled_from([0, 0, 1, 5]))


@given(drawn)
def test_what_is_judged_is_what_was_planted(drawn: tuple[Setting, Random, int, int]) -> None:
    setting, random, messages, losses = drawn
    made = told(setting, random, messages=messages, losses=losses)
    recorded = made.history()
    found = DeadLetterPromise().check(recorded)
    gone = [m for m, taking in made.letters() if made.asked(m) and taking not in m.letters]
    permitted = [m for m in gone if made.disturbed(m) or made.in_hand(m)]
    unasked = sum(made.unasked(m) for m, taking in made.letters() if taking in m.letters)
    assert found.numbers["owed"] == sum(made.asked(m) for m, _ in made.letters())
    assert found.numbers["lost"] == len(gone) - len(permitted)
    assert found.numbers["lost_permitted"] == len(permitted)
    assert (found.numbers["unasked"], found.numbers["arrived"]) == (unasked, sum(len(m.letters) for m in made.copies))
    doubled = made.repeated if not setting.faulty and not setting.at_least_once else 0
    wrong = len(gone) > len(permitted) or unasked or doubled
    assert (found.verdict is Verdict.INVALID) == bool(wrong)
    if not found.numbers["owed"] and not wrong:
        assert found.verdict is Verdict.UNKNOWN
    lost = NoLoss().check(recorded).numbers
    missing = [m for m in made.copies if m.confirmed and not m.came and not m.letters]
    excused = [m for m in missing if setting.limited and made.disturbed(m)]
    assert (lost["lost"], lost["lost_permitted"]) == (len(missing) - len(excused), len(excused))
    assert (lost["unexpected"], lost["misrouted"]) == (0, 0)


@given(drawn)
def test_the_tally_waits_for_what_was_rejected(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[Setting, Random, int, int]
) -> None:
    setting, random, messages, losses = drawn
    made = told(setting, random, messages=messages, losses=losses)
    folder = tmp_path_factory.mktemp("tally")
    layout = setting.layout
    of_messages: dict[tuple[int, int], list[Row]] = {}
    for row in made.publishes:
        of_messages.setdefault((row["publisher"], row["sequence"]), []).append(row)
    sent = [{**rows[0], "route": layout.routes.index(tuple(r["queue"] for r in rows))} for rows in of_messages.values()]
    write_stream(publishes_path(folder, "publisher-0", 0), PUBLISHES, sent)
    write_stream(deliveries_path(folder, "consumer-0", 0), DELIVERIES, made.deliveries)
    tally = Tally(folder, publishers=2, routes=layout.table, letters=Letters(layout.taking, setting.reject_one_in))
    tally.update()
    settled = [m for m in made.copies if (m.came and not m.turned_down) or m.letters == {*layout.taking[m.queue]}]
    assert tally.unconsumed == sum((m.confirmed or m.turned_down) and m not in settled for m in made.copies)


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
