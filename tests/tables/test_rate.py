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


def test_reported() -> None:
    assert str(Rate(3, 10)) == "3 of 10 (11 to 60 %)"


@pytest.mark.parametrize(("hits", "runs"), [(0, 0), (2, 1), (-1, 3)])
def test_what_is_no_rate_is_refused(hits: int, runs: int) -> None:
    with pytest.raises(ValueError, match="is no rate"):
        Rate(hits, runs)
