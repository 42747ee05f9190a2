"""Times of messages that cannot be, against a slow way that looks at each row by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.possible_times import AT_ONE_MOMENT_MAX, impossible_times
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.checkers.wholeness import HistoryWhole
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import cluster, deliver, history, phases, publish, queues, us

EVENTS = [cluster(), queues("q1"), phases()]
ANSWERED = (Outcome.CONFIRMED, Outcome.NACKED, Outcome.RETURNED)

sendings = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(5, 15), st.sampled_from(Outcome), st.integers(5, 15)),
    max_size=8,
    unique_by=lambda row: row[:2],
)
receipts = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 6), st.integers(4, 16), st.booleans()), max_size=12
)


@given(sendings, receipts)
def test_each_row_by_itself_says_the_same(
    sent: list[tuple[int, int, int, Outcome, int]], received: list[tuple[int, int, int, int, bool]]
) -> None:
    sent, received = sorted(sent), sorted(received)
    early = sum(outcome in ANSWERED and answered_s < at_s for _, _, at_s, outcome, answered_s in sent)
    sent_s = {(p, n): at_s for p, n, at_s, outcome, _ in sent if outcome is not Outcome.NEVER_SENT}
    before = sum(intact and at_s < sent_s.get((p, n), 0) for _, p, n, at_s, intact in received)
    lines = list(
        impossible_times(
            history(
                [publish(n, at, out, publisher=p) | {"outcome_us": us(till)} for p, n, at, out, till in sent],
                [deliver(n, at, publisher=p, consumer=c, intact=intact) for c, p, n, at, intact in received],
                EVENTS,
            )
        )
    )
    found = [int(line.split()[0]) for line in lines if "before they were sent" in line]
    assert found == [count for count in (early, before) if count]


@given(st.lists(st.tuples(st.integers(1, 2 * AT_ONE_MOMENT_MAX), st.booleans()), max_size=6))
def test_a_consumer_takes_one_message_after_another(runs: list[tuple[int, bool]]) -> None:
    rows = [(at_s, by) for at_s, (count, by) in enumerate(runs, 20) for _ in range(count)]
    deliveries = [deliver(n, at_s, consumer=int(by)) for n, (at_s, by) in enumerate(rows)]
    publishes = [publish(n) for n in range(len(rows))]
    lines = list(impossible_times(history(publishes, deliveries, EVENTS)))
    crowded = sum(count for count, _ in runs if count > AT_ONE_MOMENT_MAX)
    assert [int(line.split()[0]) for line in lines] == ([crowded] if crowded else [])


def test_a_record_with_such_times_is_not_whole() -> None:
    late = publish(0, 5) | {"outcome_us": us(4)}
    assert HistoryWhole().check(history([late], [deliver(0, 6)], EVENTS)).verdict is Verdict.UNKNOWN
    assert HistoryWhole().check(history([publish(0, 5)], [deliver(0, 6)], EVENTS)).verdict is Verdict.VALID
