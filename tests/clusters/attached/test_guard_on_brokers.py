"""What ends a run early on a cluster that is there already: alarms, checks and queries of its people."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached import guard as guarding
from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.cluster_model import AbortWhen
from rabbitmq_resilience.extensions.attached.guard import AbortedError, Guard
from rabbitmq_resilience.extensions.attached.on_clusters import fitted
from rabbitmq_resilience.history.events import DrainEvent, FaultEvent
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.sut.protocol import PrometheusRequest
from rabbitmq_resilience.tools.waiting import wait_until
from tests.clusters.attached.processes import TOPOLOGY, written
from tests.run_scenarios import run_validated
from tests.statistics_ended import END
from tests.whole import await_whole

pytestmark = pytest.mark.attached

SCENARIO = """\
version: 1
title: Somebody wants it to end
topology: three_nodes_three_zones
workload: {queue_type: quorum, queues: 2, publishers: 2, consumers: 2, rate_per_s: 100}
phases: {steady_s: 1}
schedule:
  - {at_s: 0, fault: partition, between: ["publisher:0", all], for_s: 120}
  - {at_s: 60, fault: kill_client, client: "publisher:1", for_s: 2}
invariants: {no_loss: {}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster.form(TOPOLOGY) as formed:
        formed.api("a1").put("users/mine", {"password": "of mine", "tags": "administrator"})
        yield formed


def guard(cluster: LocalCluster, **when: Any) -> Guard:
    return Guard(AbortWhen.model_validate(when), [cluster.api(node) for node in TOPOLOGY.node_names])


def test_a_check_that_fails_ends_the_run_and_heals_and_lets_none_begin(cluster: LocalCluster, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    file = written(cluster, tmp_path, besides=f"abort_when: {{check: 'echo no more >&2; test ! -e {stop}'}}\n")
    scenario = fitted(fault_file.parse(SCENARIO, driver="attached"), file)
    with closing(Attachment(load(file))) as attachment, ClusterPool(attachment.form, keeps=False) as pool:
        testbed = RunContext(pool, tmp_path / "runs", io.StringIO(), driver="attached")
        wanted = threading.Thread(target=stop_once, args=(tmp_path / "runs", stop, "proven"))
        wanted.start()
        begun_s = time.monotonic()
        with pytest.raises(AbortedError, match="status 1: no more"):
            run_validated(scenario, testbed)
        wanted.join()
        assert time.monotonic() - begun_s < 60, "before the first step was over"
        with pytest.raises(AbortedError):
            run_validated(scenario, testbed)
        assert attachment.others_changed() == []
    first, second = sorted((tmp_path / "runs").glob("*somebody-wants*"))
    assert [state for _, state in faults(first)] == [
        "injecting",
        "injected",
        "proven",
        "healing",
        "healed",
        "heal_proven",
        "skipped",
    ]
    assert faults(second) == []
    assert '"UNKNOWN"' in (first / "verdict.json").read_text()
    with pytest.raises(AbortedError):
        Attachment(load(file))


UNDRAINED = """\
version: 1
title: A consumer takes its time
topology: three_nodes_three_zones
workload: {queue_type: quorum, queues: 1, publishers: 1, consumers: 1, processing_ms: 2000, ack_every: 1}
phases: {steady_s: 1, drain_s: 300}
schedule:
  - {at_s: 0, fault: kill_client, client: "publisher:0", for_s: 1}
invariants: {order: {}}
"""


def test_a_run_ends_while_its_queues_are_waited_for(cluster: LocalCluster, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    file = written(cluster, tmp_path, besides=f"abort_when: {{check: 'test ! -e {stop}'}}\n")
    scenario = fitted(fault_file.parse(UNDRAINED, driver="attached"), file)
    with closing(Attachment(load(file))) as attachment, ClusterPool(attachment.form, keeps=False) as pool:
        testbed = RunContext(pool, tmp_path / "runs", io.StringIO(), driver="attached")
        wanted = threading.Thread(target=stop_once, args=(tmp_path / "runs", stop, '"drain"'))
        wanted.start()
        with pytest.raises(AbortedError, match="status 1"):
            run_validated(scenario, testbed)
        wanted.join()
    (run,) = (tmp_path / "runs").glob("*takes-its-time*")
    assert not [event for event in RunDirectory(run).events() if isinstance(event, DrainEvent)], "it was not over"


def stop_once(runs: Path, stop: Path, told: str) -> None:
    def is_told() -> bool:
        return any(told in path.read_text() for path in runs.glob("*/events.jsonl"))

    wait_until(is_told, timeout_s=150, what=f"{told} in the run's journal")
    stop.touch()


def faults(run: Path) -> list[tuple[int, str]]:
    events = RunDirectory(run).events()
    return sorted(((e.step, e.state) for e in events if isinstance(e, FaultEvent)), key=lambda row: row[0])


def test_an_alarm_ends_it(cluster: LocalCluster) -> None:
    with guard(cluster, alarm=True) as watching:
        watching.check()
        cluster.run_tool("b1", "rabbitmqctl", "set_vm_memory_high_watermark", "0.0000001")
        try:
            wait_until(lambda: ended(watching), timeout_s=20, what="the guard to see the alarm")
            with pytest.raises(AbortedError, match=r"b1@localhost [^@]*memory"):
                guard(cluster, alarm=True)
        finally:
            cluster.run_tool("b1", "rabbitmqctl", "set_vm_memory_high_watermark", "0.4")
        with pytest.raises(AbortedError, match=r"b1@localhost [^@]*memory"):
            watching.check()  # it was so once


def test_an_alarm_that_the_run_itself_has_raised_does_not(cluster: LocalCluster) -> None:
    ours = [("b1@localhost", "memory")]
    cluster.run_tool("b1", "rabbitmqctl", "set_vm_memory_high_watermark", "0.0000001")
    try:
        apis = [cluster.api(node) for node in TOPOLOGY.node_names]
        told = partial(apis[0].get, "nodes", params={"columns": "name,mem_alarm"})
        wait_until(lambda: any(row.get("mem_alarm") for row in told()), timeout_s=20, what="the alarm to be told")
        with Guard(AbortWhen(alarm=True), apis, lambda: ours) as watching:
            watching.check()
            cluster.run_tool("b1", "rabbitmqctl", "set_disk_free_limit", str(10**18))
            wait_until(lambda: ended(watching), timeout_s=20, what="the guard to see that of others")
            with pytest.raises(AbortedError, match=r"b1@localhost [^@]*disk$"):
                watching.check()
    finally:
        cluster.run_tool("b1", "rabbitmqctl", "set_disk_free_limit", "50MB")
        cluster.run_tool("b1", "rabbitmqctl", "set_vm_memory_high_watermark", "0.4")


def test_an_alarm_of_a_broker_is_seen_whose_statistics_have_ended(cluster: LocalCluster) -> None:
    """3.10.8 tells nothing of itself by its statistics then, whoever is asked for them."""
    assert cluster.run_tool("b1", "rabbitmqctl", "eval", END).strip() == "true"
    with guard(cluster, alarm=True) as watching:
        watching.check()
        cluster.run_tool("b1", "rabbitmqctl", "set_disk_free_limit", str(10**18))
        try:
            wait_until(lambda: ended(watching), timeout_s=20, what="the guard to see the alarm")
            with pytest.raises(AbortedError, match=r"b1@localhost [^@]*disk$"):
                watching.check()
        finally:
            cluster.kill("b1")
            cluster.start("b1")
            await_whole(cluster)


def ended(watching: Guard) -> bool:
    try:
        watching.check()
    except AbortedError:
        return True
    return False


def test_a_query_beyond_its_bound_ends_it(cluster: LocalCluster, tmp_path: Path) -> None:
    with closing(
        cluster.scraped("/", wanted=PrometheusRequest(["rabbitmq_identity_info"]), data=tmp_path / "data")
    ) as prometheus:
        prometheus.await_scraping(nodes=3)
        query = {"prometheus": prometheus.url, "query": "vector(3)"}
        with guard(cluster, metrics=[query | {"above": 3.0, "below": 3.0}]) as watching:
            watching.check()
        with pytest.raises(AbortedError, match=r"vector\(3\) .*3, above 2"):
            guard(cluster, metrics=[query | {"above": 2.0}])
        with pytest.raises(AbortedError, match=r"vector\(3\) .*3, below 4"):
            guard(cluster, metrics=[query | {"below": 4.0}])
        nothing, much = (f"label_replace(vector({value}), 'of', '{value}', '', '')" for value in ("NaN", "9.9"))
        for both in (f"{nothing} or {much}", f"{much} or {nothing}"):
            with pytest.raises(AbortedError, match=r"9\.9, above 2"):
                guard(cluster, metrics=[query | {"query": both, "above": 2.0}])


def test_a_query_of_which_nothing_is_measured_ends_it(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A histogram to which nothing is added has no quantile: Prometheus tells NaN."""
    monkeypatch.setattr(guarding, "BLIND_S_MAX", 1.5)
    with closing(
        cluster.scraped("/", wanted=PrometheusRequest(["rabbitmq_identity_info"]), data=tmp_path / "data")
    ) as prometheus:
        prometheus.await_scraping(nodes=3)
        metric = {"prometheus": prometheus.url, "query": "0 * vector(1) / 0", "above": 2.5}
        with guard(cluster, metrics=[metric]) as watching:
            watching.check()
            wait_until(lambda: ended(watching), timeout_s=20, what="the guard to give up")
            with pytest.raises(AbortedError, match="1 of its 1"):
                watching.check()


@pytest.mark.parametrize(
    "when",
    [
        {"check": "sleep 60"},
        {"metrics": [{"prometheus": "http://127.0.0.1:9", "query": "up", "below": 1.0}]},
    ],
)
def test_what_no_one_can_look_at_for_long_ends_it(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, when: dict[str, Any]
) -> None:
    monkeypatch.setattr(guarding, "BLIND_S_MAX", 1.5)
    monkeypatch.setattr(guarding, "ANSWER_TIMEOUT_S", 1)
    with guard(cluster, **when) as watching:
        watching.check()
        wait_until(lambda: ended(watching), timeout_s=20, what="the guard to give up")
