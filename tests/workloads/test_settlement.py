"""Whatever a killed publisher left, each message that it may have sent ends up with exactly one outcome."""

from pathlib import Path

import pytest

from reports.history import PUBLISHES, Outcome, StreamReader
from workloads.counters import Count, Counters
from workloads.load import Address, Load, publishes_path
from workloads.publisher import Publishes
from workloads.settlement import settle


def load(*, publishers: int = 1, queues: int = 1) -> Load:
    return Load(
        run=1,
        seed=1,
        vhost="v",
        addresses=(Address("a1", "127.0.0.1", 1),),
        queues=tuple(f"q{i + 1}" for i in range(queues)),
        publishers=publishers,
        consumers=1,
        rate_per_s=None,
        in_flight=10,
        prefetch=10,
        ack_every=1,
        message_bytes=100,
        confirms="awaited",
        acks="manual",
        persistent=True,
        heartbeat_s=4,
        confirm_timeout_s=30,
    )


def outcomes(folder: Path) -> dict[int, list[Outcome]]:
    found: dict[int, list[Outcome]] = {}
    for path in folder.glob("*.publishes.arrows"):
        for batch in StreamReader(path, PUBLISHES).batches():
            for row in batch.to_pylist():
                found.setdefault(row["sequence"], []).append(Outcome(row["outcome"]))
    return found


def test_a_load_is_read_as_it_was_saved(tmp_path: Path) -> None:
    saved = load(publishers=3, queues=2)
    saved.save(tmp_path)
    assert Load.read(tmp_path) == saved


@pytest.mark.parametrize(
    ("publishers", "queues", "expected"),
    [(1, 1, [(0,)]), (3, 2, [(0,), (1,), (0,)]), (2, 5, [(0, 2, 4), (1, 3)])],
)
def test_queues_are_shared_out(publishers: int, queues: int, expected: list[tuple[int, ...]]) -> None:
    shared = load(publishers=publishers, queues=queues)
    assert [shared.publisher_queues(p) for p in range(publishers)] == expected


@pytest.mark.parametrize("cut_bytes", [0, 1, 500])
def test_messages_without_a_row_become_unknown_once(tmp_path: Path, cut_bytes: int) -> None:
    load(queues=2).save(tmp_path)
    first = Publishes(publishes_path(tmp_path, 0, 0), publisher=0, queues=(0, 1))
    first.add([0, 1, 2], [10, 10, 10], Outcome.CONFIRMED)
    first.flush(node=0)
    first.add([3, 5], [11, 11], Outcome.CONFIRMED)
    first.flush(node=0)
    path = publishes_path(tmp_path, 0, 0)
    data = path.read_bytes()
    first.close()
    path.write_bytes(data[: len(data) - cut_bytes])
    with Counters(tmp_path, workers=2, create=True) as counters:
        counters.set(0, Count.SENT, 7)
        counters.set(0, Count.SENT_US, 99)
    survived = {0, 1, 2, 3, 5} if cut_bytes == 0 else {0, 1, 2}
    assert settle(tmp_path) == 7 - len(survived)
    assert settle(tmp_path) == 0
    expected = {s: [Outcome.CONFIRMED if s in survived else Outcome.UNKNOWN] for s in range(7)}
    assert outcomes(tmp_path) == expected


def test_a_publisher_that_never_sent_needs_no_settlement(tmp_path: Path) -> None:
    load().save(tmp_path)
    Counters(tmp_path, workers=2, create=True).close()
    assert settle(tmp_path) == 0
    assert list(tmp_path.glob("*.arrows")) == []
