"""The tap and its references say the same of generated conversations and rules."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest

from tests.tap.compared import COMPARED, case

#: What some cases in a few hundred must have in them.
DEMANDED = {
    "conversations": {
        *("PUBLISHED", "CONFIRMED", "NACKED", "RETURNED", "DELIVERED", "GOT", "ACKED", "REJECTED", "COMMITTED"),
        *("ROLLED_BACK", "cancelled", "cancelled by broker", "closed by both", "reply lost", "nowait", "silent"),
        *("number in use again before the second agreement", "cut_short", "basic.ack all", "secret"),
    },
    "rules": {"held", "let go", "dropped", "answered", "connection closed"},
}


@pytest.mark.parametrize("name", COMPARED)
def test_the_tap_and_its_reference_say_the_same(name: str) -> None:
    cases = [case(name, seed) for seed in range(200)]
    assert list(chain.from_iterable(differences for differences, _ in cases)) == []
    assert DEMANDED[name] - set(Counter(chain.from_iterable(kinds for _, kinds in cases))) == set()


@pytest.mark.generated
@pytest.mark.parametrize("name", COMPARED)
def test_they_say_the_same_of_thousands(name: str) -> None:
    assert list(chain.from_iterable(case(name, seed)[0] for seed in range(10_000, 13_000))) == []
