"""A value that changes in steps, at any moment."""

import pytest

from rabbitmq_resilience.history.variation import Variation

RATE = Variation(500, ((2000, 10), (0, 5), (None, 5)), begins_us=100e6)


@pytest.mark.parametrize(
    ("at_s", "value"),
    [(0, 500), (99.9, 500), (100, 2000), (109.9, 2000), (110, 0), (115, None), (120, 500), (1e6, 500)],
)
def test_each_step_holds_from_its_beginning_to_the_next(at_s: float, value: float | None) -> None:
    assert RATE.at(at_s * 1e6) == value


def test_the_plain_value_holds_without_steps_and_before_they_begin() -> None:
    assert [v.at(1e6) for v in (Variation(3), Variation(3, ((9, 1),)), Variation(None, ((9, 1),)))] == [3, 3, None]


def test_pieces_cover_a_time_without_gap() -> None:
    assert list(RATE.pieces(105e6, 112e6)) == [(105e6, 110e6, 2000), (110e6, 112e6, 0)]
    assert list(RATE.pieces(0, 50e6)) == [(0, 50e6, 500)]
    assert [value for _, _, value in RATE.pieces(0, 200e6)] == [500, 2000, 0, None, 500]


def test_it_is_read_from_rows_of_any_origin() -> None:
    rows = {"processing_ms": 0, "variable_processing": [{"processing_ms": 30.0, "for_s": 2}]}
    assert Variation.of(rows, "processing_ms", "variable_processing", begins_us=0).at(1e6) == 30.0
