"""Real workers on a real cluster: what they record is what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rabbitmq_resilience.history.event_log import read_events
from rabbitmq_resilience.history.history import Outcome, now_us
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.client_addresses import addresses
from rabbitmq_resilience.workload.queues import declare, depths
from rabbitmq_resilience.workload.running_workload import start
from rabbitmq_resilience.workload.worker import WorkloadError
from rabbitmq_resilience.workload.workload_model import Workload
from tests.whole import await_whole
from tests.workloads.running import await_confirmed, deliveries, drained, messages, publishes, running, worker_events

pytestmark = pytest.mark.core


def assert_one_outcome_each(folder: Path) -> None:
    """Sequences have no gap, and each message exactly one row."""
    found = Counter((row["publisher"], row["sequence"]) for row in publishes(folder))
    assert set(found.values()) <= {1}
    for publisher in {publisher for publisher, _ in found}:
        sequences = {sequence for other, sequence in found if other == publisher}
        assert sequences == set(range(len(sequences)))


@pytest.mark.brokers
def test_what_publishers_could_not_hand_over_is_not_said_to_be_lost(cluster: LocalCluster, tmp_path: Path) -> None:
    """A broker that reads no more leaves them what they would write, as one does that is over its limit."""
    load_over = {"queue_type": "classic", "leaders_on": ["c1"], "confirms": "none", "rate_per_s": 20_000}
    with running(cluster, tmp_path, **load_over, message_bytes=2000, publishers=3) as load:
        await_confirmed(load, 1000)
        sent: list[int] = []

        def stalled() -> bool:
            sent.append(load.progress().published)
            return len(sent) > 6 and sent[-7] == sent[-1]

        cluster.pause("c1")
        try:
            wait_until(stalled, timeout_s=30, what="publishers to stall", poll_s=0.1)
            assert not load.stop_publishers(timeout_s=0.5)
        finally:
            cluster.resume("c1")
        result = load.drain(lambda: depths(cluster.api("a1"), load.load.vhost), idle_s=5, timeout_s=60)
    assert result.unconsumed > 0
    assert not result.complete
    assert result.detail.startswith("publishers were ended before brokers had read all their messages")
    await_whole(cluster)


@pytest.mark.parametrize(
    "fields",
    [
        {"queue_type": "quorum", "queues": 2, "publishers": 2, "consumers": 2, "rate_per_s": 2000},
        {"queue_type": "mirrored", "queues": 3, "publishers": 2, "consumers": 1, "rate_per_s": 1000},
        {"queue_type": "classic", "rate_per_s": 1000, "queues": 2, "copy_every": 3},
        *(
            pytest.param({"queue_type": "classic", **fields}, marks=pytest.mark.brokers)
            for fields in (
                {"rate_per_s": None, "acks": "automatic", "persistent": False},
                {"rate_per_s": 100, "message_bytes": 300_000},
                {"rate_per_s": 1000, "confirms": "ignored", "ack_every": 1},
            )
        ),
    ],
    ids=["quorum", "mirrored", "copies", "automatic_acks", "messages_of_many_frames", "confirms_ignored"],
)
def test_what_is_confirmed_is_received(cluster: LocalCluster, tmp_path: Path, fields: dict[str, Any]) -> None:
    with running(cluster, tmp_path, **fields) as load:
        await_confirmed(load, 200)
        result = drained(cluster, load)
        progress = load.progress()
    published, received = publishes(tmp_path), deliveries(tmp_path)
    assert (result.complete, result.unconsumed) == (True, 0)
    assert result.confirmed == progress.confirmed == progress.published == len(published)
    assert messages(published, Outcome.CONFIRMED) == messages(received)
    assert all(row["intact"] and not row["redelivered"] for row in received)
    assert_one_outcome_each(tmp_path)
    queue_of = {(row["publisher"], row["sequence"]): row["route"] for row in published}
    assert all(queue_of[row["publisher"], row["sequence"]] == row["queue"] for row in received)


@pytest.mark.brokers
def test_the_target_rate_is_kept(cluster: LocalCluster, tmp_path: Path) -> None:
    with running(cluster, tmp_path, queue_type="classic", publishers=2, rate_per_s=60) as load:
        await_confirmed(load, 150)
        drained(cluster, load)
    times = sorted(row["sent_us"] for row in publishes(tmp_path))
    rate_per_s = (len(times) - 1) / ((times[-1] - times[0]) / 1e6)
    assert 30 < rate_per_s < 66  # a busy machine may keep it from its target, and nothing lets it go beyond


def test_a_killed_publisher_leaves_a_consistent_history(cluster: LocalCluster, tmp_path: Path) -> None:
    with running(cluster, tmp_path, queue_type="quorum", rate_per_s=None) as load:
        for _ in range(3):
            await_confirmed(load, load.progress().confirmed + 500)
            load.worker("publisher-0").kill()
            load.worker("publisher-0").start()
        await_confirmed(load, load.progress().confirmed + 500)
        assert drained(cluster, load).complete
    published, received = publishes(tmp_path), deliveries(tmp_path)
    assert_one_outcome_each(tmp_path)
    assert messages(published, Outcome.UNKNOWN)
    assert messages(published, Outcome.CONFIRMED) <= messages(received) <= messages(published)


def test_a_killed_consumer_loses_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    with running(cluster, tmp_path, queue_type="quorum", rate_per_s=2000) as load:
        await_confirmed(load, 1000)
        holding = load.consumers[0].pid
        assert holding is not None
        os.kill(holding, signal.SIGSTOP)  # what the broker sends it now comes again
        await_confirmed(load, load.progress().confirmed + 1000)
        load.worker("consumer-0").kill()
        load.worker("consumer-0").start()
        await_confirmed(load, load.progress().confirmed + 1000)
        result = drained(cluster, load)
    received = deliveries(tmp_path)
    assert (result.complete, result.unconsumed) == (True, 0)
    assert any(row["redelivered"] for row in received)
    assert messages(publishes(tmp_path), Outcome.CONFIRMED) == messages(received)


@pytest.mark.brokers
def test_automatic_acks_lose_what_a_killed_consumer_held(cluster: LocalCluster, tmp_path: Path) -> None:
    with running(cluster, tmp_path, queue_type="classic", rate_per_s=2000, acks="automatic") as load:
        await_confirmed(load, 1000)
        holding = load.consumers[0].pid
        assert holding is not None
        os.kill(holding, signal.SIGSTOP)  # what the broker sends it now is in its hands, and not on record
        await_confirmed(load, load.progress().confirmed + 1000)
        load.worker("consumer-0").kill()
        load.worker("consumer-0").start()
        await_confirmed(load, load.progress().confirmed + 1000)
        result = drained(cluster, load)
    assert result.complete
    assert result.unconsumed > 0


def test_unroutable_messages_are_returned(cluster: LocalCluster, tmp_path: Path) -> None:
    with running(cluster, tmp_path, queue_type="classic", rate_per_s=500) as load:
        await_confirmed(load, 100)
        cluster.api("a1").delete_queue(load.load.vhost, "q1")
        wait_until(lambda: load.progress().refused >= 100, timeout_s=60, what="returned messages")
    assert len(messages(publishes(tmp_path), Outcome.RETURNED)) >= 100
    assert_one_outcome_each(tmp_path)


@pytest.mark.brokers
def test_workers_go_to_another_node(cluster: LocalCluster, tmp_path: Path) -> None:
    with running(cluster, tmp_path, queues=3, publishers=3, consumers=3, rate_per_s=600) as load:
        await_confirmed(load, 500)
        cluster.kill("b1")
        await_confirmed(load, 2000)
        load.await_connected(timeout_s=60)
        load.publish()
        cluster.start("b1")
        await_whole(cluster)
        result = drained(cluster, load)
    assert (result.complete, result.unconsumed) == (True, 0)
    assert_one_outcome_each(tmp_path)
    events = [e for e in worker_events(tmp_path) if e.worker == "publisher-1"]
    story = [(event.event, event.node) for event in events]
    assert story[:4] == [("started", "b1"), ("connected", "b1"), ("connection_lost", "b1"), ("connected", "c1")]


def test_all_clients_connect_before_the_first_message_is_sent(cluster: LocalCluster, tmp_path: Path) -> None:
    workload = Workload(queue_type="classic", queues=2, publishers=4, consumers=2, rate_per_s=400)
    vhost = "connected-first"
    queues = list(declare(cluster, workload, vhost=vhost))
    shared: dict[str, Any] = {"addresses": addresses(cluster), "queues": queues, "vhost": vhost}
    with start(workload, run=2**31, seed=1, folder=tmp_path, **shared) as load:
        wait_until(
            lambda: (load.progress().publishers_connected, load.progress().consumers_connected),
            timeout_s=60,
            what="all clients to connect",
            until=lambda seen: seen == (4, 2),
        )
        assert load.progress().published == 0
        load.await_connected(timeout_s=60)
        load.publish()
        await_confirmed(load, 20)
    cluster.api("a1").delete_vhost(vhost)
    connected = [event.t_us for event in worker_events(tmp_path) if event.event == "connected"]
    assert len(connected) == 6
    assert max(connected) <= min(row["sent_us"] for row in publishes(tmp_path))


def test_a_worker_that_fails_is_noticed(cluster: LocalCluster, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="publisher-0 ended"), running(cluster, tmp_path) as load:
        assert load.publishers[0].pid is not None
        os.kill(load.publishers[0].pid, signal.SIGTERM)
        wait_until(lambda: load.publishers[0].ended, timeout_s=60, what="the end of the publisher")
        load.check()


PARENT = """
import sys, time
from pathlib import Path
from rabbitmq_resilience.workload.load import Address
from rabbitmq_resilience.workload.running_workload import start
from rabbitmq_resilience.workload.workload_model import Workload
load = start(Workload(), addresses=[Address("a1", "127.0.0.1", int(sys.argv[1]))], queues=["q1"],
             vhost=sys.argv[2], run=1, seed=1, folder=Path(sys.argv[3]))
load.await_connected(timeout_s=60)
load.publish()
print(*[worker.pid for worker in load.workers], flush=True)
time.sleep(60)
"""


def test_workers_end_when_their_parent_is_killed(cluster: LocalCluster, tmp_path: Path) -> None:
    vhost = "orphans"
    declare(cluster, Workload(queue_type="classic"), vhost=vhost)
    command = [sys.executable, "-c", PARENT, str(cluster.amqp_endpoint("a1").port), vhost, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        os.kill(pids[0], signal.SIGINT)
        assert psutil.pid_exists(pids[0])
        parent.kill()
    alive: Callable[[], list[int]] = lambda: [pid for pid in pids if psutil.pid_exists(pid)]  # noqa: E731
    wait_until(alive, timeout_s=60, what="the workers to end", until=lambda left: not left)
    ends = [event.event for event in worker_events(tmp_path)][-2:]
    assert ends == ["stopped", "stopped"]
    cluster.api("a1").delete_vhost(vhost)


def sent_by_second(folder: Path, begins_us: int, publisher: int) -> Counter[int]:
    return Counter(
        (row["sent_us"] - begins_us) // 1_000_000 for row in publishes(folder) if row["publisher"] == publisher
    )


@pytest.mark.brokers
def test_the_load_varies_and_a_killed_worker_goes_on_in_the_right_place(cluster: LocalCluster, tmp_path: Path) -> None:
    """A pause of 6 s after 2 s; the publisher that is killed and started again in it must keep it."""
    steps = [{"rate_per_s": 200, "for_s": 2}, {"rate_per_s": 0, "for_s": 6}, {"rate_per_s": 50, "for_s": 60}]
    fields = {"queue_type": "classic", "queue_pattern": "varied-%d", "lazy": True, "start_spread_s": 1}
    with running(cluster, tmp_path, publishers=2, rate_per_s=100, variable_rate=steps, **fields) as load:
        await_confirmed(load, 50)
        begins_us = load.begin_variation()
        moment_us = begins_us + 2_200_000
        wait_until(lambda: now_us() > moment_us, timeout_s=60, what="the pause")
        load.worker("publisher-0").kill()
        load.worker("publisher-0").start()
        load.await_connected(timeout_s=60)
        load.publish()
        # A busy machine may start it after the pause only; from the next second on both publish as the third step says.
        after = max(8, (now_us() - begins_us) // 1_000_000) + 1
        moment_us = begins_us + (after + 2) * 1_000_000
        wait_until(lambda: now_us() > moment_us, timeout_s=60, what="two seconds after the pause")
        policies = {q["effective_policy_definition"]["queue-mode"] for q in cluster.api("a1").get("queues")}
        result = drained(cluster, load)
    assert (result.complete, result.unconsumed, policies) == (True, 0, {"lazy"})
    for publisher in (0, 1):
        sent = sent_by_second(tmp_path, begins_us, publisher)
        assert sum(sent[second] for second in range(3, 8)) == 0
        published = sent[after] + sent[after + 1]
        assert published in range(1, 76), "25 messages/s each, as far as the machine keeps up"
        assert sent[0] + sent[1] in range(101, 226), "more than the plain 50 messages/s each"
    events = list(read_events(*tmp_path.glob("publisher-1.jsonl")))
    started_us, connected_us = (e.t_us for e in events[:2])
    assert connected_us - started_us >= 500_000, "the second of two connects after half of the time"


@pytest.mark.brokers
def test_a_slow_consumer_builds_a_backlog_and_loses_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    """20 ms a message are 50 messages/s at most; what waits unacknowledged is bounded by the prefetch."""
    fields = {"queue_type": "quorum", "rate_per_s": 400, "prefetch": 30, "ack_every": 10, "processing_ms": 20}
    with running(cluster, tmp_path, heartbeat_s=1, **fields) as load:
        await_confirmed(load, 1200)
        load.worker("consumer-0").kill()
        load.worker("consumer-0").start()
        load.await_connected(timeout_s=60)
        result = drained(cluster, load)
    received = deliveries(tmp_path)
    assert (result.complete, result.unconsumed) == (True, 0)
    assert messages(publishes(tmp_path), Outcome.CONFIRMED) == messages(received)
    times = sorted(row["received_us"] for row in received)
    assert (len(times) - 2 * 30) / ((times[-1] - times[0]) / 1e6) <= 50
    redelivered = sum(row["redelivered"] for row in received)
    assert 0 < redelivered <= 30
    assert not any(e.event == "connection_lost" for e in worker_events(tmp_path))
