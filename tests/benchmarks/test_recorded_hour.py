"""The run that the benchmark of judging records is one that holds every promise, so that its judgement means work."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hour import Hour
from benchmarks.judge_hour import judge_recorded, write_its_page
from benchmarks.recorded_hour import record
from rabbitmq_resilience.history.run_directory import RunDirectory


@pytest.mark.parametrize("pairs", [6, 30])
def test_it_is_valid_in_every_respect(tmp_path: Path, pairs: int) -> None:
    run = RunDirectory.create(tmp_path, "minutes")
    record(run, Hour(messages=60_000, queues=6, rounds=2, pairs=pairs))

    assert judge_recorded(run.path) == "VALID"
    assert write_its_page(run.path).endswith("bytes")
    numbers = run.read_verdict()["invariants"]["no_loss"]["numbers"]
    assert numbers["attempted"] == 60_000
    assert numbers["duplicates_redelivered"] > 0
    assert numbers["unknown"] > 0


def test_batches_are_as_small_as_those_of_workers() -> None:
    assert Hour().rows_together == pytest.approx(25_000_000 / 4 / 3670 / 10, abs=0.5)
