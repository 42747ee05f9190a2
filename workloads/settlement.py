"""Completes the history of publishers that died before they could record all outcomes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from reports.history import PUBLISHES, PUBLISHES_SUFFIX, Outcome, StreamReader, StreamWriter
from workloads.counters import Count, Counters
from workloads.load import Load, publishes_path

SETTLED = "settled"


def settle(folder: Path) -> int:
    """Record every message as UNKNOWN that may have been sent and has no row; their number is returned.

    All publishers must have ended. Their ``sent_us`` is the time of the publisher's last write, as nothing closer is
    known. Calling it again changes nothing.
    """
    load = Load.read(folder)
    settled = 0
    with Counters(folder, workers=load.publishers + load.consumers) as counters:
        for publisher in range(load.publishers):
            sent = counters.get(publisher, Count.SENT)
            missing = _without_row(folder, publisher, sent)
            if len(missing):
                _write(folder, load, publisher, missing, sent_us=counters.get(publisher, Count.SENT_US))
            settled += len(missing)
    return settled


def _without_row(folder: Path, publisher: int, sent: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    recorded = np.zeros(sent, dtype=np.bool_)
    for path in folder.glob(f"publisher-{publisher}.*{PUBLISHES_SUFFIX}"):
        for batch in StreamReader(path, PUBLISHES).together():
            recorded[_numpy(batch, "sequence")] = True
    return np.flatnonzero(~recorded)


def _write(folder: Path, load: Load, publisher: int, sequences: np.ndarray, *, sent_us: int) -> None:
    queues = np.array(load.publisher_queues(publisher), dtype=np.uint16)
    count = len(sequences)
    path = publishes_path(folder, publisher, SETTLED)
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    writer = StreamWriter(unfinished, PUBLISHES)
    writer.append(
        {
            "publisher": np.full(count, publisher, dtype=np.uint16),
            "queue": queues[sequences % len(queues)],
            "sequence": sequences.astype(np.uint32),
            "sent_us": np.full(count, sent_us, dtype=np.int64),
            "outcome": np.full(count, Outcome.UNKNOWN, dtype=np.uint8),
            "outcome_us": np.full(count, sent_us, dtype=np.int64),
            "node": np.zeros(count, dtype=np.uint8),
        }
    )
    writer.close()
    unfinished.rename(path)


def _numpy(batch: pa.RecordBatch, column: str) -> np.ndarray:
    values: np.ndarray = batch.column(column).to_numpy(zero_copy_only=False)
    return values
