"""Versions in turn: no side and no version is always first."""

from __future__ import annotations

import pytest

from benchmarks.versions import turns, with_range


def test_each_round_has_the_order_opposite_to_the_one_before(capsys: pytest.CaptureFixture[str]) -> None:
    taken = list(turns("1 quorum", 2, ["4.0.5", "3.10.8"], ["ours", "PerfTest"]))
    assert taken == [
        (0, "4.0.5", "ours"),
        (0, "4.0.5", "PerfTest"),
        (0, "3.10.8", "ours"),
        (0, "3.10.8", "PerfTest"),
        (1, "3.10.8", "PerfTest"),
        (1, "3.10.8", "ours"),
        (1, "4.0.5", "PerfTest"),
        (1, "4.0.5", "ours"),
    ]
    assert capsys.readouterr().err.splitlines()[-1] == "1 quorum, round 2 of 2: 4.0.5, ours"


def test_several_rounds_have_a_range() -> None:
    assert with_range([3000.0]) == "3,000"
    assert with_range([0.95, 1.2, 1.1], ".2f") == "1.10 (0.95 to 1.20)"
