"""Read what each worker of a load counted from the folder that the load left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rabbitmq_resilience.history.expected_record import Account
from rabbitmq_resilience.history.history import (
    DELIVERIES_SUFFIX,
    END_OF_STREAM,
    PUBLISHES,
    PUBLISHES_SUFFIX,
    HistoryError,
    StreamReader,
)
from rabbitmq_resilience.workload.counters import COUNTERS_FILE, Count, Counters
from rabbitmq_resilience.workload.deliveries import FLUSH_ROWS
from rabbitmq_resilience.workload.load import LOAD_FILE, RecordedClients, Role, WorkerClients, publishes_path
from rabbitmq_resilience.workload.publishes import under_way_max
from rabbitmq_resilience.workload.settlement import SETTLED


def read_accounts(folder: Path) -> list[Account]:
    """Return one account of each worker, publishers first.

    Raise HistoryError, which names the file, if a file is missing or damaged.
    """
    for name in (LOAD_FILE, COUNTERS_FILE):
        if not (folder / name).exists():
            raise HistoryError(f"{folder.name}/{name} is missing")
    try:
        load = RecordedClients.read(folder)
        workers = load.publishers + load.consumers
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise HistoryError(f"{folder.name}/{LOAD_FILE} cannot be read: {type(error).__name__}: {error}") from None
    try:
        with Counters(folder, workers=workers) as counters:
            return [
                *(
                    _of_publisher(folder, load, counters, process, publisher)
                    for publisher, process in _places(load, "publisher")
                ),
                *(
                    _of_consumer(folder, load, counters, process, consumer)
                    for consumer, process in _places(load, "consumer")
                ),
            ]
    except (OSError, ValueError) as error:
        raise HistoryError(f"{folder.name}/{COUNTERS_FILE} cannot be read: {error}") from None


def _places(load: RecordedClients, role: Role) -> Iterator[tuple[int, WorkerClients]]:
    """Yield each client with its process, in the order of clients."""
    return iter(sorted((client, process) for process in load.processes(role) for client in process.clients))


def _of_publisher(
    folder: Path, load: RecordedClients, counters: Counters, process: WorkerClients, index: int
) -> Account:
    worker = f"publisher-{index}"
    return Account(
        worker,
        index,
        counters.get(index, Count.RECORDED),
        under_way_max(load.in_flight, publishers=len(process.clients)),
        dict(_streams(folder, process, PUBLISHES_SUFFIX)),
        publishes=True,
        sent=counters.get(index, Count.SENT),
        confirmed=counters.get(index, Count.CONFIRMED),
        refused=counters.get(index, Count.REFUSED),
        unknown=counters.get(index, Count.UNKNOWN),
        settled=_rows(publishes_path(folder, worker, SETTLED)),
    )


def _of_consumer(
    folder: Path, load: RecordedClients, counters: Counters, process: WorkerClients, index: int
) -> Account:
    worker = f"consumer-{index}"
    recorded = counters.get(load.publishers + index, Count.RECORDED)
    return Account(
        worker,
        index,
        recorded,
        # Without acknowledgements, one chunk of data may come on top of FLUSH_ROWS.
        max(load.prefetch * len(process.clients), 2 * FLUSH_ROWS),
        dict(_streams(folder, process, DELIVERIES_SUFFIX)),
    )


def _streams(folder: Path, process: WorkerClients, suffix: str) -> Iterator[tuple[int, bool]]:
    for path in folder.glob(f"{process.name}.*{suffix}"):
        life = path.name.split(".")[1]
        if life.isdigit():
            yield int(life), _ends(path)


def _ends(path: Path) -> bool:
    """Return whether the stream ends with its end mark."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - len(END_OF_STREAM)))
        return file.read() == END_OF_STREAM


def _rows(path: Path) -> int:
    return sum(batch.num_rows for batch in StreamReader(path, PUBLISHES).together())
