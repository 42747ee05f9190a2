"""What this machine made late is told from what RabbitMQ was late with; held to made-up brokers of which it is known
how long they would have taken on a machine of their own."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.lateness import of_this_machine
from rabbitmq_resilience.checkers.recovery import Recovery
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants.literal import THREE, cluster, event, history, node_states, phases, queues, sample
from tests.invariants.test_availability import confirms
from tests.messages import Messages

HEALED_S = 70  # the recovery phase begins then
TICKS_PER_S = 2


def looks(every_s: int, waited_s: dict[str, list[float]], *, others: float = 0.0) -> list[Event]:
    """``waited_s``: of each node, how long it waited in each second from the beginning."""
    length_s = max(map(len, waited_s.values()))
    return [
        event(
            until_s,
            "machine",
            busy=1.0,
            others=others,
            waited_s={node: sum(told[until_s - every_s : until_s]) for node, told in waited_s.items()},
        )
        for until_s in range(every_s, length_s + 1, every_s)
    ]


def recovery(back_s: float, machine: list[Event], *, within_s: float = 15, end_s: int = 140) -> Finding:
    """Of a1, which comes back at that moment."""
    told = phases(recovery=HEALED_S, drain=end_s - 2, end=end_s)
    states = node_states(end_s=end_s, unlike={"a1": [(40, back_s, "paused")]})
    seen = [sample(at) for at in range(end_s)]
    return Recovery(within_s=within_s).check(history((), (), [cluster(), queues("q1"), told, states, seen, machine]))


def waits(node: str, *, from_s: int, to_s: int, each_s: float) -> dict[str, list[float]]:
    return {node: [each_s if from_s <= at < to_s else 0.0 for at in range(140)]}


def test_late_by_no_more_than_the_late_node_waited_for_a_processor(message: Messages) -> None:
    told = recovery(95, looks(5, waits("a1", from_s=70, to_s=95, each_s=0.8)))
    assert told.verdict is Verdict.UNKNOWN
    message(told.summary)
    assert "a1" in told.summary
    assert "20 s" in told.summary
    assert recovery(95, looks(5, waits("a1", from_s=70, to_s=95, each_s=0.3))).verdict is Verdict.INVALID


def test_twice_as_late_is_no_machines_doing() -> None:
    assert recovery(101, looks(5, waits("a1", from_s=70, to_s=101, each_s=0.95))).verdict is Verdict.INVALID


def test_what_others_waited_or_was_waited_at_other_times_excuses_nothing() -> None:
    assert recovery(95, looks(5, waits("b1", from_s=70, to_s=95, each_s=0.8))).verdict is Verdict.INVALID
    assert recovery(95, looks(5, waits("a1", from_s=0, to_s=70, each_s=0.8))).verdict is Verdict.INVALID
    assert recovery(95, looks(5, waits("a1", from_s=95, to_s=140, each_s=0.8))).verdict is Verdict.INVALID


def test_who_hangs_is_not_excused_by_a_busy_machine() -> None:
    """It never comes back, and waits for processors as brokers do that have nothing to do."""
    told = recovery(140, looks(5, waits("a1", from_s=70, to_s=140, each_s=0.23), others=0.9), within_s=60)
    assert (told.verdict, told.numbers["recovered_after_s"]) == (Verdict.INVALID, None)
    starved = recovery(140, looks(5, waits("a1", from_s=70, to_s=140, each_s=0.9), others=0.9), within_s=60)
    assert (starved.verdict, starved.numbers["recovered_after_s"]) == (Verdict.UNKNOWN, None)


def test_who_is_given_up_as_soon_as_it_is_late_is_not_excused_by_a_moment() -> None:
    vain = event(130.3, "recovery", complete=False, detail="a1 is paused")
    little, much = (looks(5, waits("a1", from_s=70, to_s=140, each_s=part)) for part in (0.23, 0.9))
    assert recovery(140, [*little, vain], within_s=60).verdict is Verdict.INVALID
    assert recovery(140, [*much, vain], within_s=60).verdict is Verdict.UNKNOWN


def test_what_is_in_time_needs_no_excuse() -> None:
    assert recovery(80, looks(5, waits("a1", from_s=70, to_s=80, each_s=0.9))).verdict is Verdict.VALID


def leaderless(machine: list[Event], *, unlike: dict[str, list[tuple[float, float, str]]]) -> Finding:
    """q1 has members on a1, b1 and c1, and is there again at 95."""
    seen = [sample(at, leader=None if at < 95 else "a1") for at in range(140)]
    states = node_states((*THREE, "d1"), end_s=140, unlike=unlike)
    told = [cluster((*THREE, "d1")), queues("q1"), phases(recovery=HEALED_S, drain=138, end=140)]
    return Recovery(within_s=15).check(history((), (), [*told, states, seen, machine]))


@pytest.mark.parametrize("unlike", [{}, {"a1": [(71, 71.2, "down")]}])
def test_members_of_a_queue_without_a_leader_are_asked_and_no_one_else(unlike: dict[str, Any]) -> None:
    """Whoever was away for a look long before."""
    assert leaderless(looks(5, waits("b1", from_s=70, to_s=95, each_s=0.8)), unlike=unlike).verdict is Verdict.UNKNOWN
    assert leaderless(looks(5, waits("d1", from_s=70, to_s=95, each_s=0.8)), unlike=unlike).verdict is Verdict.INVALID


@pytest.mark.parametrize("told", [None, "much", [1], {"a1": None}, {"a1": "5"}, {"a1": math.nan}, {"a1": math.inf}])
def test_damaged_records_excuse_nothing_and_hide_nothing(told: Any) -> None:
    damaged = [event(at, "machine", busy=1.0, others=0.0, waited_s=told) for at in range(5, 140, 5)]
    assert recovery(95, damaged).verdict is Verdict.INVALID
    before = event(50, "machine", busy=1.0, others=0.0, waited_s={"a1": -1000.0})
    good = looks(5, waits("a1", from_s=70, to_s=95, each_s=0.8))
    assert recovery(95, [*good[:9], before, *good[10:]]).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("seed", range(3))
def test_made_up_brokers_are_late_by_themselves_or_by_their_machine(seed: int) -> None:
    """A broker that comes back runs, sleeps or waits for a processor in each half second, as is drawn. On a machine of
    its own it would have taken what it ran and slept."""
    source = random.Random(seed)  # noqa: S311 - no secret
    told: Counter[str] = Counter()
    for _ in range(150):
        within_s, takes_s = source.randint(10, 40), source.randint(5, 60)
        does = source.choices(("runs", "sleeps", "waits"), weights=[source.random() for _ in range(3)], k=2 * takes_s)
        free_s = sum(what != "waits" for what in does) / TICKS_PER_S
        waited = [0.0] * 140
        for tick, what in enumerate(does):
            waited[HEALED_S + tick // TICKS_PER_S] += (what == "waits") / TICKS_PER_S
        every_s = source.randint(1, 5)
        verdict = recovery(HEALED_S + takes_s, looks(every_s, {"a1": waited}), within_s=within_s).verdict
        if takes_s <= within_s:
            assert verdict is Verdict.VALID
        elif takes_s > 2 * within_s:
            assert verdict is Verdict.INVALID
        elif free_s <= within_s:
            assert verdict is Verdict.UNKNOWN, (within_s, takes_s, free_s, every_s)
        elif free_s > within_s + 2:  # nodes and queues are looked at twice a second, and once
            assert verdict is Verdict.INVALID, (within_s, takes_s, free_s, every_s)
        told[str(verdict)] += 1
    assert all(told[verdict] > 10 for verdict in ("VALID", "UNKNOWN", "INVALID")), told


def stalled(spans: Sequence[tuple[float, float]], machine: list[Event], *, bound_s: float = 15) -> Finding:
    """q1, with copies on a1, b1 and c1 of four nodes, confirms in those spans."""
    states = node_states((*THREE, "d1"), end_s=140)
    told = phases(steady=0, chaos=0, recovery=100, drain=130, end=138)
    events = [cluster((*THREE, "d1")), queues("q1"), told, states, machine]
    return Availability(stall_s_max=bound_s).check(history(confirms(*spans), (), events))


def test_a_stall_is_as_long_as_it_is_but_for_what_members_waited() -> None:
    def verdict(node: str, each_s: float, *spans: tuple[float, float]) -> Verdict:
        return stalled(list(spans), looks(5, waits(node, from_s=20, to_s=140, each_s=each_s))).verdict

    assert verdict("b1", 0.6, (0, 20), (40, 130)) is Verdict.UNKNOWN
    assert verdict("b1", 0.1, (0, 20), (40, 130)) is Verdict.INVALID
    assert verdict("d1", 0.6, (0, 20), (40, 130)) is Verdict.INVALID, "it has no copy"
    assert verdict("b1", 0.9, (0, 20), (52, 130)) is Verdict.INVALID, "over twice as long"
    assert verdict("b1", 0.9, (0, 20), (34, 130)) is Verdict.VALID


def test_each_stall_is_asked_for_its_own_excuse() -> None:
    """The longer one was the machine's doing, the shorter one was not."""
    machine = looks(5, waits("a1", from_s=20, to_s=45, each_s=0.8))
    assert stalled([(0, 20), (45, 60), (77, 130)], machine).verdict is Verdict.INVALID
    assert stalled([(0, 20), (45, 60), (73, 130)], machine).verdict is Verdict.UNKNOWN


def test_a_queue_that_confirms_no_more_is_not_excused_by_a_moment() -> None:
    def verdict(each_s: float) -> Verdict:
        return stalled([(0, 110)], looks(5, waits("a1", from_s=0, to_s=140, each_s=each_s))).verdict

    assert (verdict(0.3), verdict(0.9)) == (Verdict.INVALID, Verdict.UNKNOWN)


@pytest.mark.parametrize("seed", range(3))
def test_made_up_queues_stall_by_themselves_or_by_their_machine(seed: int) -> None:
    """In each half second of a stall a member does something, sleeps, or waits for a processor, as is drawn."""
    source = random.Random(seed)  # noqa: S311 - no secret
    told: Counter[str] = Counter()
    for _ in range(150):
        bound_s = source.randint(8, 25)
        waited, spans, at = [0.0] * 140, [], 5
        truth = Verdict.VALID
        for _ in range(source.randint(1, 2)):
            lasts_s = source.randint(4, 40)
            does = source.choices(
                ("runs", "sleeps", "waits"), weights=[source.random() for _ in range(3)], k=2 * lasts_s
            )
            for tick, what in enumerate(does):
                waited[at + tick // TICKS_PER_S] += (what == "waits") / TICKS_PER_S
            spans.append((at, at + lasts_s))
            free_s = sum(what != "waits" for what in does) / TICKS_PER_S
            if lasts_s > bound_s and truth is not Verdict.INVALID:
                its_own = free_s > bound_s or lasts_s > 2 * bound_s
                truth = Verdict.INVALID if its_own else Verdict.UNKNOWN
            if abs(lasts_s - bound_s) <= 1 or abs(lasts_s - 2 * bound_s) <= 1 or abs(free_s - bound_s) <= 1:
                break  # too near to tell
            at += lasts_s + 5
        else:
            confirming = [(begin, end) for (_, begin), (end, _) in pairwise([(0, 0), *spans, (130, 130)])]
            verdict = stalled(confirming, looks(1, {"c1": waited}), bound_s=bound_s).verdict
            assert verdict is truth, (bound_s, spans)
            told[str(verdict)] += 1
    assert all(told[verdict] > 5 for verdict in ("VALID", "UNKNOWN", "INVALID")), told


def test_others_excuse_what_came_and_not_what_never_came(message: Messages) -> None:
    facts = history((), (), [cluster(), phases(), looks(5, {"a1": [0.0] * 140}, others=0.5)]).facts
    start_us, end_us = (facts.origin_us + at * 1_000_000 for at in (70, 95))
    told = {came: of_this_machine(facts, THREE, start_us, end_us, allowed_s=15, came=came) for came in (True, False)}
    message(told[True])
    assert "50%" in told[True]
    assert told[False] == ""
    assert not of_this_machine(facts, THREE, start_us, end_us, allowed_s=12, came=True)  # over twice as late


def test_others_excuse_a_delay_that_they_can_have_made_in_a_part_of_it(message: Messages) -> None:
    """They took 60 % for 5 s of the 16 s, of which 15 s are allowed: 15 % on average."""
    machine = [event(at, "machine", busy=1.0, others=0.6 if at == 80 else 0.0) for at in range(5, 140, 5)]
    facts = history((), (), [cluster(), phases(), machine]).facts
    start_us, end_us = (facts.origin_us + at * 1_000_000 for at in (70, 86))
    excuse = of_this_machine(facts, THREE, start_us, end_us, allowed_s=15, came=True)
    message(excuse)
    assert "25%" in excuse
    assert "5 s" in excuse
    assert not of_this_machine(facts, THREE, start_us, end_us, allowed_s=10, came=True)
    always_a_little = [event(at, "machine", busy=0.5, others=0.1) for at in range(5, 140, 5)]
    facts = history((), (), [cluster(), phases(), always_a_little]).facts
    assert not of_this_machine(facts, THREE, start_us, end_us, allowed_s=15, came=True)


@pytest.mark.parametrize("told", [None, "much", [1], -0.5, math.nan, math.inf])
def test_damaged_records_of_others_excuse_nothing(told: Any) -> None:
    damaged = [event(at, "machine", busy=1.0, others=told) for at in range(5, 140, 5)]
    assert recovery(95, damaged).verdict is Verdict.INVALID
