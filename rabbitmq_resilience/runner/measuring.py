"""Scrape the brokers during a run, if its scenario asks for metrics."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rabbitmq_resilience.checkers.disk import Disk
from rabbitmq_resilience.history.event_log import EventLog
from rabbitmq_resilience.history.events import ClocksEvent, Event
from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.history.metrics import scraped_series
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.history.scraped import Clocks, ScrapeError, save_metrics
from rabbitmq_resilience.history.scraped_alerts import save_alerts
from rabbitmq_resilience.model.alert_rules import RuleFile, RulesError, read_rules
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.named_files import rule_copies
from rabbitmq_resilience.sut.drivers import FORMING
from rabbitmq_resilience.sut.processes.process_cluster import LocalHost
from rabbitmq_resilience.sut.prometheus_server import reading
from rabbitmq_resilience.sut.protocol import Cluster, PrometheusRequest, Scraping
from rabbitmq_resilience.tools.distributions import ToolMissingError


@contextmanager
def measured(scenario: Scenario, cluster: Cluster, run: RunDirectory, events: EventLog) -> Iterator[Scraping | None]:
    """Scrape ``cluster`` if the scenario asks for it, and keep the series and the alerts when the block ends or fails.

    If the server cannot return them any more, a note says so, and ``recover`` takes them from its files later.
    """
    if not scenario.metrics:
        yield None
        return
    clocks = Clocks(now_us(), time.time_ns() // 1000)
    events.record("clocks", t_us=clocks.t_us, wall_us=clocks.wall_us)
    rules = [read_rules(run.path / copy) for copy in rule_copies(scenario)]
    # It is unknown which series the user's rules need.
    wanted = PrometheusRequest(None if rules else scraped_series(), rules)
    server = cluster.scraped(cluster.vhost_of(run.name), wanted=wanted, data=run.scraped)
    try:
        yield server
    finally:
        try:
            for note in _keep(server.url, run, rules, clocks, until_us=now_us()):
                events.record("note", detail=note)
        except ScrapeError as error:
            events.record("note", detail=str(error))
        finally:
            server.close()
        _tidy(run, rules)


def recover(run: RunDirectory, events: Sequence[Event], rule_files: Sequence[Path]) -> str:
    """Keep the metrics of a run that was killed, or whose server was; return the problem in words, or ''.

    A new server reads the files that the first one left. Do nothing if there are none.
    """
    clocks = next((Clocks(e.t_us, e.wall_us) for e in events if isinstance(e, ClocksEvent)), None)
    if clocks is None or not run.scraped.exists():
        return ""
    try:
        rules = [read_rules(path) for path in rule_files]
        with reading(LocalHost, run.scraped) as server:
            _keep(server.url, run, rules, clocks, until_us=events[-1].t_us)
    except (ClusterError, RulesError, ScrapeError, ToolMissingError) as error:
        return f"the scraped metrics are in {run.scraped}, and could not be read: {error}"
    _tidy(run, rules)
    return ""


def _keep(url: str, run: RunDirectory, rules: Sequence[RuleFile], clocks: Clocks, *, until_us: int) -> list[str]:
    """Write the missing files, and return problems of the rules. Raise ScrapeError if the server does not answer."""
    if not run.metrics_file.exists():
        save_metrics(url, run.metrics_file, clocks, until_us=until_us)
    if not rules or run.alerts_file.exists():
        return []
    return save_alerts(url, run.alerts_file, rules, clocks, until_us=until_us)


def _tidy(run: RunDirectory, rules: Sequence[RuleFile]) -> None:
    if run.metrics_file.exists() and (not rules or run.alerts_file.exists()):
        shutil.rmtree(run.scraped, ignore_errors=True)


def stored_looked_at(scenario: Scenario, cluster: Cluster) -> Callable[[], Mapping[str, int]]:
    """Return a function that returns {broker: the bytes it stores}.

    It returns {} unless the scenario bounds these bytes and the brokers are on this machine, whose disk they share.
    """
    disk, nodes = scenario.chosen_invariants.get("disk"), [node.name for node in cluster.topology.nodes]
    if not isinstance(disk, Disk) or disk.taken_bytes_max is None or cluster.driver not in FORMING:
        return dict
    return lambda: {node: cluster.stored_bytes(node) for node in nodes}
