"""Dead letters: what is judged of generated histories is what was planted in them, told a second time row by row."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.dead_letters import DeadLetterPromise
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.order import Order
from rabbitmq_resilience.checkers.uptime import Uptime
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.dead_letter_routes import DeadLetterRoutes
from rabbitmq_resilience.history.history import DELIVERIES, PUBLISHES
from rabbitmq_resilience.workload.dead_lettering import Rejected
from rabbitmq_resilience.workload.drain import Tally
from rabbitmq_resilience.workload.load import deliveries_path, publishes_path
from tests.invariants.lettered import BOTH, DOUBLED, EACH, FANNED_OUT, PUBLISHED, Setting, told
from tests.invariants.literal import (
    THREE,
    Row,
    cluster,
    deliver,
    event,
    fault,
    history,
    phases,
    publish,
    write_stream,
)
from tests.messages import Messages

settings = st.builds(
    Setting,
    at_least_once=st.booleans(),
    limited=st.booleans(),
    faulty=st.booleans(),
    reject_one_in=st.sampled_from([None, 1, 2, 5]),
    kind=st.sampled_from(["quorum", "classic"]),
    version=st.sampled_from(["3.10.8", "4.0.5"]),
    delivery_limit=st.sampled_from([None, None, 1, 2, 3]),
    layout=st.sampled_from([EACH, FANNED_OUT, DOUBLED, BOTH]),
    acks=st.sampled_from(["manual", "manual", "automatic", "early"]),
)


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
    doubled = made.forbidden()
    assert found.numbers["duplicates_forbidden"] == doubled
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
    tally = Tally(
        folder, publishers=2, routes=layout.table, letters=DeadLetterRoutes(layout.taking, setting.reject_one_in)
    )
    tally.update()
    settled = [m for m in made.copies if (m.came and not m.turned_down) or m.letters == {*layout.taking[m.queue]}]
    assert tally.unconsumed == sum((m.confirmed or m.turned_down) and m not in settled for m in made.copies)


PLAIN = Setting(at_least_once=True, limited=False, faulty=True, reject_one_in=1, kind="classic")


def test_what_is_missing_is_named(message: Messages) -> None:
    rows = [publish(n, 1 + n) for n in range(40)]
    came = [deliver(n, 1.1 + n) for n in range(40)]
    letters = [deliver(n, 1.2 + n, queue=1, consumer=1) for n in range(40) if n != 25]
    finding = DeadLetterPromise().check(history(rows, came + letters, PLAIN.events()))
    assert finding.verdict is Verdict.INVALID
    (example,) = finding.examples
    message(example)
    assert "sequence 25" in example
    assert "q1" in example
    assert "d1" in example
    assert "+26.000 s" in example
    assert "step 0" in example


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


def test_no_one_publishes_to_queues_of_dead_letters() -> None:
    """So they are not without confirms."""
    rows = [publish(3 * n + i, 1 + n / 10, queue=queue) for n in range(880) for i, queue in enumerate(PUBLISHED)]
    finding = Uptime(outage_s_max=5).check(history(rows, (), PLAIN.events()))
    assert finding.verdict is Verdict.VALID, finding.summary


def test_a_load_without_dead_letters_promises_none(message: Messages) -> None:
    events = [cluster(), event(0, "queues", queues={"q1": {"type": "quorum", "members": list(THREE)}}), phases()]
    finding = DeadLetterPromise().check(history([publish(0)], [deliver(0)], events))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "dead_letters" in finding.summary


def test_nothing_is_said_of_a_fault_after_which_nothing_came(message: Messages) -> None:
    finding = DeadLetterPromise().check(
        history([publish(0)], [deliver(0), deliver(0, 1.2, queue=1, consumer=1)], PLAIN.events())
    )
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "step 0" in finding.summary


@given(st.integers(1, 50), st.integers(0, 1000), st.integers(0, 10**7))
def test_who_rejects_and_who_judges_draw_alike(one_in: int, publisher: int, first: int) -> None:
    rejected = Rejected(one_in)
    sequence = np.arange(first, first + 300)
    drawn = DeadLetterRoutes({}, one_in).rejected(np.full(300, publisher), sequence)
    assert [rejected(publisher, one) for one in sequence.tolist()] == drawn.tolist()


def test_one_message_of_a_number_is_rejected() -> None:
    for one_in in (1, 2, 10, 100):
        drawn = DeadLetterRoutes({}, one_in).rejected(np.full(200_000, 3), np.arange(200_000))
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


@pytest.mark.parametrize("publishes", [[], [publish(0)]])
def test_without_deliveries_nothing_is_known_of_dead_letters(publishes: list[Row]) -> None:
    setting = Setting(at_least_once=False, limited=False, faulty=True, reject_one_in=3)
    assert DeadLetterPromise().check(history(publishes, (), setting.events())).verdict is Verdict.UNKNOWN
