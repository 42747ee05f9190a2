"""What arrives twice without the mark, against a slow way that looks at each pair of deliveries."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.instability import SETTLED_WITHIN_S
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.model.durations import TICKS_MAX
from tests.invariants.literal import (
    FIVE,
    Row,
    apart,
    cluster,
    deliver,
    fault,
    history,
    node_states,
    phases,
    publish,
    queues,
    sample,
)

#: By the literal cluster's net_ticktime of 4 s.
FELT_S = TICKS_MAX * 4 + SETTLED_WITHIN_S
BEGINS_S, ENDS_S = 30, 40
KILL = fault(BEGINS_S, ENDS_S, name="kill", down=["a1"])

arrivals = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 80), st.booleans()),
    min_size=1,
    max_size=20,
    unique_by=lambda row: row[1],
)


def check(deliveries: list[Row], *events: object) -> Finding:
    whole = [cluster(), queues("q1"), phases(), node_states(), *events]
    return NoLoss().check(history([publish(n, 0.5) for n in range(4)], deliveries, whole))


def slowly(rows: list[tuple[int, int, bool]], *, killed: bool) -> int:
    """Return how many deliveries without the mark come after one of the same message without it, with nothing between
    the last of these and it that may have made them come again."""
    count = 0
    for sequence, at_s, again in rows:
        before = [t for n, t, marked in rows if n == sequence and not marked and t < at_s]
        if again or not before:
            continue
        disturbed = killed and max(before) < ENDS_S + FELT_S and at_s >= BEGINS_S
        count += not disturbed
    return count


@given(arrivals, st.booleans(), st.randoms(use_true_random=False))
def test_each_pair_by_itself_says_the_same(rows: list[tuple[int, int, bool]], killed: bool, random: Random) -> None:
    deliveries = [deliver(n, at_s, again=again, consumer=at_s % 2) for n, at_s, again in rows]
    random.shuffle(deliveries)
    finding = check(deliveries, *([KILL] if killed else []))
    assert finding.numbers["duplicates_forbidden"] == slowly(rows, killed=killed)


@pytest.mark.parametrize(
    ("step", "verdict"),
    [
        (KILL, Verdict.VALID),
        (fault(30, 40, cut=apart(["a1"], ["b1", "c1"])), Verdict.VALID),
        (fault(30, 40, name="kill_client"), Verdict.INVALID),
        (fault(30, 40, cut=[("consumer:0", "a1")]), Verdict.INVALID),
    ],
)
def test_what_happens_to_clients_makes_brokers_mark_what_comes_again(step: object, verdict: Verdict) -> None:
    deliveries = [deliver(n, at_s) for n, at_s in itertools.product(range(4), [25, 35])]
    assert check([*deliveries, deliver(3, 90, again=True)], step).verdict is verdict


@pytest.mark.parametrize(("first_s", "verdict"), [(54, Verdict.VALID), (56, Verdict.INVALID)])
def test_a_fault_explains_no_duplicates_of_what_came_long_after_it(first_s: float, verdict: Verdict) -> None:
    deliveries = [deliver(n, at_s) for at_s in (first_s, 80) for n in range(4)]
    assert check(deliveries, KILL).verdict is verdict


FIVE_AWAY = node_states(FIVE, unlike={"b2": [(BEGINS_S, ENDS_S, "down")]})
OTHERS_LEAD = [sample(at, leader="a1" if at < BEGINS_S else "b1") for at in range(90)]


@pytest.mark.parametrize(
    ("events", "verdict"),
    [
        ([fault(30, 40, name="kill", down=["b2"]), FIVE_AWAY], Verdict.INVALID),
        ([FIVE_AWAY], Verdict.INVALID),
        ([fault(30, 40, cut=apart(["b2"], ["c1"]))], Verdict.INVALID),
        ([fault(30, 40, cut=apart(["b2"], ["a1"]))], Verdict.VALID),
        ([fault(30, 40, name="purge_queue", operation=True)], Verdict.INVALID),
        ([fault(30, 40, name="rebalance", operation=True)], Verdict.VALID),
        ([fault(30, 40, name="alarm", alarm="memory", alarmed=["a1"])], Verdict.INVALID),
        (OTHERS_LEAD, Verdict.VALID),
    ],
)
def test_only_brokers_that_may_have_the_queue_make_messages_come_again(events: list[object], verdict: Verdict) -> None:
    """The queue is on a1, a2 and b1. A step that follows later explains nothing that was before."""
    deliveries = [deliver(n, at_s) for n, at_s in itertools.product(range(4), [25, 35])]
    later = fault(70, 75, step=1, name="kill", down=["a1"])
    whole = [cluster(FIVE), queues("q1", members=["a1", "a2", "b1"]), phases(), *events]
    for more in ([], [later]):
        last = deliver(3, 90, again=True)
        found = NoLoss().check(history([publish(n, 0.5) for n in range(4)], [*deliveries, last], [*whole, *more]))
        assert found.verdict is verdict
