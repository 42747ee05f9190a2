"""A queue that shares messages with one that stands still, against a slow way that looks at each message."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.own_messages import TAKEN_MAX
from rabbitmq_resilience.checkers.traffic import TICK_US
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import (
    THREE,
    Row,
    cluster,
    event,
    fault,
    history,
    load,
    node_states,
    phases,
    publish,
    us,
)

DOWN_S, UP_S, GRACE_S, STALL_S_MAX = 20, 50, 5, 8
PLACES = {
    "q1": {"type": "quorum", "members": list(THREE), "leader": "a1"},
    "q2": {"type": "classic", "members": ["c1"], "leader": "c1"},
}

#: Of each message: when it is sent, how long its answer takes, and whether it goes to q2 as well.
messages = st.lists(st.tuples(st.integers(0, 80), st.sampled_from([0.1, 4.0, 9.0, 25.0]), st.booleans()), max_size=25)


def check(sent: list[tuple[float, float, bool]], *, own: Outcome = Outcome.CONFIRMED) -> Finding:
    """q1 has a majority all the time, the only broker of q2 is away for half a minute. ``own``: the outcome of messages
    that go to q1 alone."""
    rows: list[Row] = []
    for n, (at_s, takes_s, shared) in enumerate(sent):
        row = publish(n, at_s, Outcome.CONFIRMED if shared else own) | {"outcome_us": us(at_s + takes_s)}
        rows += [row, row | {"queue": 1, "lane": 1}] if shared else [row]
    made = [cluster(), event(0, "queues", queues=PLACES), phases(), load(10, 10)]
    killed = [fault(DOWN_S, UP_S, down=["c1"], name="kill"), node_states(unlike={"c1": [(DOWN_S, UP_S, "down")]})]
    return Availability(stall_s_max=STALL_S_MAX, grace_s=GRACE_S).check(history(rows, (), [*made, *killed]))


def slowly(sent: list[tuple[float, float, bool]]) -> float:
    """Return for how long at most an own message of q1 waited, and q1 confirmed nothing, while q2 may stand still."""
    begin, end = DOWN_S, UP_S + GRACE_S
    confirms = sorted(at_s + takes_s for at_s, takes_s, _ in sent)
    edges = [begin, *(at_s for at_s in confirms if begin < at_s < end), end]
    own = [row for row in sent if not row[2] or row[0] + row[1] <= begin or row[0] >= end]
    longest = 0.0
    for start_s, end_s in itertools.pairwise(edges):
        waiting = [at_s for at_s, takes_s, _ in own if at_s < end_s <= at_s + takes_s + TICK_US / 1e6]
        longest = max(longest, end_s - max(start_s, min(waiting, default=end_s)))
    return longest


def steady(until_s: float = 90) -> list[tuple[float, float, bool]]:
    """Shared messages that keep q1 and q2 busy but for the time in which q2 may stand still."""
    return [(at_s, 0.1, True) for at_s in range(int(until_s)) if not DOWN_S - 1 <= at_s < UP_S + GRACE_S]


@given(messages)
def test_each_message_by_itself_says_the_same(sent: list[tuple[float, float, bool]]) -> None:
    whole = sorted([*steady(), *(row for row in sent if row[0] + row[1] <= UP_S + GRACE_S)])
    finding = check(whole)
    found = slowly(whole)
    if abs(found - STALL_S_MAX) > 0.1:
        assert (finding.verdict is Verdict.INVALID) == (found > STALL_S_MAX), found


@pytest.mark.parametrize(("one_in", "verdict"), [(1, Verdict.VALID), (200, Verdict.INVALID)])
def test_one_message_in_200_excuses_no_others(one_in: int, verdict: Verdict) -> None:
    """100 messages in a second before and after, and none of the 100 that are sent then is confirmed."""
    waits = [(25 + n / 100, 29.0, n % one_in == 0) for n in range(100)]
    assert check(sorted([*steady(), *waits])).verdict is verdict


@pytest.mark.parametrize(("ahead", "verdict"), [(TAKEN_MAX - 1, Verdict.INVALID), (TAKEN_MAX, Verdict.VALID)])
def test_behind_a_channel_that_is_full_of_shared_messages_others_wait(ahead: int, verdict: Verdict) -> None:
    waits = [(21 + n / 100, 33.0, True) for n in range(ahead)]
    assert check(sorted([*steady(), *waits, (25, 29.0, False)])).verdict is verdict


@pytest.mark.parametrize("own", [Outcome.NACKED, Outcome.UNKNOWN])
@pytest.mark.parametrize(("tried_s", "verdict"), [(range(22, 54), Verdict.INVALID), (range(22, 25), Verdict.VALID)])
def test_own_messages_that_are_refused_or_given_up_count_as_long_as_some_are_tried(
    tried_s: range, verdict: Verdict, own: Outcome
) -> None:
    assert check(sorted([*steady(), *((at_s, 0.5, False) for at_s in tried_s)]), own=own).verdict is verdict
