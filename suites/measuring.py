"""Has the brokers of a run scraped while it lasts, where its scenario asks for metrics."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

from faults.scenario import Scenario
from reports.events import EventLog
from reports.history import now_us
from reports.metrics import scraped_series
from reports.run_directory import RunDirectory
from reports.scraped import Clocks, ScrapeError, save_metrics
from topologies.cluster import Cluster


@contextmanager
def measured(scenario: Scenario, cluster: Cluster, run: RunDirectory, events: EventLog) -> Iterator[None]:
    """Scrapes ``cluster`` and keeps the series at the end, whatever that end is. Where they cannot be kept, a note says
    so, and the server's own files stay in the run directory."""
    if not scenario.metrics:
        yield
        return
    clocks = Clocks(now_us(), time.time_ns() // 1000)
    events.record("clocks", t_us=clocks.t_us, wall_us=clocks.wall_us)
    server = cluster.scraped(run.name, series=scraped_series(), data=run.scraped)
    try:
        yield
    finally:
        try:
            save_metrics(server.url, run.metrics_file, clocks, until_us=now_us())
        except ScrapeError as error:
            events.record("note", detail=f"{error}; what was scraped is in {run.scraped}")
        finally:
            server.close()
        if run.metrics_file.exists():
            shutil.rmtree(run.scraped)
