from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rabbitmq_resilience.history.history import DELIVERIES, PUBLISHES, Outcome, StreamWriter
from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.tools import waiting
from rabbitmq_resilience.workload import drain as drain_module
from rabbitmq_resilience.workload.drain import Bitmap, Depth, DepthsUnknown, Tally, drain
from rabbitmq_resilience.workload.load import deliveries_path, publishes_path
from tests.messages import Messages


class Folder:
    """Histories written by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._publishes = StreamWriter(publishes_path(path, "publisher-0", 0), PUBLISHES)
        self._deliveries = StreamWriter(deliveries_path(path, "consumer-0", 0), DELIVERIES)

    def published(self, sequences: list[int], outcome: Outcome) -> None:
        rows: dict[str, list[int]] = {name: [0] * len(sequences) for name in PUBLISHES.names}
        self._publishes.append(rows | {"sequence": sequences, "outcome": [outcome] * len(sequences)})

    def received(self, sequences: list[int], *, intact: bool = True, queue: int = 0) -> None:
        count = len(sequences)
        columns = {"consumer": [0] * count, "publisher": [0] * count, "queue": [queue] * count, "sequence": sequences}
        columns |= {"received_us": [2] * count, "redelivered": [False] * count, "intact": [intact] * count}
        self._deliveries.append(columns)

    def close(self) -> None:
        self._publishes.close()
        self._deliveries.close()

    def tally(self) -> Tally:
        return Tally(self.path, publishers=1, routes=Routes.plain(1))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of the test's own: to wait is to move it on."""
    now_s = [1000.0]

    def sleep(seconds_s: float) -> None:
        now_s[0] += seconds_s

    own = SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep)
    monkeypatch.setattr(waiting, "time", own)
    monkeypatch.setattr(drain_module, "time", own)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    made.close()


def empty() -> dict[str, Depth]:
    return {"q1": Depth(0, 0)}


def test_complete_once_every_confirmed_message_is_received(folder: Folder) -> None:
    folder.published([0, 1, 2], Outcome.CONFIRMED)
    folder.published([3], Outcome.RETURNED)
    folder.published([4], Outcome.UNKNOWN)
    folder.received([2, 0, 1, 1])
    result = drain(folder.tally(), empty, idle_s=60, timeout_s=60)
    assert (result.complete, result.confirmed, result.received, result.unconsumed) == (True, 3, 3, 0)


def test_lost_messages_do_not_keep_the_drain_waiting(folder: Folder, message: Messages) -> None:
    folder.published([0, 1], Outcome.CONFIRMED)
    folder.received([1])
    result = drain(folder.tally(), empty, idle_s=0.3, timeout_s=60)
    assert (result.complete, result.unconsumed) == (True, 1)
    message(result.detail)


@pytest.mark.parametrize("held", [Depth(1, 0), Depth(0, 2), Depth(0, 0, dead_letters=3)])
def test_incomplete_while_queues_hold_messages(folder: Folder, held: Depth, message: Messages) -> None:
    folder.published([0], Outcome.CONFIRMED)
    result = drain(folder.tally(), lambda: {"q1": held}, idle_s=0.3, timeout_s=1)
    assert not result.complete
    message(result.detail)


def test_what_is_on_its_way_between_queues_is_not_taken_for_lost(folder: Folder, message: Messages) -> None:
    """One look finds them in neither: each queue tells its numbers at a time of its own."""
    folder.published([0, 1], Outcome.CONFIRMED)
    kept, moving, arrived = ({"q1": Depth(0, 0, one), "d1": Depth(other, 0)} for one, other in ((2, 0), (0, 0), (0, 2)))
    looks = iter([kept, moving])
    result = drain(folder.tally(), lambda: next(looks, arrived), idle_s=0.3, timeout_s=3)
    assert not result.complete
    message(result.detail)


def test_incomplete_if_no_broker_answers(folder: Folder, message: Messages) -> None:
    folder.published([0], Outcome.CONFIRMED)

    def asked() -> dict[str, Depth]:
        raise DepthsUnknown("a1 does not answer")

    result = drain(folder.tally(), asked, idle_s=0.3, timeout_s=1)
    assert (result.complete, result.unconsumed) == (False, 1)
    message(result.detail)


def test_incomplete_after_the_time_is_up(folder: Folder, message: Messages) -> None:
    folder.published([0], Outcome.CONFIRMED)
    result = drain(folder.tally(), empty, idle_s=60, timeout_s=0.3)
    assert not result.complete
    message(result.detail)


def test_a_damaged_delivery_is_not_an_arrival(folder: Folder) -> None:
    folder.published([0], Outcome.CONFIRMED)
    folder.received([0], intact=False)
    assert drain(folder.tally(), empty, idle_s=0.3, timeout_s=60).unconsumed == 1


def test_the_tally_follows_growing_histories(folder: Folder) -> None:
    tally = folder.tally()
    tally.update()
    assert (tally.confirmed, tally.received, tally.unconsumed) == (0, 0, 0)
    folder.published([0, 200_000], Outcome.CONFIRMED)
    tally.update()
    assert (tally.confirmed, tally.received, tally.unconsumed) == (2, 0, 2)
    folder.received([200_000])
    tally.update()
    assert (tally.confirmed, tally.received, tally.unconsumed) == (2, 1, 1)


def test_what_goes_to_several_queues_must_come_from_each(folder: Folder) -> None:
    routes = Routes.of([[0, 1], [2]])
    tally = Tally(folder.path, publishers=1, routes=routes)
    folder.published([0, 1], Outcome.CONFIRMED)
    folder.received([0, 1])
    tally.update()
    assert (tally.confirmed, tally.received, tally.unconsumed) == (4, 2, 2)
    folder.received([1], queue=1)
    tally.update()
    assert tally.unconsumed == 1
    folder.received([0], queue=1)
    tally.update()
    assert tally.unconsumed == 0


def test_bitmaps_of_different_sizes() -> None:
    small, large = Bitmap(), Bitmap()
    small.add(np.array([1, 2]))
    large.add(np.array([2, 1 << 20]))
    assert (len(small), len(large), len(small.minus(large)), len(large.minus(small))) == (2, 2, 1, 1)
