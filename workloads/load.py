"""All that the workers of one run need to know, as a file beside their histories."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from reports.history import DELIVERIES_SUFFIX, PUBLISHES_SUFFIX
from reports.variation import Variation
from workloads.message import HEADER_BYTES

LOAD_FILE = "load.json"


class Address(NamedTuple):
    """Where one broker serves AMQP. ``node`` and ``zone`` are its names in the topology."""

    node: str
    host: str
    port: int
    zone: str = ""


@dataclass(frozen=True)
class Load:
    """``addresses`` are in the order of the topology's nodes, ``detours`` are those of the workers (by name) that get
    there by other ways; ``queues`` are in index order; the rest is as in ``workloads.spec.Workload``. ``run`` is the
    number that every message carries."""

    run: int
    seed: int
    vhost: str
    addresses: tuple[Address, ...]
    queues: tuple[str, ...]
    publishers: int
    consumers: int
    rate_per_s: int | None
    in_flight: int
    prefetch: int
    ack_every: int
    message_bytes: int
    confirms: str
    acks: str
    persistent: bool
    heartbeat_s: int
    confirm_timeout_s: float
    reconnect: str = "anywhere"
    copy_every: int | None = None
    variable_rate: tuple[Mapping[str, Any], ...] = ()
    processing_ms: float = 0
    variable_processing: tuple[Mapping[str, Any], ...] = ()
    start_spread_s: float = 0
    detours: Mapping[str, tuple[Address, ...]] = field(default_factory=dict)

    @property
    def rate(self) -> Variation:
        """The target of all publishers together, messages/s."""
        return Variation.of(vars(self), "rate_per_s", "variable_rate")

    @property
    def processing(self) -> Variation:
        """What a consumer takes for a message, ms."""
        return Variation.of(vars(self), "processing_ms", "variable_processing")

    @property
    def payload(self) -> bytes:
        return random.Random(self.seed).randbytes(self.message_bytes - HEADER_BYTES)  # noqa: S311

    def addresses_of(self, worker: str) -> tuple[Address, ...]:
        return self.detours.get(worker, self.addresses)

    def publisher_queues(self, publisher: int) -> tuple[int, ...]:
        """Indexes of the queues that a publisher's messages go to, in turn by their sequence."""
        return share(publisher, self.publishers, len(self.queues))

    def consumer_queues(self, consumer: int) -> tuple[int, ...]:
        return share(consumer, self.consumers, len(self.queues))

    def places(self, home: int) -> tuple[int, ...]:
        """Indexes of the addresses that a client tries in turn, beginning at its home (modulo their number)."""
        count = len(self.addresses)
        turn = [(home + i) % count for i in range(count)]
        if self.reconnect == "own_zone":
            turn = [i for i in turn if self.addresses[i].zone == self.addresses[turn[0]].zone]
        return tuple(turn)

    def save(self, folder: Path) -> None:
        (folder / LOAD_FILE).write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        fields: dict[str, Any] = json.loads((folder / LOAD_FILE).read_text(encoding="utf-8"))
        addresses = _addresses(fields.pop("addresses"))
        detours = {worker: _addresses(rows) for worker, rows in fields.pop("detours", {}).items()}
        fields |= {name: tuple(fields.get(name, ())) for name in ("queues", "variable_rate", "variable_processing")}
        return cls(addresses=addresses, detours=detours, **fields)


def worker_name(client: str) -> str:
    """The worker that a fault file calls ``publisher:0``."""
    return client.replace(":", "-")


def _addresses(rows: list[list[Any]]) -> tuple[Address, ...]:
    return tuple(Address(*row) for row in rows)


def share(worker: int, workers: int, queues: int) -> tuple[int, ...]:
    """The queues of one worker: one of them, or where there are more queues than workers, its part of them."""
    return tuple(range(worker, queues, workers)) or (worker % queues,)


def publishes_path(folder: Path, publisher: int, life: int | str) -> Path:
    """Each life of a publisher, counted from 0 and grown by one at each restart, has a stream of its own."""
    return folder / f"publisher-{publisher}.{life}{PUBLISHES_SUFFIX}"


def deliveries_path(folder: Path, consumer: int, life: int) -> Path:
    return folder / f"consumer-{consumer}.{life}{DELIVERIES_SUFFIX}"
