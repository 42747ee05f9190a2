"""What a node that goes away by itself excuses: nothing, until it has a reason to be away."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from tests.invariants.literal import fault, node_states
from tests.invariants.test_availability import check, confirms


def test_pathological_gone_by_itself_before_it_had_a_reason() -> None:
    """That a step takes it away later excuses nothing from before."""
    away = node_states(unlike={"b1": [(25, 60, "down")], "c1": [(12, 14, "down"), (26, 32, "down")]})
    steps = fault(12, 13, step=0, down=["c1"]), fault(58, 59, step=1, down=["b1"])
    finding = check(confirms((0, 33), (57, 90)), away, *steps)
    assert finding.verdict is Verdict.INVALID
    assert finding.numbers["stall_start_s"] == pytest.approx(32.9, abs=0.1)
