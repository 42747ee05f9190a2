"""A real server, which scrapes endpoints that are not brokers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from prometheus_api_client import PrometheusConnect
from urllib3.util import Retry

from rabbitmq_resilience.history import scraped
from rabbitmq_resilience.history.history import now_us
from rabbitmq_resilience.history.metrics import METRICS, SERIES, read_metrics, scraped_series
from rabbitmq_resilience.history.recorded_alerts import read_alerts
from rabbitmq_resilience.history.scraped import Clocks, ScrapeError, save_metrics
from rabbitmq_resilience.history.scraped_alerts import save_alerts
from rabbitmq_resilience.model.alert_rules import read_rules
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.machine.port_claims import release, take_claim
from rabbitmq_resilience.sut.processes.process_cluster import LocalHost
from rabbitmq_resilience.sut.prometheus_server import PrometheusServer, reading, scrape_config, scraping
from rabbitmq_resilience.sut.protocol import PrometheusRequest
from rabbitmq_resilience.tools.waiting import wait_until

NODE = """rabbitmq_process_resident_memory_bytes 150
rabbitmq_build_info 1
erlang_vm_dist_recv_bytes{peer="b1@localhost"} 1000
erlang_vm_dist_recv_bytes{peer="c1@localhost"} 1000
"""
QUEUES = """rabbitmq_detailed_queue_messages_unacked{vhost="run",queue="q1"} 7
rabbitmq_detailed_raft_log_commit_index{vhost="run",queue="before_4.2"} 40
rabbitmq_detailed_raft_commit_index{vhost="run",queue="q1"} 50
"""


class Endpoint(BaseHTTPRequestHandler):
    """What a broker answers to both scrapes."""

    def do_GET(self) -> None:
        detailed = "/metrics/detailed?family=queue_coarse_metrics&family=ra_metrics&vhost=run"
        text = {"/metrics": NODE, detailed: QUEUES}.get(self.path)
        self.send_response(200 if text else 404)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def host(prometheus: Path, tmp_path: Path) -> LocalHost:
    return LocalHost(tmp_path, programs={"prometheus": prometheus})


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    place = take_claim(tmp_path, ports=2)
    yield place.base_port
    release(place)


def scrapes(server: PrometheusServer) -> int:
    """How many scrapes of the queues the server has made."""
    query = {"query": 'count_over_time(rabbitmq_detailed_queue_messages_unacked{node="a1"}[1m])'}
    found = httpx.get(f"{server.url}/api/v1/query", params=query, trust_env=False).json()["data"]["result"]
    return int(found[0]["value"][1]) if found else 0


def one(table: pa.Table, metric: str, node: str) -> list[tuple[str, float]]:
    rows = table.filter(pc.and_(pc.equal(table["metric"], metric), pc.equal(table["node"], node)))
    return sorted({(row["queue"], row["value"]) for row in rows.to_pylist()})


@pytest.mark.core
def test_what_is_scraped_is_kept_on_the_clock_of_the_run(
    host: LocalHost, endpoint: int, port: int, tmp_path: Path
) -> None:
    clocks = Clocks(now_us(), time.time_ns() // 1000)
    config = scrape_config(
        {"a1": f"127.0.0.1:{endpoint}", "b1": f"127.0.0.1:{port + 1}"}, vhost="run", series=scraped_series()
    )
    data, file = tmp_path / "data", tmp_path / "metrics.parquet"
    with PrometheusServer(host, config, port=port, data=data) as server:
        server.await_scraping(nodes=1)
        wait_until(lambda: scrapes(server) >= 5, timeout_s=60, what="five scrapes")
        rows = save_metrics(server.url, file, clocks, until_us=now_us())
    table = read_metrics(file)

    with pytest.raises(httpx.ConnectError):
        scrapes(server)
    assert table.schema.equals(SERIES)
    assert rows == table.num_rows
    assert one(table, "memory_used", "a1") == [("", 150)]
    assert one(table, "unacked", "a1") == [("q1", 7)]
    assert one(table, "raft_commit_index", "a1") == [("before_4.2", 40), ("q1", 50)]
    assert one(table, "replication_received", "a1") == [("", 0)]
    assert one(table, "memory_used", "b1") == []
    assert one(table, "scraped", "b1") == [("", 0)]  # nobody listens there
    assert clocks.t_us - 1_000_000 <= pc.min(table["t_us"]).as_py() <= pc.max(table["t_us"]).as_py() <= now_us()

    with reading(LocalHost, data) as again:
        save_metrics(again.url, tmp_path / "again.parquet", clocks, until_us=now_us())
    assert one(read_metrics(tmp_path / "again.parquet"), "unacked", "a1") == [("q1", 7)]


@pytest.mark.core
def test_a_server_that_does_not_answer_is_reported_and_leaves_no_file(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = partial(PrometheusConnect, retry=Retry(0))
    monkeypatch.setattr(scraped, "PrometheusConnect", once)
    clocks = Clocks(now_us(), time.time_ns() // 1000)
    with pytest.raises(ScrapeError, match=f"http://127.0.0.1:{port}"):
        save_metrics(f"http://127.0.0.1:{port}", tmp_path / "metrics.parquet", clocks, until_us=now_us())
    assert not list(tmp_path.glob("*metrics.parquet"))


@pytest.mark.core
def test_a_server_that_ends_at_once_is_reported_with_its_words(host: LocalHost, port: int, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"status 2.*\n.*no_such_setting"):
        PrometheusServer(host, {"no_such_setting": 1}, port=port, data=tmp_path / "data")


def test_only_what_the_queries_need_is_scraped() -> None:
    config = scrape_config({"a1": "a1:1"}, vhost="run", series=scraped_series())
    (kept,) = config["scrape_configs"][0]["metric_relabel_configs"]
    assert set(kept["regex"].split("|")) == scraped_series()
    assert {"rabbitmq_detailed_raft_commit_index", "rabbitmq_detailed_raft_log_commit_index"} <= scraped_series()
    assert {"erlang_vm_dist_recv_bytes", "erlang_vm_dist_send_bytes"} <= scraped_series()


def test_every_metric_has_a_name_of_its_own() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


RULES = """groups:
  - name: fast
    rules:
      - {alert: Full, expr: rabbitmq_process_resident_memory_bytes > 100, for: 2s, labels: {severity: page}}
      - {alert: Empty, expr: rabbitmq_process_resident_memory_bytes < 100}
  - name: slow
    interval: 3s
    rules:
      - {alert: Slow, expr: vector(1)}
      - {record: broken, expr: up + on() up}
"""


@pytest.mark.brokers
def test_alerts_are_kept_with_the_time_in_which_their_rules_were_evaluated(
    host: LocalHost, endpoint: int, port: int, tmp_path: Path
) -> None:
    clocks = Clocks(now_us(), time.time_ns() // 1000)
    file = tmp_path / "alerts.yml"
    file.write_text(RULES, encoding="utf-8")
    endpoints = {"a1": f"127.0.0.1:{endpoint}"}
    wanted = PrometheusRequest(rules=[read_rules(file)])
    with scraping(host, endpoints, vhost="run", wanted=wanted, port=port, data=tmp_path / "data") as server:
        server.await_scraping(nodes=1)
        wait_until(lambda: scrapes(server) >= 9, timeout_s=60, what="nine scrapes")
        until_us = now_us()
        notes = save_alerts(server.url, tmp_path / "alerts.json", wanted.rules, clocks, until_us=until_us)
    kept = read_alerts(tmp_path / "alerts.json")
    assert kept is not None

    assert [(group.name, group.every_s, group.alerts) for group in kept.groups] == [
        ("fast", 1.0, ["Empty", "Full"]),
        ("slow", 3.0, ["Slow"]),
    ]
    for group in kept.groups:
        assert clocks.t_us <= group.evaluated_us[0][0] <= group.evaluated_us[-1][1] <= until_us
    full = {one.state: one for one in reversed(kept.active) if one.alert == "Full"}
    assert full["firing"].labels["node"] == "a1"
    assert full["firing"].labels["severity"] == "page"
    assert full["firing"].start_us - full["pending"].start_us >= 2_000_000, "it has its for:"
    assert {one.alert for one in kept.active} == {"Full", "Slow"}
    assert len(notes) == 1
    assert "rule broken" in notes[0]

    with reading(LocalHost, tmp_path / "data") as again:
        save_alerts(again.url, tmp_path / "again.json", wanted.rules, clocks, until_us=until_us)
    assert read_alerts(tmp_path / "again.json") == kept
