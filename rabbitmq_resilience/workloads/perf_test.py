"""A workload of ours as options of RabbitMQ PerfTest (queues, connections, rate and settings the same), and what that
told of it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from rabbitmq_resilience.clusters.access import Access
from rabbitmq_resilience.workloads.load import Address
from rabbitmq_resilience.workloads.matching import DEFAULT_EXCHANGE
from rabbitmq_resilience.workloads.routing import HASH_PLUGIN
from rabbitmq_resilience.workloads.spec import Workload

#: Those that it tells.
PERCENTILES = (50, 75, 95, 99)

#: The fields of a workload that it can have too. They are what queues are, which are declared before it comes; what its
#: options say; and what makes no difference where a publisher has one queue, nothing breaks, and nothing is idle.
_LIKE = re.compile(
    "queue_type|queues|queue_pattern|leaders_on|group_size|mirroring|lazy|max_in_memory_length|durable|limits|"
    "single_active_consumer|"
    "publishers|consumers|rate_per_s|in_flight|prefetch|ack_every|message_bytes|confirms|acks|persistent|heartbeat_s|"
    "routing|"
    "kind|spread|reconnect|confirm_timeout_s|idle_heartbeat_s"
)
#: It takes headers of these names for properties of the message, and values that look like numbers for numbers.
_PROPERTY = re.compile(
    "appId|clusterId|contentEncoding|contentType|correlationId|deliveryMode|expiration|messageId|priority|replyTo|"
    "timestamp|type|userId"
)
_HEADER = re.compile(r"[A-Za-z][\w.-]*")


class PerfTestFailed(Exception):
    """PerfTest did not start, or told nothing; the text holds the last lines that it wrote."""


@dataclass(frozen=True)
class Window:
    """What it told of one interval, which ended so many seconds after it began. Percentiles ({50: ms, ...}) are of the
    time from when a message was sent until it was received, and until it was confirmed; empty where there were none."""

    ended_s: float
    confirmed_per_s: float | None
    received_per_s: float
    end_to_end_ms: Mapping[int, float]
    confirm_ms: Mapping[int, float]


def problems(workload: Workload) -> Iterator[str]:
    """Why PerfTest has no load like it."""
    for name, field in type(workload).model_fields.items():
        if not _LIKE.fullmatch(name) and getattr(workload, name) != field.get_default(call_default_factory=True):
            yield f"{name}: PerfTest has nothing like it"
    if workload.confirms == "ignored":
        yield "confirms: PerfTest awaits confirms or asks for none; write awaited or none"
    if workload.acks == "early":
        yield "acks: PerfTest acknowledges what it has received or nothing; write manual or automatic"
    for clients in ("publishers", "consumers"):
        if getattr(workload, clients) < workload.queues:
            yield f"{clients}: PerfTest's keep to one queue each, so have as many as queues, {workload.queues}, or more"
    if workload.routing is not None:
        turns = workload.routing.turns
        if len(turns) > 1 or workload.routing.plugins & {HASH_PLUGIN}:
            yield "routing: PerfTest publishes to one exchange with one routing key; write one turn, without shards"
        headers = turns[0].headers
        if any(
            _PROPERTY.fullmatch(name) or not _HEADER.fullmatch(name) or not _HEADER.fullmatch(value)
            for name, value in headers.items()
        ):
            yield "routing: PerfTest takes headers of letters and digits, whose names are no properties of messages"


def options(
    workload: Workload,
    addresses: Sequence[Address],
    *,
    vhost: str,
    access: Access,
    interval_s: int,
    seconds_s: int,
    csv_file: Path | None = None,
) -> list[str]:
    """What follows its command, for queues that are there. ``addresses``: those of our clients, in their order;
    ``interval_s``: how often it tells; ``csv_file``: where to, for ``read``."""
    turn = workload.routing.turns[0] if workload.routing is not None else None
    said: dict[str, object] = {
        "uris": ",".join(_places(workload, addresses, vhost, access)),
        "exchange": (turn.exchange if turn is not None else DEFAULT_EXCHANGE) or "amq.default",
        "queue-pattern": workload.queue_pattern,
        "queue-pattern-from": 1,
        "queue-pattern-to": workload.queues,
        "producers": workload.publishers,
        "consumers": workload.consumers,
        "size": workload.message_bytes,
        "heartbeat": workload.heartbeat_s,
        "interval": interval_s,
        "time": seconds_s,
    }
    if turn is not None:
        said["routing-key"] = turn.routing_key
        said["message-properties"] = ",".join(f"{name}={value}" for name, value in turn.headers.items()) or None
    if workload.confirms == "awaited":
        said["confirm"] = workload.in_flight
    if workload.acks == "manual":
        said["qos"] = workload.prefetch
        said["multi-ack-every"] = workload.ack_every if workload.ack_every > 1 else None
    if workload.rate_per_s is not None:
        said["rate"] = workload.rate_per_s / workload.publishers
    said["output-file"] = csv_file
    words = [word for name, value in said.items() if value is not None for word in (f"--{name}", str(value))]
    flags = ["--flag", "mandatory", *(["--flag", "persistent"] if workload.persistent else [])]
    return [*words, *flags, "--predeclared", "--skip-binding-queues", *(["--autoack"] * (workload.acks == "automatic"))]


def _places(workload: Workload, addresses: Sequence[Address], vhost: str, access: Access) -> list[str]:
    """URIs of the nodes to which our clients connect. It draws one for each of its connections."""
    user = f"{quote(access.user, safe='')}:{quote(access.password, safe='')}"
    ours = addresses[: max(workload.publishers, workload.consumers)]
    return [f"amqp://{user}@{at.host}:{at.port}/{quote(vhost, safe='')}" for at in ours]


def read(csv_file: Path) -> list[Window]:
    """What it wrote of each interval. Raises PerfTestFailed for a file that is none of its."""
    try:
        with csv_file.open(encoding="utf-8", newline="") as file:
            return [_window(row) for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise PerfTestFailed(f"{csv_file} is nothing that PerfTest wrote: {type(error).__name__}: {error}") from None


def _window(row: Mapping[str, str]) -> Window:
    confirmed, received = (row[f"{what} (msg/s)"] for what in ("confirmed", "received"))
    return Window(
        ended_s=float(row["time (s)"]),
        confirmed_per_s=float(confirmed) if confirmed else None,
        received_per_s=float(received or 0),
        end_to_end_ms=_percentiles(row, "consumer") if float(received or 0) else {},
        confirm_ms=_percentiles(row, "confirm") if float(confirmed or 0) else {},
    )


def _percentiles(row: Mapping[str, str], of: str) -> Mapping[int, float]:
    """It writes zeros where there were none."""
    told = {p: row[f"{'median' if p == 50 else f'{p}th p.'} {of} latency (µs)"] for p in PERCENTILES}
    return {p: int(micros) / 1000 for p, micros in told.items() if micros}
