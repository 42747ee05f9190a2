"""Each program of ``examples/applications/`` publishes, confirms and consumes on a real broker, and ends at SIGTERM."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.management import ApiError, ManagementApi
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.distributions import find_broker
from rabbitmq_resilience.tools.homes import SID, TRIXIE
from rabbitmq_resilience.tools.waiting import wait_until
from suites.prepared_applications import Prepared, Role, applications, prepared
from tests.needs import skipped_without

pytestmark = pytest.mark.applications

MESSAGES = 60
PREFETCH = 20
#: A JVM or a Celery worker on a busy machine.
STARTED_WITHIN_S = 240.0
ENDED_WITHIN_S = 60.0
SEEN_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    home = find_broker(TRIXIE.place() if TRIXIE.is_there() else None)
    with LocalCluster.form(Topology(name="applications", zones={"a": 1}), broker=home) as formed:
        yield formed


@contextmanager
def started(program: Prepared, role: Role, log: Path, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a role of the program, its output in ``log``; at the end of the block its processes are gone."""
    with log.open("wb") as output, (log.parent / f"{log.name}.stderr").open("wb") as errors:
        process = subprocess.Popen(
            program.command(role),
            cwd=program.folder,
            env=os.environ | environ,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


def end(process: subprocess.Popen[bytes], log: Path) -> list[str]:
    """End the process by SIGTERM, assert that its status is 0, and return the lines that report its connection."""
    process.terminate()
    text = log.read_text(encoding="utf-8")
    assert process.wait(timeout=ENDED_WITHIN_S) == 0, text
    text = log.read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.startswith(("connected", "connection lost", "ended"))]


def depth(api: ManagementApi, queue: str) -> int | None:
    """Return the number of messages in a queue, None before it is there."""
    try:
        messages: int | None = api.queue("/", queue).get("messages")
    except ApiError as error:
        assert error.status == 404, error
        return None
    return messages


def counted(lines: list[str]) -> int | None:
    """Return the number in the line that reports the end; None if it has none."""
    found = re.search(r"\d+", lines[-1])
    return int(found[0]) if found else None


@pytest.mark.parametrize("name", applications())
def test_producer_and_worker(name: str, cluster: LocalCluster, tmp_path: Path) -> None:
    with skipped_without():
        program = prepared(name)
    api, queue = cluster.api("a1"), f"orders-{name}"
    host, port, _ = cluster.amqp_endpoint("a1")
    environ = {"AMQP_URL": f"amqp://guest:guest@{host}:{port}", "QUEUE": queue}

    log = tmp_path / "producer"
    with started(program, "producer", log, **environ) as process:
        _await(api, queue, process, log, until=lambda depth: (depth or 0) >= MESSAGES)
        confirming = wait_until(
            lambda: [row["confirm"] for row in api.get("channels") if row.get("confirm") is not None],
            until=lambda seen: any(seen) or not program.application.confirms,
            timeout_s=SEEN_WITHIN_S,
            what="a channel that confirms",
        )
        assert any(confirming) == program.application.confirms
        lines = end(process, log)
    assert [line.partition(":")[0] for line in lines] == ["connected", "ended"], lines
    sent = counted(lines)
    assert sent is not None
    wait_until(lambda: depth(api, queue), until=sent.__eq__, timeout_s=SEEN_WITHIN_S, what=f"{sent} messages")
    assert api.queue("/", queue)["type"] == "quorum"
    check_messages(api.post(f"queues/%2F/{queue}/get", GET | {"count": sent}, timeout_s=60), sent)

    log = tmp_path / "worker"
    with started(program, "worker", log, **environ) as process:
        (consumer,) = wait_until(
            lambda: [row for row in api.get("consumers/%2F") if row["queue"]["name"] == queue],
            timeout_s=STARTED_WITHIN_S,
            what="a consumer",
        )
        assert consumer["ack_required"] == (program.application.acknowledges != "automatically")
        assert consumer["prefetch_count"] == PREFETCH
        _await(api, queue, process, log, until=(0).__eq__)
        lines = end(process, log)
    assert [line.partition(":")[0] for line in lines] == ["connected", "ended"], lines
    if program.application.acknowledges != "automatically":
        assert counted(lines) in (sent, None)
    assert depth(api, queue) == 0


def test_celery_from_before_april_2026_is_refused_by_4_3(tmp_path: Path) -> None:
    """Its worker declares queues that are neither durable nor exclusive (celery/celery#10287); 5.7 does not.

    Releases of 4.3 refuse them by default. Debian's package of 4.3.6 permits them, so a setting refuses them here."""
    with skipped_without():
        home = find_broker(SID.place())
        old, new = prepared("celery-5.5"), prepared("celery")
    refused = {"deprecated_features.permit.transient_nonexcl_queues": "false"}
    with LocalCluster.form(Topology(name="applications", zones={"a": 1}, settings=refused), broker=home) as cluster:
        api = cluster.api("a1")
        host, port, _ = cluster.amqp_endpoint("a1")
        environ = {"AMQP_URL": f"amqp://guest:guest@{host}:{port}"}
        with started(old, "worker", tmp_path / "old", **environ):
            wait_until(
                lambda: "(541) INTERNAL_ERROR" in (tmp_path / "old.stderr").read_text(encoding="utf-8"),
                timeout_s=STARTED_WITHIN_S,
                what="a refusal",
            )
            assert api.get("consumers/%2F") == []
        with started(new, "worker", tmp_path / "new", **environ) as process:
            wait_until(
                lambda: "orders" in {row["queue"]["name"] for row in api.get("consumers/%2F")},
                timeout_s=STARTED_WITHIN_S,
                what="a consumer of orders",
            )
            end(process, tmp_path / "new")


GET = {"ackmode": "ack_requeue_true", "encoding": "auto"}


def check_messages(rows: list[dict[str, Any]], sent: int) -> None:
    """Assert that there are ``sent`` persistent messages of JSON, each with an identifier of its own."""
    assert len({row["properties"]["message_id"] for row in rows}) == sent
    assert {row["properties"]["delivery_mode"] for row in rows} == {2}
    assert all(json.loads(row["payload"]) for row in rows)


def _await(api: ManagementApi, queue: str, process: subprocess.Popen[bytes], log: Path, *, until: Any) -> None:
    """Wait for a depth of the queue, as long as the process runs."""

    def look() -> int | None:
        assert process.poll() is None, log.read_text() + (log.parent / f"{log.name}.stderr").read_text()
        return depth(api, queue)

    wait_until(look, until=until, timeout_s=STARTED_WITHIN_S, what=f"messages in {queue}")
