"""Whatever a killed publisher left, each message that it may have sent ends up with exactly one outcome."""

from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.history.history import PUBLISHES, Outcome, StreamReader
from rabbitmq_resilience.workload.counters import Count, Counters
from rabbitmq_resilience.workload.load import Address, Load, publishes_path, under_way_path
from rabbitmq_resilience.workload.publishes import Publishes
from rabbitmq_resilience.workload.running_workload import RunningWorkload
from rabbitmq_resilience.workload.settlement import SETTLED, settle
from rabbitmq_resilience.workload.under_way import UnderWay
from rabbitmq_resilience.workload.worker import LoadNotBegunError


def load(*, publishers: int = 1, queues: int = 1, **stated: Any) -> Load:
    own: dict[str, Any] = {"rate_per_s": None, "in_flight": 10, "prefetch": 10, "ack_every": 1, "message_bytes": 100}
    return Load(
        run=1,
        seed=1,
        vhost="v",
        addresses=stated.pop("addresses", (Address("a1", "127.0.0.1", 1),)),
        queues=tuple(f"q{i + 1}" for i in range(queues)),
        publishers=publishers,
        **{"confirm_timeout_s": 30, **own, **stated},
    )


def _uncounted(_publisher: int, _count: int) -> None: ...


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
    assert [shared.publisher_routes(p) for p in range(publishers)] == expected


def close_as_killed(rows: Publishes, folder: Path, name: str, life: int) -> None:
    """Close the files, and leave in them what was there before."""
    left = {
        path: path.read_bytes() for path in (publishes_path(folder, name, life), under_way_path(folder, name, life))
    }
    rows.close()
    for path, data in left.items():
        path.write_bytes(data)


def killed(folder: Path, *, life: int, first: int, sent: list[int], recorded: list[int]) -> None:
    """What a process leaves that is killed after it wrote down ``sent`` and recorded some of it."""
    under_way = UnderWay(under_way_path(folder, "publisher-0", life), size=20)
    routes = [sequence % 3 for sequence in sent]
    places = under_way.take(0, first, routes, [10 * sequence for sequence in sent], 1000 * (life + 1), 2)
    rows = Publishes(publishes_path(folder, "publisher-0", life), under_way=under_way, on_written=_uncounted)
    rows.add([places[sequence - first] for sequence in recorded], Outcome.CONFIRMED)
    rows.flush()
    close_as_killed(rows, folder, "publisher-0", life)


def test_what_a_killed_publisher_had_under_way_becomes_unknown_once_with_all_that_is_known(tmp_path: Path) -> None:
    load(queues=3).save(tmp_path)
    killed(tmp_path, life=0, first=0, sent=list(range(7)), recorded=[0, 1, 2, 3, 5])
    with Counters(tmp_path, workers=2, create=True) as counters:
        counters.set(0, Count.SENT, 7)
    assert (settle(tmp_path), settle(tmp_path)) == (2, 0)
    expected = {s: [Outcome.UNKNOWN if s in (4, 6) else Outcome.CONFIRMED] for s in range(7)}
    assert outcomes(tmp_path) == expected
    (batch,) = StreamReader(publishes_path(tmp_path, "publisher-0", SETTLED), PUBLISHES).batches()
    row = {"publisher": 0, "outcome": Outcome.UNKNOWN, "outcome_us": 1000, "sent_us": 1000, "node": 2}
    assert batch.to_pylist() == [row | {"sequence": s, "route": s % 3, "due_us": 10 * s} for s in (4, 6)]


def test_what_was_not_counted_as_sent_was_not_sent_and_its_sequence_belongs_to_the_next_life(tmp_path: Path) -> None:
    load(queues=3).save(tmp_path)
    killed(tmp_path, life=0, first=0, sent=list(range(5)), recorded=[0])
    killed(tmp_path, life=1, first=3, sent=list(range(3, 8)), recorded=[4])
    with Counters(tmp_path, workers=2, create=True) as counters:
        counters.set(0, Count.SENT, 6)
    assert settle(tmp_path) == 4
    assert outcomes(tmp_path) == {s: [Outcome.CONFIRMED if s in (0, 4) else Outcome.UNKNOWN] for s in range(6)}
    (batch,) = StreamReader(publishes_path(tmp_path, "publisher-0", SETTLED), PUBLISHES).batches()
    assert {row["sequence"]: row["sent_us"] for row in batch.to_pylist()} == {1: 1000, 2: 1000, 3: 2000, 5: 2000}


def test_what_is_cut_off_a_stream_is_not_made_up_for(tmp_path: Path) -> None:
    """A publisher that stopped in order left nothing under way."""
    load().save(tmp_path)
    under_way = UnderWay(under_way_path(tmp_path, "publisher-0", 0), size=20)
    rows = Publishes(publishes_path(tmp_path, "publisher-0", 0), under_way=under_way, on_written=_uncounted)
    rows.add(under_way.take(0, 0, [0] * 5, [1] * 5, 1, 0), Outcome.CONFIRMED)
    rows.flush()
    rows.close()
    with Counters(tmp_path, workers=2, create=True) as counters:
        counters.set(0, Count.SENT, 5)
    path = publishes_path(tmp_path, "publisher-0", 0)
    path.write_bytes(path.read_bytes()[:-100])
    assert settle(tmp_path) == 0
    assert outcomes(tmp_path) == {}


def test_a_publisher_that_never_sent_needs_no_settlement(tmp_path: Path) -> None:
    load().save(tmp_path)
    Counters(tmp_path, workers=2, create=True).close()
    assert settle(tmp_path) == 0
    assert list(tmp_path.glob("*.arrows")) == []


def test_publishers_that_shared_a_process_are_settled_each_for_itself(tmp_path: Path) -> None:
    load(publishers=3, shared={"publisher": ((0, 2),)}).save(tmp_path)
    under_way = UnderWay(under_way_path(tmp_path, "publishers-0", 0), size=20)
    rows = Publishes(publishes_path(tmp_path, "publishers-0", 0), under_way=under_way, on_written=_uncounted)
    first = under_way.take(0, 0, [0] * 3, [1] * 3, 1, 0)
    under_way.take(2, 0, [0] * 2, [2] * 2, 2, 0)
    rows.add(first[:1], Outcome.CONFIRMED)
    rows.flush()
    close_as_killed(rows, tmp_path, "publishers-0", 0)
    with Counters(tmp_path, workers=4, create=True) as counters:
        counters.set(0, Count.SENT, 3)
        counters.set(2, Count.SENT, 1)
    assert (settle(tmp_path), settle(tmp_path)) == (3, 0)
    told = [
        (row["publisher"], row["sequence"], row["sent_us"])
        for path in tmp_path.glob(f"*.{SETTLED}.*")
        for batch in StreamReader(path, PUBLISHES).batches()
        for row in batch.to_pylist()
    ]
    assert sorted(told) == [(0, 1, 1), (0, 2, 1), (2, 0, 2)]


def test_progress_can_be_read_between_the_end_of_the_workers_and_that_of_the_run(tmp_path: Path) -> None:
    """The thread of the live line does, whenever its time comes."""
    stated = load()
    stated.save(tmp_path)
    with RunningWorkload(stated, tmp_path) as running:
        with Counters(tmp_path, workers=2) as counters:
            counters.set(0, Count.SENT, 7)
        running.stop()
        assert running.progress().published == 7


def test_a_load_that_does_not_begin_says_how_far_it_came(tmp_path: Path) -> None:
    stated = load(publishers=2)
    stated.save(tmp_path)
    with RunningWorkload(stated, tmp_path) as running:
        with Counters(tmp_path, workers=3) as counters:
            counters.set(0, Count.NODE, 1)
        told = r"1 of 3 clients were connected after 0 s, in which \d+% of this machine was in use; take fewer clients"
        with pytest.raises(LoadNotBegunError, match=told):
            running.await_connected(timeout_s=0)
