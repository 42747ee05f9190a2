"""Publishers and consumers as their process makes them, with something else in the place of their session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rabbitmq_resilience.workloads.consumer import Consumer
from rabbitmq_resilience.workloads.counters import Count
from rabbitmq_resilience.workloads.deliveries import Deliveries, Settling
from rabbitmq_resilience.workloads.load import Load, deliveries_path, publishes_path, under_way_path
from rabbitmq_resilience.workloads.publisher import Publisher
from rabbitmq_resilience.workloads.publishes import Publishes, under_way_max
from rabbitmq_resilience.workloads.under_way import UnderWay


def publishes(
    folder: Path, in_flight: int, on_written: Callable[[int, int], None], *, name: str = "publisher-0"
) -> Any:
    size = under_way_max(in_flight, publishers=1)
    under_way = UnderWay(under_way_path(folder, name, 0), size=size)
    return Publishes(publishes_path(folder, name, 0), under_way=under_way, on_written=on_written)


def publisher(load: Load, folder: Path, notes: Any, *, index: int = 0) -> Any:
    """Alone in its process. What is written is added to the notes."""
    history = publishes(
        folder, load.in_flight, lambda _, count: notes.add(Count.RECORDED, count), name=f"publisher-{index}"
    )
    return Publisher(notes, load, history, index=index)


def consumer(load: Load, folder: Path, notes: Any) -> Any:
    """Alone in its process, which settles at once."""
    history = Deliveries(
        deliveries_path(folder, "consumer-0", 0), on_written=lambda _, count: notes.add(Count.RECORDED, count)
    )
    settled: list[Callable[[], None]] = []
    settling = Settling(history, settled.append)

    class Alone(Consumer):
        def _settle(self) -> None:
            super()._settle()
            _through(settled)

        def tick(self) -> None:
            super().tick()
            _through(settled)

    return Alone(notes, load, settling, index=0)


def close(client: Any) -> None:
    """The end of its process."""
    client.close()
    history = client._history if isinstance(client, Publisher) else client._settling.history
    history.close()


def _through(settled: list[Callable[[], None]]) -> None:
    while settled:
        settled.pop()()
