"""Define the brokers' metrics that are kept, second by second, and the file that keeps them.

``metrics.parquet`` in the run directory has one row for each value. A node that is down or does not answer has gaps.
The depths of quorum queues, and before 4.2 Raft's numbers too, are as old as their last tick, up to 5 s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from rabbitmq_resilience.history.history import HistoryError

METRICS_FILE = "metrics.parquet"


class Metric(NamedTuple):
    """A metric that is kept: its name here, the PromQL query that gives it, and its unit."""

    name: str
    query: str
    unit: str


_RAFT = "rabbitmq_detailed_raft_"

METRICS = (
    Metric("scraped", 'up{job="nodes"}', "1 if the node answered"),
    Metric("memory_used", "rabbitmq_process_resident_memory_bytes", "bytes"),
    Metric("memory_limit", "rabbitmq_resident_memory_limit_bytes", "bytes"),
    Metric("disk_free", "rabbitmq_disk_space_available_bytes", "bytes"),
    Metric("disk_limit", "rabbitmq_disk_space_available_limit_bytes", "bytes"),
    Metric("alarm_memory", "rabbitmq_alarms_memory_used_watermark", "1 if raised on the node"),
    Metric("alarm_disk", "rabbitmq_alarms_free_disk_space_watermark", "1 if raised on the node"),
    Metric("cores", "rate(erlang_vm_statistics_runtime_milliseconds[4s]) / 1000", "CPU-seconds/s"),
    Metric("connections", "rabbitmq_connections", "connections"),
    Metric("open_files", "rabbitmq_process_open_fds", "files"),
    Metric("open_files_limit", "rabbitmq_process_max_fds", "files"),
    Metric("replication_received", "sum by (node) (rate(erlang_vm_dist_recv_bytes[4s]))", "bytes/s"),
    Metric("replication_sent", "sum by (node) (rate(erlang_vm_dist_send_bytes[4s]))", "bytes/s"),
    Metric("ready", "rabbitmq_detailed_queue_messages_ready", "messages"),
    Metric("unacked", "rabbitmq_detailed_queue_messages_unacked", "messages"),
    # 4.2 renamed the Raft metrics (rabbitmq-server #13895); a cluster may have nodes of both kinds.
    Metric("raft_commit_index", f"{_RAFT}commit_index or {_RAFT}log_commit_index", "entries"),
    Metric("raft_written_index", f"{_RAFT}last_written_index or {_RAFT}log_last_written_index", "entries"),
    Metric("raft_snapshot_index", f"{_RAFT}snapshot_index or {_RAFT}log_snapshot_index", "entries"),
    Metric("raft_commit_latency", f"{_RAFT}commit_latency_seconds or {_RAFT}entry_commit_latency_seconds", "s"),
)

#: ``queue`` is empty for values of a node itself; ``t_us`` is on the clock of every record, to a second.
SERIES = pa.schema(
    [
        ("metric", pa.string()),
        ("node", pa.string()),
        ("queue", pa.string()),
        ("t_us", pa.int64()),
        ("value", pa.float64()),
    ]
)

_SERIES_NAME = re.compile(r"\b(?:rabbitmq|erlang)_\w+")


def scraped_series() -> frozenset[str]:
    """Return the names, as brokers give them, of all series that the queries need."""
    return frozenset(name for metric in METRICS for name in _SERIES_NAME.findall(metric.query))


#: Returns the rows (schema ``SERIES``) of the named metrics, or of all.
ReadMetrics = Callable[..., pa.Table]


def no_metrics(*_names: str) -> pa.Table:
    """Return the empty table of a run without metrics."""
    return SERIES.empty_table()


def read_metrics(path: Path, *names: str) -> pa.Table:
    """Return the rows (schema ``SERIES``) of the named metrics, or of all; none if the file does not exist."""
    if not path.exists():
        return no_metrics()
    return pq.read_table(path, schema=SERIES, filters=[("metric", "in", names)] if names else None)


def check_metrics(path: Path) -> None:
    """Read the file to its end. Raise HistoryError if that is not possible."""
    try:
        for _ in pq.ParquetFile(path).iter_batches():
            pass
    except (OSError, ValueError, pa.ArrowException) as error:
        raise HistoryError(f"{path.name} cannot be read: {error}") from None
