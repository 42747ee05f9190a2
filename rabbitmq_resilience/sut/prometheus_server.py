"""Run one Prometheus server for one run: it scrapes the plugin ``rabbitmq_prometheus`` of the nodes.

The server scrapes two endpoints of each node. ``/metrics`` has the node's own metrics, and totals over its queues.
``/metrics/detailed`` has metrics for each queue, with names that begin with ``rabbitmq_detailed_``. It can be
restricted to a virtual host. It exists from 3.10 on; before that, the series of queues stay empty.

Source: RabbitMQ, "Monitoring with Prometheus and Grafana"; Prometheus, "Configuration".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from rabbitmq_resilience.model.alert_rules import EVALUATED_EVERY_S, given_to_server
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.broker_host import Host
from rabbitmq_resilience.sut.machine.port_claims import LOOPBACK, default_root, take_claim
from rabbitmq_resilience.sut.machine.reaper import Reaper
from rabbitmq_resilience.sut.protocol import PrometheusRequest
from rabbitmq_resilience.tools.closing import Closing
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

SCRAPE_EVERY_S = 1
#: How long a value counts as current. A failed scrape ends its series at once; this limit is for late scrapes.
LOOKBACK_S = 2

#: The families requested from the detailed endpoint: ready and unacknowledged messages, and the state of Raft.
QUEUE_FAMILIES = ("queue_coarse_metrics", "ra_metrics")

#: Old runs must stay readable.
_RETENTION = "100y"

_READY_TIMEOUT_S = 20.0
#: A server looks for targets to scrape only every 5 s, counted from its start.
_SCRAPES_WITHIN_S = 30.0
_ANSWER_TIMEOUT_S = 2.0


def scrape_config(
    endpoints: Mapping[str, str],
    *,
    vhost: str | None = None,
    series: Collection[str] | None = None,
    rules: Collection[str] = (),
) -> Mapping[str, Any]:
    """Return the server's configuration. ``endpoints`` is {node: ``host:port``}. The server keeps the named ``series``
    and the queues of ``vhost``; None means all. Each series has the topology's name of its node as the label ``node``.
    ``rules`` are names of rule files in the folder of the configuration."""
    common: dict[str, Any] = {
        "static_configs": [{"targets": [e], "labels": {"node": node}} for node, e in endpoints.items()]
    }
    if series is not None:
        kept = {"source_labels": ["__name__"], "regex": "|".join(sorted(series)), "action": "keep"}
        common["metric_relabel_configs"] = [kept]
    params = {} if vhost is None else {"vhost": [vhost]}
    detailed = {"metrics_path": "/metrics/detailed", "params": {**params, "family": list(QUEUE_FAMILIES)}}
    every: dict[str, Any] = {"scrape_interval": f"{SCRAPE_EVERY_S}s", "scrape_timeout": f"{SCRAPE_EVERY_S}s"}
    jobs = [{"job_name": "nodes", **common}, {"job_name": "queues", **detailed, **common}]
    if not rules:
        return {"global": every, "scrape_configs": jobs}
    every["evaluation_interval"] = f"{EVALUATED_EVERY_S:g}s"
    return {"global": every, "rule_files": list(rules), "scrape_configs": jobs}


class PrometheusServer(Closing):
    """A Prometheus server on the host of a cluster, from its creation until ``close`` (or leaving the context).

    It ends with the cluster even if the test run crashes. The scraped data stays in ``data``. ``extra_files``: the
    names and texts of files that the configuration refers to. Raise ``ClusterError`` if the server does not start.
    """

    def __init__(
        self,
        host: Host,
        config: Mapping[str, Any],
        *,
        port: int,
        data: Path,
        extra_files: Mapping[str, str] | None = None,
    ) -> None:
        data.mkdir(parents=True, exist_ok=True)
        for name, text in (extra_files or {}).items():
            (data / name).write_text(text, encoding="utf-8")
        config_file, self._log = data / "prometheus.yml", data / "prometheus.log"
        config_file.write_text(json.dumps(config, indent=2), encoding="utf-8")  # JSON is YAML
        self._url = f"http://{LOOPBACK}:{port}"
        arguments = [
            f"--config.file={config_file.name}",
            f"--web.listen-address={host.net.listen}:{port}",
            "--storage.tsdb.path=series",
            f"--storage.tsdb.retention.time={_RETENTION}",
            f"--query.lookback-delta={LOOKBACK_S}s",
            "--log.level=warn",
        ]
        self._running = host.serve("prometheus", arguments, {}, ports=[port], folder=data, log=self._log)
        try:
            self._await_ready()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return self._url

    def await_scraping(self, *, nodes: int) -> None:
        what = f"Prometheus at {self._url} to scrape {nodes} nodes"
        try:
            wait_until(lambda: self._scraped_nodes() >= nodes, timeout_s=_SCRAPES_WITHIN_S, what=what)
        except WaitTimeout as error:
            raise ClusterError(f"{error}; see {self._log}") from error

    def close(self) -> None:
        self._running.close()

    def _scraped_nodes(self) -> int:
        url, query = f"{self._url}/api/v1/query", {"query": 'up{job="nodes"} == 1'}
        try:
            answer = httpx.get(url, params=query, timeout=_ANSWER_TIMEOUT_S, trust_env=False)
            return len(answer.json()["data"]["result"])
        except (httpx.HTTPError, ValueError, KeyError):
            return 0

    def _await_ready(self) -> None:
        try:
            wait_until(self._is_ready, timeout_s=_READY_TIMEOUT_S, poll_s=0.05, what=f"Prometheus at {self._url}")
        except WaitTimeout as error:
            raise ClusterError(f"{error}; see {self._log}") from error

    def _is_ready(self) -> bool:
        if self._running.exit_status is not None:
            story = self._log.read_text(errors="replace").splitlines()[-5:]
            raise ClusterError("\n".join([f"Prometheus ended with status {self._running.exit_status}:", *story]))
        try:
            answer = httpx.get(f"{self._url}/-/ready", timeout=_ANSWER_TIMEOUT_S, trust_env=False)
        except httpx.HTTPError:
            return False
        return answer.is_success


def scraping(
    host: Host, endpoints: Mapping[str, str], *, vhost: str, wanted: PrometheusRequest, port: int, data: Path
) -> PrometheusServer:
    """Start a server that scrapes ``endpoints`` and evaluates the wanted rules."""
    rule_files = dict(given_to_server(wanted.rules))
    config = scrape_config(endpoints, vhost=vhost, series=wanted.series, rules=list(rule_files))
    return PrometheusServer(host, config, port=port, data=data, extra_files=rule_files)


@contextmanager
def reading(opened: Callable[[Path], Host], data: Path) -> Iterator[PrometheusServer]:
    """Run a server that scrapes nothing and answers from the ``data`` of an earlier server. ``opened`` returns the
    server's host for a given folder."""
    claim = take_claim(default_root(), ports=1)
    with ExitStack() as stack:
        stack.callback(Reaper(claim.folder, claim.lock_file, claim.claim_fds).close)
        host = opened(claim.folder)
        stack.callback(host.close)
        yield stack.enter_context(PrometheusServer(host, {}, port=claim.base_port, data=data))
