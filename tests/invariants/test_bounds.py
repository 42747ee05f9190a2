"""Exactly at a bound nothing is broken; a little beyond it is. Off-by-one changes of a checker must show here."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.checkers import order as order_module
from rabbitmq_resilience.checkers.assumptions import Watched
from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.gaps import UNWATCHED_S_MAX
from rabbitmq_resilience.checkers.order import Order
from rabbitmq_resilience.checkers.recovery import Recovery
from rabbitmq_resilience.checkers.throughput import Throughput
from rabbitmq_resilience.checkers.times import left, times
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Finding, Verdict
from rabbitmq_resilience.history.events import Event
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import (
    Row,
    cluster,
    deliver,
    event,
    history,
    node_states,
    phases,
    publish,
    queues,
    sample,
    us,
)

BASE: list[Event | list[Event]] = [cluster(), queues("q1"), phases()]


def number(finding: Finding, name: str) -> float:
    value = finding.numbers[name]
    assert isinstance(value, int | float)
    return float(value)


def test_a_stall_may_last_as_long_as_the_bound_and_no_longer() -> None:
    rows = [publish(n, at_s) for n, at_s in enumerate([*range(21), *range(31, 90)])]
    judged = history(rows, (), BASE)
    stall_s = number(Availability(stall_s_max=50, grace_s=5).check(judged), "stall_s")
    assert stall_s == 11
    assert Availability(stall_s_max=stall_s, grace_s=5).check(judged).verdict is Verdict.VALID
    assert Availability(stall_s_max=stall_s - 0.001, grace_s=5).check(judged).verdict is Verdict.INVALID


@pytest.mark.parametrize(("within_s", "verdict"), [(8, Verdict.VALID), (7.999, Verdict.INVALID)])
def test_recovery_may_take_as_long_as_the_bound_and_no_longer(within_s: float, verdict: Verdict) -> None:
    late = node_states(unlike={"a1": [(40, 78, "paused")]})
    samples = [sample(at_s) for at_s in range(95)]
    finding = Recovery(within_s=within_s).check(history((), (), [*BASE, late, samples]))
    assert (finding.verdict, number(finding, "recovered_after_s")) == (verdict, 8)


@pytest.mark.parametrize(("within_s", "verdict"), [(24, Verdict.INVALID), (24.001, Verdict.UNKNOWN)])
def test_who_is_ill_for_as_long_as_the_bound_has_not_recovered(within_s: float, verdict: Verdict) -> None:
    never = node_states(unlike={"a1": [(40, 99, "down")]})
    samples = [sample(at_s) for at_s in range(95)]
    finding = Recovery(within_s=within_s).check(history((), (), [*BASE, never, samples]))
    assert (finding.verdict, number(finding, "watched_s")) == (verdict, 24)


def test_what_the_run_waited_for_in_vain_counts_from_the_bound_on() -> None:
    vain = event(90, "recovery", complete=False, detail="q1 has no leader")
    events = [*BASE, node_states(), [sample(at_s) for at_s in range(95)], vain]
    assert Recovery(within_s=20).check(history((), (), events)).verdict is Verdict.INVALID
    assert Recovery(within_s=20.001).check(history((), (), events)).verdict is Verdict.UNKNOWN


def test_a_window_may_have_the_least_ratio_and_no_less() -> None:
    times = [n / 10 for n in range(400)] + [40 + n / 5 for n in range(250)]
    judged = history([publish(n, at_s) for n, at_s in enumerate(times)], (), [*BASE, node_states()])
    finding = Throughput(ratio_min=0.5, window_s=5, grace_s=10).check(judged)
    assert (finding.verdict, number(finding, "ratio"), finding.numbers["windows_short"]) == (Verdict.VALID, 0.5, 0)
    assert Throughput(ratio_min=0.501, window_s=5, grace_s=10).check(judged).verdict is Verdict.INVALID


def watched(gap_s: float) -> Verdict:
    looks = [event(at_s, "nodes", states={"a1": "up"}) for at_s in range(95)]
    kept = [look for look in looks if not us(40) < look.t_us < us(40 + gap_s)]
    return Watched().check(history((), (), [phases(), kept, event(40 + gap_s, "nodes", states={})])).verdict


def test_nodes_may_be_out_of_sight_as_long_as_the_bound_and_no_longer() -> None:
    assert watched(UNWATCHED_S_MAX) is Verdict.VALID
    assert watched(UNWATCHED_S_MAX + 0.001) is Verdict.UNKNOWN


EVENTS: list[Event | list[Event]] = [cluster(), queues("q1"), phases()]


def in_turn(*sequences: int, start_s: float = 1, consumer: int = 0) -> list[Row]:
    return [deliver(n, start_s + i / 1000, consumer=consumer) for i, n in enumerate(sequences)]


def test_a_consumer_may_begin_in_the_moment_in_which_the_other_ends() -> None:
    taken_over = [*in_turn(0, 1, start_s=1), *in_turn(2, 3, start_s=1.001, consumer=1)]
    finding = Order().check(history([publish(n) for n in range(4)], taken_over, EVENTS))
    assert (finding.verdict, finding.numbers["queues_judged"]) == (Verdict.VALID, 1)
    sooner = [*in_turn(0, 1, start_s=1), *in_turn(2, 3, start_s=1.000_999, consumer=1)]
    assert Order().check(history([publish(n) for n in range(4)], sooner, EVENTS)).verdict is Verdict.UNKNOWN


def test_what_no_row_speaks_of_is_out_of_order_for_no_one() -> None:
    """Of these the loss checker tells; they are beyond the last sequence on record, by one and by more."""
    deliveries = in_turn(0, 1, 2, 9, 5, 3)
    finding = Order().check(history([publish(n) for n in range(3)], deliveries, EVENTS))
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.VALID, 0)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.CONFIRMED])
def test_only_what_was_confirmed_must_be_in_order(outcome: Outcome) -> None:
    rows = [publish(0), publish(1, outcome=outcome), publish(2)]
    assert Order().check(history(rows, in_turn(0, 2, 1), EVENTS)).verdict is Verdict.VALID


def test_many_violations_are_counted_and_some_are_shown() -> None:
    reversed_order = in_turn(*reversed(range(30)))
    finding = Order().check(history([publish(n) for n in range(30)], reversed_order, EVENTS))
    assert (finding.numbers["overtaken"], len(finding.examples)) == (29, EXAMPLES_MAX)


def test_beyond_some_number_violations_are_only_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "SUSPECTS_MAX", 5)
    finding = Order().check(history([publish(n) for n in range(30)], in_turn(*reversed(range(30))), EVENTS))
    assert (finding.verdict, finding.numbers["overtaken"]) == (Verdict.INVALID, 5)


@pytest.mark.parametrize(
    ("exempt", "kept"),
    [
        ([], [(10, 20)]),
        ([(0, 5)], [(10, 20)]),
        ([(5, 12)], [(12, 20)]),
        ([(10, 12)], [(12, 20)]),
        ([(12, 14), (14, 16)], [(10, 12), (16, 20)]),
        ([(14, 16), (11, 12), (11, 15)], [(10, 11), (16, 20)]),
        ([(18, 30)], [(10, 18)]),
        ([(18, 20)], [(10, 18)]),
        ([(20, 30)], [(10, 20)]),
        ([(5, 30)], []),
        ([(25, 30)], [(10, 20)]),
    ],
)
def test_what_is_left_is_what_is_not_exempt(exempt: list[tuple[float, float]], kept: list[tuple[float, float]]) -> None:
    assert left((10, 20), times(exempt)) == kept


@pytest.mark.parametrize(("told_us", "told_s"), [(1_234_567, 1.235), (1e12, 1_000_000), (499, 0)])
def test_moments_are_shown_to_the_millisecond(told_us: float, told_s: float) -> None:
    assert seconds(told_us) == told_s
