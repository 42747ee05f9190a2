"""A run that is not VALID passes only as its scenario says, and for no other reason."""

from __future__ import annotations

import pytest

from faults.scenario import Expectation
from invariants.judge import Judgement
from invariants.verdict import Finding, Verdict
from suites.judging import meets
from suites.partitions import HANGS_IN_GLOBAL_SYNC

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN


def judgement(**verdicts: Verdict) -> Judgement:
    worst = next(v for v in (INVALID, UNKNOWN, VALID) if v in verdicts.values())
    return Judgement(worst, {name: Finding(verdict, "") for name, verdict in verdicts.items()}, {})


@pytest.mark.parametrize(
    ("always", "no_loss", "order", "met"),
    [
        (True, INVALID, VALID, True),
        (True, VALID, VALID, False),
        (True, INVALID, INVALID, False),
        (True, VALID, INVALID, False),
        (True, UNKNOWN, VALID, False),
        (False, INVALID, VALID, True),
        (False, VALID, VALID, True),
        (False, VALID, INVALID, False),
        (False, INVALID, INVALID, False),
        (False, UNKNOWN, VALID, False),
    ],
)
def test_known_violation(always: bool, no_loss: Verdict, order: Verdict, met: bool) -> None:
    expected = Expectation(broker="", verdict=INVALID, invariant="no_loss", always=always)
    assert meets(judgement(no_loss=no_loss, order=order), expected) is met


def test_consequences_are_met_only_beside_their_cause() -> None:
    expected = Expectation(broker="", verdict=INVALID, invariant="no_loss", also=("order",))
    assert meets(judgement(no_loss=INVALID, order=INVALID), expected)
    assert meets(judgement(no_loss=INVALID, order=VALID), expected)
    assert not meets(judgement(no_loss=VALID, order=INVALID), expected)
    assert not meets(judgement(no_loss=INVALID, recovery=INVALID), expected)


@pytest.mark.parametrize(
    ("log", "met"),
    [
        ("skipping registration.\nRunning boot step x\n", False),
        ("skipping registration.\nDeleting server", True),
        ("", False),
    ],
)
def test_a_violation_that_leaves_a_trace_is_known_only_by_it(log: str, met: bool) -> None:
    broken = judgement(no_loss=VALID, recovery=INVALID)
    assert meets(broken, HANGS_IN_GLOBAL_SYNC, lambda: ["another node's", log]) is met
    assert meets(judgement(recovery=VALID), HANGS_IN_GLOBAL_SYNC, lambda: [log])


def test_words() -> None:
    assert str(Expectation(broker="", verdict=VALID)) == "VALID"
    assert (
        str(Expectation(broker="", verdict=INVALID, invariant="order", always=False)) == "INVALID by order in some runs"
    )
