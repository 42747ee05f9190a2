"""Translate a workload to options of RabbitMQ PerfTest, and read the results that PerfTest wrote.

Queues, connections, rate and settings are the same.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.workload.load import Address
from rabbitmq_resilience.workload.matching import DEFAULT_EXCHANGE
from rabbitmq_resilience.workload.routing import HASH_PLUGIN
from rabbitmq_resilience.workload.workload_model import Workload

#: The percentiles that PerfTest writes.
PERCENTILES = (50, 75, 95, 99)

#: The fields of a workload that PerfTest can have, too. Some describe the queues, which are declared before PerfTest
#: starts; some have options of PerfTest. The others make no difference if a publisher has one queue, nothing breaks
#: and no connection is idle.
_LIKE = re.compile(
    "queue_type|queues|queue_pattern|leaders_on|group_size|mirroring|lazy|max_in_memory_length|durable|limits|"
    "single_active_consumer|"
    "publishers|consumers|rate_per_s|in_flight|prefetch|ack_every|message_bytes|confirms|acks|persistent|heartbeat_s|"
    "routing|"
    "kind|spread|reconnect|confirm_timeout_s|idle_heartbeat_s"
)
#: PerfTest takes headers with these names as properties of the message, and values that look like numbers as numbers.
_PROPERTY = re.compile(
    "appId|clusterId|contentEncoding|contentType|correlationId|deliveryMode|expiration|messageId|priority|replyTo|"
    "timestamp|type|userId"
)
_HEADER = re.compile(r"[A-Za-z][\w.-]*")


class PerfTestFailed(Exception):
    """PerfTest did not start, or wrote no results; the text holds its last lines."""


@dataclass(frozen=True)
class Window:
    """The results of PerfTest for one interval, which ended ``ended_s`` seconds after PerfTest began.

    Percentiles ({50: ms, ...}) are of the time from sending a message until it was received (``end_to_end_ms``), and
    until it was confirmed (``confirm_ms``). They are empty if no message was.
    """

    ended_s: float
    confirmed_per_s: float | None
    received_per_s: float
    end_to_end_ms: Mapping[int, float]
    confirm_ms: Mapping[int, float]


def problems(workload: Workload) -> Iterator[str]:
    """Yield the reasons why PerfTest cannot run this workload."""
    for name, field in type(workload).model_fields.items():
        if not _LIKE.fullmatch(name) and getattr(workload, name) != field.get_default(call_default_factory=True):
            yield f"{name}: PerfTest has nothing like it"
    if workload.confirms == "ignored":
        yield "confirms: PerfTest awaits confirms or asks for none; write awaited or none"
    if workload.acks == "early":
        yield "acks: PerfTest acknowledges received messages or none; write manual or automatic"
    for clients in ("publishers", "consumers"):
        if getattr(workload, clients) < workload.queues:
            yield f"{clients}: PerfTest's use one queue each, so have as many as queues, {workload.queues}, or more"
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
    """Return the arguments of the PerfTest command, for queues that exist.

    ``addresses``: the addresses of our clients, in their order. ``interval_s``: how often PerfTest writes results.
    ``csv_file``: the file for these results, for ``read``.
    """
    turn = workload.routing.turns[0] if workload.routing is not None else None
    chosen: dict[str, object] = {
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
        chosen["routing-key"] = turn.routing_key
        chosen["message-properties"] = ",".join(f"{name}={value}" for name, value in turn.headers.items()) or None
    if workload.confirms == "awaited":
        chosen["confirm"] = workload.in_flight
    if workload.acks == "manual":
        chosen["qos"] = workload.prefetch
        chosen["multi-ack-every"] = workload.ack_every if workload.ack_every > 1 else None
    if workload.rate_per_s is not None:
        chosen["rate"] = workload.rate_per_s / workload.publishers
    chosen["output-file"] = csv_file
    words = [word for name, value in chosen.items() if value is not None for word in (f"--{name}", str(value))]
    flags = ["--flag", "mandatory", *(["--flag", "persistent"] if workload.persistent else [])]
    return [*words, *flags, "--predeclared", "--skip-binding-queues", *(["--autoack"] * (workload.acks == "automatic"))]


def _places(workload: Workload, addresses: Sequence[Address], vhost: str, access: Access) -> list[str]:
    """Return the URIs of the nodes to which our clients connect. PerfTest draws one for each connection."""
    user = f"{quote(access.user, safe='')}:{quote(access.password, safe='')}"
    ours = addresses[: max(workload.publishers, workload.consumers)]
    return [f"amqp://{user}@{at.host}:{at.port}/{quote(vhost, safe='')}" for at in ours]


def read(csv_file: Path) -> list[Window]:
    """Read the results of each interval. Raise PerfTestFailed if PerfTest did not write the file."""
    try:
        with csv_file.open(encoding="utf-8", newline="") as file:
            return [_window(row) for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise PerfTestFailed(f"{csv_file} is no file of PerfTest: {type(error).__name__}: {error}") from None


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
    """Return {percentile: ms}, without those that PerfTest writes as zero because there were none."""
    latencies = {p: row[f"{'median' if p == 50 else f'{p}th p.'} {of} latency (µs)"] for p in PERCENTILES}
    return {p: int(micros) / 1000 for p, micros in latencies.items() if micros}
