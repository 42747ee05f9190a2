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
from topologies.cluster import Cluster, ClusterError, Scraping
from topologies.distributions import ToolMissingError
from topologies.local import LocalHost
from topologies.prometheus import reading


@contextmanager
def measured(scenario: Scenario, cluster: Cluster, run: RunDirectory, events: EventLog) -> Iterator[Scraping | None]:
    """Scrapes ``cluster``, if that is asked for, and keeps the series at the end, whatever that end is.

    Where the server cannot give them any more, a note says so, and ``recover`` takes them from its files.
    """
    if not scenario.metrics:
        yield None
        return
    clocks = Clocks(now_us(), time.time_ns() // 1000)
    events.record("clocks", t_us=clocks.t_us, wall_us=clocks.wall_us)
    server = cluster.scraped(run.name, series=scraped_series(), data=run.scraped)
    try:
        yield server
    finally:
        try:
            save_metrics(server.url, run.metrics_file, clocks, until_us=now_us())
        except ScrapeError as error:
            events.record("note", detail=str(error))
        finally:
            server.close()
        if run.metrics_file.exists():
            shutil.rmtree(run.scraped)


def recover(run: RunDirectory) -> str:
    """Keep what was scraped in a run that was killed, or whose server was; what is in the way, or ''.

    It takes a server, which reads the files that the other one left; nothing is done where there are none.
    """
    events = run.events()
    clocks = next((Clocks(e["t_us"], e["wall_us"]) for e in events if e["kind"] == "clocks"), None)
    if clocks is None or run.metrics_file.exists() or not run.scraped.exists():
        return ""
    try:
        with reading(LocalHost, run.scraped) as server:
            save_metrics(server.url, run.metrics_file, clocks, until_us=events[-1]["t_us"])
    except (ClusterError, ScrapeError, ToolMissingError) as error:
        return f"what was scraped is in {run.scraped}, and could not be read: {error}"
    shutil.rmtree(run.scraped)
    return ""
