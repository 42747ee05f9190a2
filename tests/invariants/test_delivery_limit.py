"""When queues may have given up messages, by what happened since these were sent."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from rabbitmq_resilience.checkers.delivery_limit import given_up
from rabbitmq_resilience.checkers.facts import Facts
from tests.invariants.literal import apart, cluster, event, fault, queues, us

APART = fault(20, 50, cut=apart(["a1"], ["b1", "c1"]))
FLAPPING = fault(20, 50, cut=apart(["a1"], ["b1", "c1"]), intermittent=True)
KILL = fault(20, 30, name="kill", down=["a1"])
CONSUMER_CUT = fault(20, 30, cut=[("consumer:0", "a1")])
TO_4_3 = fault(5, 10, step=1, name="upgrade", down=["a1", "b1", "c1"], becomes="4.3.6")
TO_4_3_IN_PART = fault(5, 10, step=1, name="upgrade", down=["a1", "b1"], becomes="4.3.6")
UNKNOWN = fault(5, 10, step=1, name="upgrade", down=["a1"])
POLICY = fault(60, 70, step=2, name="set_policy", operation=True)


def lost(*at_s: float) -> list[Any]:
    """A consumer that loses its connection at these moments, and connects again half a second later."""
    told = [(0.0, "connected"), *((t, "connection_lost") for t in at_s), *((t + 0.5, "connected") for t in at_s)]
    return [event(t, "worker", worker="consumer-0", event=what, node="a1") for t, what in sorted(told)]


def asked(
    *steps: list[Any],
    version: str = "4.0.5",
    limit: int | None = None,
    kind: str = "quorum",
    came_s: float = 95,
    consumers: Collection[int] = (0,),
) -> list[bool]:
    """Return of messages that were sent at 0, 40 and 90 s whether they may have been given up before ``came_s``."""
    letters = {"queues": {"q1": ["q2"]}, "strategy": "at_most_once", "reject_one_in": 10, "limited": False, "held_s": 0}
    declared = queues("q1", "q2", kind=kind)
    declared = event(0, "queues", queues=declared.queues, dead_letters={**letters, "delivery_limit": limit})  # type: ignore[attr-defined]
    events = sorted([cluster(version=version), declared, *(e for step in steps for e in step)], key=lambda e: e.t_us)
    sent_us, came_us = np.array([us(0), us(40), us(90)]), np.full(3, us(came_s))
    found: list[bool] = given_up(Facts(events), sent_us, came_us, consumers).tolist()
    return found


@pytest.mark.parametrize(
    ("version", "steps", "expected"),
    [
        ("4.0.5", [], [False, False, False]),
        ("4.0.5", [KILL], [False, False, False]),
        ("4.0.5", [FLAPPING], [True, True, False]),
        ("3.13.7", [FLAPPING], [False, False, False]),
        ("4.2.9", [FLAPPING], [True, True, False]),
        ("4.3.0", [FLAPPING], [False, False, False]),
        ("4.2.9", [FLAPPING, TO_4_3_IN_PART], [True, True, False]),
        ("4.2.9", [FLAPPING, TO_4_3], [False, False, False]),
        ("3.13.7", [FLAPPING, UNKNOWN], [True, True, False]),
        ("4.0.5", [POLICY], [True, True, False]),
        ("3.13.7", [lost(*range(1, 31))], [False, False, False]),
        ("4.0.5", [lost(*range(1, 31))], [True, False, False]),
        ("4.3.6", [lost(*range(1, 31))], [True, False, False]),
        ("4.0.5", [lost(*range(1, 20))], [False, False, False]),
    ],
)
def test_what_can_have_come_back_twenty_times(version: str, steps: list[Any], expected: list[bool]) -> None:
    assert asked(*steps, version=version) == expected


@pytest.mark.parametrize(
    ("limit", "steps", "expected"),
    [
        (2, [KILL], [True, False, False]),
        (3, [KILL], [False, False, False]),
        (3, [KILL, lost(35)], [True, False, False]),
        (1, [APART], [True, True, False]),
        (-1, [FLAPPING], [False, False, False]),
    ],
)
def test_what_queues_are_declared_with_counts(limit: int, steps: list[Any], expected: list[bool]) -> None:
    assert asked(*steps, limit=limit) == expected


def test_from_4_3_on_a_cut_between_brokers_does_not_count_and_a_client_does() -> None:
    assert asked(APART, version="4.3.6", limit=1) == [False, False, False]
    assert asked(CONSUMER_CUT, version="4.3.6", limit=1) == [True, False, False]


def test_classic_queues_give_up_nothing() -> None:
    assert asked(FLAPPING, kind="classic") == [False, False, False]


@pytest.mark.parametrize(("came_s", "expected"), [(15, False), (25, False), (31, True)])
def test_what_happened_after_the_letter_came_does_not_count(came_s: float, expected: bool) -> None:
    assert asked(KILL, limit=2, came_s=came_s)[0] is expected
    assert asked(FLAPPING, limit=20, came_s=came_s)[0] is (came_s > 20)


def test_a_policy_may_lower_the_limit_only_for_what_comes_later() -> None:
    policy = fault(60, 65, name="set_policy", operation=True)
    assert asked(lost(30), policy, came_s=50) == [False, False, False]
    assert asked(lost(30), policy, came_s=62) == [True, True, False]
    assert asked(lost(30), policy, came_s=62, limit=-1) == [True, True, False]


def test_what_never_came_back_is_not_given_up() -> None:
    assert asked(limit=0) == [False, False, False]
    assert asked(lost(50), limit=0) == [True, True, False]


def test_consumers_of_other_queues_and_publishers_do_not_count() -> None:
    assert asked(lost(*range(1, 31)), consumers=[1]) == [False, False, False]
    of_publisher = fault(20, 50, cut=[("publisher:0", "a1")], intermittent=True)
    assert asked(of_publisher, limit=1) == [False, False, False]
