"""Consumers that took over unseen, while other programs may have kept brokers from hearing of each other."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from tests.invariants.literal import event
from tests.invariants.test_single_active_consumer import TURNS, check

BUSY = [event(at_s, "machine", busy=1.0, others=0.5) for at_s in (1, 40)]


def test_other_programs_may_keep_brokers_from_hearing_of_each_other() -> None:
    assert check(TURNS, BUSY).verdict is Verdict.UNKNOWN


def test_brokers_do_not_part_again_and_again_in_a_second() -> None:
    turns = [(n % 2, 31 + n / 10) for n in range(10)]
    sent_s = [at_s - 0.01 for _, at_s in turns]
    assert check(turns, BUSY, sent_s=sent_s).verdict is Verdict.INVALID
    little = [event(at_s, "machine", busy=1.0, others=0.05) for at_s in range(5, 60, 5)]  # perhaps all in that second
    assert check(turns[:3], little, sent_s=sent_s[:3]).verdict is Verdict.INVALID


@pytest.mark.parametrize(("around", "between", "verdict"), [(0.0, 0.9, Verdict.INVALID), (0.9, 0.0, Verdict.UNKNOWN)])
def test_each_breach_has_the_machine_of_its_own_time(around: float, between: float, verdict: Verdict) -> None:
    """One at 11 and one at 81 s: others have the machine only long after the first and before the second, or around
    both."""
    taken = [event(t, "machine", busy=1.0, others=between if 15 < t <= 75 else around) for t in range(5, 96, 5)]
    assert check([(0, 10), (1, 11), (0, 12), (0, 80), (1, 81), (0, 82)], taken).verdict is verdict


def test_a_breach_that_is_no_example_counts_too() -> None:
    """Twelve turns while others have the machine, 4 s apart, and one more at 88 s when nobody has."""
    turns = [*((n % 2, 5.0 + 4 * n) for n in range(12)), (0, 86), (1, 87), (0, 88)]
    taken = [event(t, "machine", busy=1.0, others=0.9 if t <= 60 else 0.0) for t in range(5, 96, 5)]
    assert check(turns, taken).verdict is Verdict.INVALID
