"""Windows that fell short while other programs had, or may have had, much of the machine."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.checkers.throughput import Throughput
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants import literal
from tests.invariants.literal import cluster, history, node_states, phases, queues
from tests.invariants.test_throughput import check, load
from tests.messages import Messages


def machine(*others: float) -> list[Event]:
    """What other programs took, told each 5 s."""
    return [literal.event(5 * (i + 1), "machine", busy=1.0, others=part) for i, part in enumerate(others)]


SLOW = load((0, 60, 50), (60, 65, 20), (65, 90, 50))


@pytest.mark.parametrize(
    ("others", "driver", "verdict"),
    [
        ([0.0] * 18, "local", Verdict.INVALID),
        ([0.9] * 12 + [0.0] * 6, "local", Verdict.INVALID),  # at another time
        ([0.0] * 12 + [0.5] + [0.0] * 5, "local", Verdict.UNKNOWN),
        ([0.24] * 18, "local", Verdict.INVALID),
        ([0.5] * 18, "docker", Verdict.INVALID),  # brokers count as others there
        ([], "local", Verdict.INVALID),
    ],
)
def test_what_is_slow_while_others_keep_the_machine_busy_is_not_reported(
    others: list[float], driver: str, verdict: Verdict, message: Messages
) -> None:
    told = cluster(driver=driver)
    events = [told, queues("q1"), phases(), node_states(), *machine(*others)]
    demanded = Throughput(ratio_min=0.5, window_s=5, grace_s=10, lost_grace_s=10)
    finding = demanded.check(history(SLOW, (), events))
    assert finding.verdict is verdict, finding
    assert ("other programs" in finding.summary) == (verdict is Verdict.UNKNOWN)
    message(finding.summary)


def test_one_slow_window_that_no_one_disturbed_is_enough() -> None:
    slow_twice = load((0, 60, 50), (60, 65, 20), (65, 80, 50), (80, 85, 20), (85, 90, 50))
    finding = check(slow_twice, machine(*[0.0] * 12, 0.9, 0.9, *[0.0] * 4))
    assert finding.verdict is Verdict.INVALID


def test_what_others_took_in_one_window_they_did_not_take_in_the_next() -> None:
    """Each window of 5 s alone can have had a quarter of the machine of them, and not all of them."""
    when = phases(steady=0, chaos=12.5, recovery=85, drain=90, end=95)
    whole = [cluster(), queues("q1"), when, node_states(), machine(*[0.13] * 18)]
    demanded = Throughput(window_s=5, grace_s=10)
    all_along = demanded.check(history(load((0, 30, 50), (30, 90, 24)), (), whole))
    once = demanded.check(history(load((0, 29, 50), (29, 32.5, 0), (32.5, 90, 50)), (), whole))
    assert (all_along.verdict, once.verdict) == (Verdict.INVALID, Verdict.UNKNOWN)
