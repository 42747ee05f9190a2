from __future__ import annotations

import pytest

from rabbitmq_resilience.report.rate import Rate


@pytest.mark.parametrize(
    ("hits", "runs", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (3, 10, 0.1078, 0.6032),
        (1, 1, 0.2065, 1.0),
        (50, 100, 0.4038, 0.5962),
    ],
)
def test_interval(hits: int, runs: int, low: float, high: float) -> None:
    """Numbers as other tools give them for Wilson's interval without a correction."""
    assert list(Rate(hits, runs).interval) == pytest.approx([low, high], abs=1e-4)


@pytest.mark.parametrize(
    ("hits", "runs", "text"),
    [
        (3, 10, "3 of 10 (11 to 60 %)"),
        (0, 2000, "0 of 2000 (0 to 0.2 %)"),
        (2000, 2000, "2000 of 2000 (99.8 to 100 %)"),
        (29, 1891, "29 of 1891 (1.1 to 2.2 %)"),
        (7, 734, "7 of 734 (0.5 to 2.0 %)"),
    ],
)
def test_an_end_near_nothing_or_all_is_not_taken_for_it(hits: int, runs: int, text: str) -> None:
    assert str(Rate(hits, runs)) == text


@pytest.mark.parametrize(("hits", "runs"), [(0, 0), (2, 1), (-1, 3)])
def test_what_is_no_rate_is_refused(hits: int, runs: int) -> None:
    with pytest.raises(ValueError, match="is no rate"):
        Rate(hits, runs)
