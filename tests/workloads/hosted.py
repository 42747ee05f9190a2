"""Publishers and consumers as their process makes them, with something else in the place of their session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rabbitmq_resilience.workload.consumer import Consumer
from rabbitmq_resilience.workload.counters import Count
from rabbitmq_resilience.workload.deliveries import Deliveries, Settling
from rabbitmq_resilience.workload.load import Load, deliveries_path, publishes_path, under_way_path
from rabbitmq_resilience.workload.publisher import Publisher
from rabbitmq_resilience.workload.publishes import Publishes, under_way_max
from rabbitmq_resilience.workload.under_way import UnderWay


def publishes(
    folder: Path, in_flight: int, on_written: Callable[[int, int], None], *, name: str = "publisher-0"
) -> Any:
    size = under_way_max(in_flight, publishers=1)
    under_way = UnderWay(under_way_path(folder, name, 0), size=size)
    return Publishes(publishes_path(folder, name, 0), under_way=under_way, on_written=on_written)


class HostedPublisher(Publisher):
    """A publisher with the history of its process."""

    def __init__(self, notes: Any, load: Load, history: Any, *, index: int) -> None:
        super().__init__(notes, load, history, index=index)
        self.history = history


class HostedConsumer(Consumer):
    """A consumer with the history of its process."""

    def __init__(self, notes: Any, load: Load, settling: Settling, *, index: int) -> None:
        super().__init__(notes, load, settling, index=index)
        self.history = settling.history


def publisher(load: Load, folder: Path, notes: Any, *, index: int = 0) -> Any:
    """Alone in its process. What is written is added to the notes."""
    history = publishes(
        folder, load.in_flight, lambda _, count: notes.add(Count.RECORDED, count), name=f"publisher-{index}"
    )
    made = HostedPublisher(notes, load, history, index=index)
    made.publish()  # as where all clients of the load are connected
    return made


def consumer(load: Load, folder: Path, notes: Any, *, later: Callable[[Callable[[], None]], object]) -> Any:
    """Alone in its process. ``later`` takes what the process calls when it has served what arrived."""
    history = Deliveries(
        deliveries_path(folder, "consumer-0", 0), on_written=lambda _, count: notes.add(Count.RECORDED, count)
    )
    return HostedConsumer(notes, load, Settling(history, later), index=0)


def close(client: HostedPublisher | HostedConsumer) -> None:
    """The end of its process."""
    client.close()
    client.history.close()
