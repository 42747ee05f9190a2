from __future__ import annotations

from pathlib import Path

import numpy as np

from rabbitmq_resilience.history.history import DELIVERIES, StreamWriter
from rabbitmq_resilience.history.run_directory import RunDirectory


def test_the_tenth_life_of_a_worker_is_read_after_its_second(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "lives")
    for life in range(12):
        writer = StreamWriter(run.history / f"consumer-0.{life}.deliveries.arrows", DELIVERIES)
        row = {field.name: np.array([0], dtype=field.type.to_pandas_dtype()) for field in DELIVERIES}
        writer.append(row | {"sequence": np.array([life], dtype=np.uint32)})
        writer.close()
    assert [batch.column("sequence")[0].as_py() for batch in run.deliveries()] == list(range(12))
