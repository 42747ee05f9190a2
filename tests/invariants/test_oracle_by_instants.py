"""The checkers against a slow and simple reference, on generated histories of which the truth is known.

Each case of a kept promise must not be told as broken either. ``python -m tests.invariants.instants.count`` takes any
number of other cases, and says what they were like.
"""

from __future__ import annotations

import random

import pytest

from tests.invariants.instants.compared import Reference, answers, findings, told
from tests.invariants.instants.generated import made

CASES = 200


@pytest.mark.parametrize("first", range(0, CASES, 20))
def test_checkers_and_reference_agree_and_find_nothing_where_all_was_kept(first: int) -> None:
    for seed in range(first, first + 20):
        one = made(random.Random(seed))  # noqa: S311 - no secret
        found = findings(one.case)

        assert told(found) == answers(Reference(one.case)), f"seed {seed}"
        assert not (one.sound and any(told(found).values())), f"seed {seed}"
