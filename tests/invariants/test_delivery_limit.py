"""Which steps make deliveries count up to the limit, from which version on."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.invariants.delivery_limit import may_give_up
from rabbitmq_resilience.invariants.facts import Facts
from tests.invariants.literal import apart, cluster, fault, queues

APART = fault(20, 50, cut=apart(["a1"], ["b1", "c1"]))
KILL = fault(20, 30, name="kill", down=["a1"])
PUBLISHER = fault(20, 30, cut=[("consumer:0", "a1")])
TO_4_3 = fault(5, 10, step=1, name="upgrade", down=["a1", "b1", "c1"], becomes="4.3.6")
TO_4_3_IN_PART = fault(5, 10, step=1, name="upgrade", down=["a1", "b1"], becomes="4.3.6")
UNKNOWN = fault(5, 10, step=1, name="upgrade", down=["a1"])


@pytest.mark.parametrize(
    ("version", "steps", "given_up"),
    [
        ("3.13.7", [KILL, APART], False),
        ("4.0.5", [], False),
        ("4.0.5", [APART], True),
        ("4.2.9", [APART], True),
        ("4.3.0", [APART], False),
        ("4.3.0", [KILL], True),
        ("4.3.0", [PUBLISHER], True),
        ("4.2.9", [APART, TO_4_3_IN_PART], True),
        ("3.13.7", [APART, UNKNOWN], True),
    ],
)
def test_what_counts(version: str, steps: list[Any], given_up: bool) -> None:
    facts = Facts([cluster(version=version), queues("q1"), *(event for step in steps for event in step)])
    assert may_give_up(facts) is given_up


def test_an_upgrade_itself_loses_connections() -> None:
    facts = Facts([cluster(version="4.2.9"), queues("q1"), *APART, *TO_4_3])
    assert may_give_up(facts), "the nodes that were upgraded were away"


def test_classic_queues_give_up_nothing() -> None:
    assert not may_give_up(Facts([cluster(version="4.0.5"), queues("q1", kind="classic"), *KILL]))


def test_without_the_cluster_any_step_may_count() -> None:
    assert may_give_up(Facts([queues("q1"), *APART]))
    assert not may_give_up(Facts([queues("q1")]))
