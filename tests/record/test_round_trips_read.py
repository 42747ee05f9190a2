"""Recorded round trips as their reader tells them."""

from __future__ import annotations

import math
from pathlib import Path

from rabbitmq_resilience.history.event_log import EventLog, read_events
from rabbitmq_resilience.history.round_trips import Distribution, distributions, spells


def test_no_round_trip_has_no_numbers() -> None:
    nothing = Distribution.of([])
    assert (nothing.answered, nothing.lost) == (0, 0)
    assert math.isnan(nothing.p99_ms)
    assert Distribution.of([None, None]).lost == 2


def test_the_lost_are_counted_and_have_no_part_in_the_numbers() -> None:
    told = Distribution.of([4.0, None, 2.0])
    assert (told.answered, told.lost) == (2, 1)
    assert (told.least_ms, told.mean_ms, told.p99_ms, told.max_ms, told.deviation_ms) == (2, 3, 4, 4, 1)


def test_one_of_a_hundred_may_be_slower_than_the_percentile() -> None:
    assert Distribution.of([*map(float, range(1, 100)), 5000.0]).p99_ms == 99


def test_what_was_recorded_is_read_by_way_and_time(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as events:
        events.record("round_trips", t_us=1000, trips_ms={"a1->b1": [10.0, 12.0], "client:all->a1": [1.0]})
        events.record("note", t_us=1500, detail="nothing of this")
        events.record("round_trips", t_us=2000, trips_ms={"a1->b1": [None, 14.0]})
    series = spells(read_events(tmp_path / "events.jsonl"))
    assert [spell.t_us for spell in series] == [1000, 2000]
    whole = distributions(series)
    assert whole["a1->b1"] == Distribution.of([10.0, 12.0, None, 14.0])
    assert whole["client:all->a1"].answered == 1
    assert distributions(series, from_us=1000)["a1->b1"] == Distribution.of([None, 14.0])
    assert distributions(series, until_us=1000)["a1->b1"].lost == 0
