"""Checkers against answers that were written from the documentation alone, on some hundred generated histories each.

``python -m tests.invariants.references.compared`` takes any number of others.
"""

from __future__ import annotations

import pytest

from tests.invariants.references.compared import REFERENCES, compare

BATCHES, CASES = 12, 20


@pytest.mark.parametrize("first", range(0, BATCHES * CASES, CASES))
@pytest.mark.parametrize("name", REFERENCES)
def test_checker_and_reference_agree(name: str, first: int) -> None:
    assert compare(name, range(first, first + CASES)).apart == ()
