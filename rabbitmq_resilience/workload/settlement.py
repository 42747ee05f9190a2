"""Complete the history of publishers that were killed before they could record all outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from rabbitmq_resilience.history.history import PUBLISHES, PUBLISHES_SUFFIX, Outcome, StreamReader, StreamWriter
from rabbitmq_resilience.workload.counters import Count, Counters
from rabbitmq_resilience.workload.load import RecordedClients, WorkerClients, publishes_path
from rabbitmq_resilience.workload.under_way import UNDER_WAY_SUFFIX, Places, left_under_way

SETTLED = "settled"


def settle(folder: Path) -> int:
    """Record every message as UNKNOWN that may have been sent and has no row, and return their number.

    All publishers must have ended. Their sent and unrecorded messages are in the tables of ``workload.under_way``,
    with routes and times. A second call changes nothing.
    """
    load = RecordedClients.read(folder)
    settled = 0
    with Counters(folder, workers=load.publishers + load.consumers) as counters:
        for process in load.processes("publisher"):
            sent = {publisher: counters.get(publisher, Count.SENT) for publisher in process.clients}
            for publisher, left in _left(folder, process, sent=sent):
                _write(folder, publisher, left)
                settled += len(left)
    return settled


def _left(folder: Path, process: WorkerClients, *, sent: Mapping[int, int]) -> Iterator[tuple[int, Places]]:
    """Yield each publisher with its messages that have no row, in the order of sequences.

    A message in a table that is not counted as sent was not written to a socket. The next process used its sequence
    again.
    """
    left: dict[tuple[int, int], Places] = {}
    for path in sorted(folder.glob(f"{process.name}.*{UNDER_WAY_SUFFIX}"), key=_life):
        for place in left_under_way(path):
            publisher = int(place["publisher"]) if len(process.clients) > 1 else process.clients[0]
            if place["number"] <= sent[publisher]:
                left[publisher, int(place["number"]) - 1] = place
    if left:
        for path in _streams(folder, process):
            for batch in StreamReader(path, PUBLISHES).together():
                publishers, sequences = (batch.column(name).to_numpy() for name in ("publisher", "sequence"))
                for row in left.keys() & set(zip(publishers.tolist(), sequences.tolist(), strict=True)):
                    del left[row]
    for publisher in process.clients:
        rows = sorted(row for row in left if row[0] == publisher)
        if rows:
            yield publisher, np.array([left[row] for row in rows])


def _streams(folder: Path, process: WorkerClients) -> Iterator[Path]:
    """Yield the streams of the process, and those that an earlier settlement added for its publishers."""
    yield from folder.glob(f"{process.name}.*{PUBLISHES_SUFFIX}")
    settled = (publishes_path(folder, f"publisher-{publisher}", SETTLED) for publisher in process.clients)
    yield from (path for path in settled if path.exists() and len(process.clients) > 1)


def _life(path: Path) -> int:
    return int(path.name.split(".")[1])


def _write(folder: Path, publisher: int, left: Places) -> None:
    """Write the messages as UNKNOWN. The time of their outcome is unknown, so the time of sending stands for it."""
    path = publishes_path(folder, f"publisher-{publisher}", SETTLED)
    unfinished = path.with_name(f".{path.name}")
    unfinished.unlink(missing_ok=True)
    with closing(StreamWriter(unfinished, PUBLISHES)) as writer:
        writer.append(
            {
                "publisher": np.full(len(left), publisher, dtype=np.uint32),
                "sequence": left["number"] - 1,
                "outcome": np.full(len(left), Outcome.UNKNOWN, dtype=np.uint8),
                "outcome_us": left["sent_us"],
                **{name: left[name] for name in ("route", "due_us", "sent_us", "node")},
            }
        )
    unfinished.rename(path)
