"""Save metrics from a Prometheus server to a file, one stretch of time after another, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests import RequestException, Session

from rabbitmq_resilience.history.metrics import METRICS, SERIES, Metric

STEP_S = 1
#: A server answers with at most 11 000 points a series, and all points of a stretch are held at once.
STRETCH = timedelta(minutes=10)

ANSWER_TIMEOUT_S = 60


class ScrapeError(Exception):
    """The server did not give the series that it scraped; the text says which series and why."""


@dataclass(frozen=True)
class Clocks:
    """One moment on two clocks: Prometheus has wall time, every record of a run has the monotonic clock."""

    t_us: int
    wall_us: int

    def monotonic_us(self, wall_s: Any) -> Any:
        """Return moments of wall time, in seconds, as moments of the record, in us."""
        return np.asarray(np.round(np.asarray(wall_s) * 1e6), dtype=np.int64) - self.wall_us + self.t_us

    def wall(self, t_us: int) -> datetime:
        """Return a moment of the record as wall time."""
        return datetime.fromtimestamp((t_us - self.t_us + self.wall_us) / 1e6, UTC)


def save_metrics(url: str, into: Path, clocks: Clocks, *, until_us: int) -> int:
    """Write all metrics from ``clocks`` until ``until_us``, and return the number of rows. The file is written whole or
    not at all. Raise ``ScrapeError``."""
    draft = into.with_name(f".{into.name}")
    rows = 0
    session = Session()
    session.trust_env = False  # the user's proxy does not lead to this server
    try:
        with (
            PrometheusConnect(url, session=session, timeout=ANSWER_TIMEOUT_S) as server,
            pq.ParquetWriter(draft, SERIES, compression="zstd") as file,
        ):
            for begin, end in stretches(clocks.wall(clocks.t_us), clocks.wall(until_us)):
                for metric in METRICS:
                    table = _rows(server, metric, clocks, begin, end)
                    rows += table.num_rows
                    file.write_table(table)
        draft.replace(into)
    except (PrometheusApiClientException, RequestException, OSError) as error:
        raise ScrapeError(f"the metrics could not be read from {url}: {error}") from error
    finally:
        draft.unlink(missing_ok=True)
    return rows


def stretches(begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the ends of each stretch, which belong to it, in whole seconds: the client would round them up too."""
    start, last = begin.replace(microsecond=0), end.replace(microsecond=0)
    while start <= last:
        yield start, min(start + STRETCH - timedelta(seconds=STEP_S), last)
        start += STRETCH


def _rows(server: PrometheusConnect, metric: Metric, clocks: Clocks, begin: datetime, end: datetime) -> pa.Table:
    answer = server.custom_query_range(metric.query, begin, end, f"{STEP_S}s")
    tables = [_series(metric.name, one["metric"], one["values"], clocks) for one in answer]
    return pa.concat_tables(tables) if tables else SERIES.empty_table()


def _series(name: str, labels: dict[str, str], values: Sequence[tuple[float, str]], clocks: Clocks) -> pa.Table:
    moments, texts = zip(*values, strict=True)
    same = [[text] * len(values) for text in (name, labels.get("node", ""), labels.get("queue", ""))]
    return pa.table([*same, clocks.monotonic_us(moments), [float(text) for text in texts]], schema=SERIES)
