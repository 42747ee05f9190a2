"""Jobs in a real Kubernetes beside brokers in pods, made by who has the rights of the docs for it, and no more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.extensions.attached.cluster_command import describe
from rabbitmq_resilience.extensions.jobs.job_player import LOST, NOT_PLAYED
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.runner.judging import judge_run
from rabbitmq_resilience.tools.locations import CHECKOUT, IMPORTED_FROM
from rabbitmq_resilience.tools.waiting import wait_until
from tests.clusters.attached.pods import BrokersInPods, brokers_in_pods, kubeconfig

pytestmark = pytest.mark.kubernetes

IMAGE = "local/resilience:1"
PASSWORD = "an-example-of-a-password"  # noqa: S105 - of the docs
PERSON = "person"
ENDS_WITHIN_S = 600.0
FAULT_FILE = """\
version: 1
title: A node is killed, seen from beside it
topology: three_nodes_three_zones
workload: {queue_type: quorum, queues: 2, publishers: 2, consumers: 2, rate_per_s: 100}
phases: {steady_s: 5, chaos_s: CHAOS, recovery_s: 90}
schedule: [{fault: kill, node: "leader:q1", at_s: 2, for_s: 10}]
invariants: {no_loss: {}, order: {}, recovery: {within_s: 90}}
"""


@dataclass
class Desk:
    """Where a person sits who may make Jobs there."""

    pods: BrokersInPods
    admin: Any
    folder: Path
    file: Path

    def command(self, *more: str, chaos_s: int = 30) -> list[str]:
        fault = self.folder / "killed.fault.yaml"
        fault.write_text(FAULT_FILE.replace("CHAOS", str(chaos_s)), encoding="utf-8")
        asked = [str(self.file), str(fault), "--image", IMAGE, "--pull", "Never", "--to", str(self.to), *more]
        return [sys.executable, "-m", "rabbitmq_resilience", "job", *asked]

    @property
    def to(self) -> Path:
        return self.folder / "back"

    @property
    def runs(self) -> list[RunDirectory]:
        return [RunDirectory(path.parent) for path in sorted(self.to.glob("runs/*/fault.yaml"))]

    def plays(self, *more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*more), cwd=IMPORTED_FROM, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False
        )
        self.require_nothing_left()
        return done

    @contextmanager
    def begun(self, *more: str) -> Iterator[subprocess.Popen[str]]:
        """While something is broken."""
        command = self.command(*more, chaos_s=300)
        with subprocess.Popen(command, cwd=IMPORTED_FROM, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    if line.startswith("PLAYING"):
                        break
                yield process
            finally:
                process.kill()

    def pod(self) -> str:
        listed = self.admin.CoreV1Api().list_namespaced_pod(
            self.pods.namespace, label_selector="app.kubernetes.io/name=rabbitmq-resilience"
        )
        return str(listed.items[0].metadata.name)

    def require_nothing_left(self) -> None:
        core, namespace = self.admin.CoreV1Api(), self.pods.namespace
        left = [
            *self.admin.BatchV1Api().list_namespaced_job(namespace).items,
            *core.list_namespaced_secret(namespace).items,
            *core.list_namespaced_config_map(namespace).items,
            *core.list_namespaced_pod(namespace).items,
        ]
        assert [one.metadata.name for one in left if one.metadata.name.startswith("resilience-2")] == []


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokersInPods]:
    with brokers_in_pods(tmp_path_factory.mktemp("pods")) as found:
        yield found


@pytest.fixture
def desk(made: BrokersInPods, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Desk]:
    from kubernetes import client, config  # noqa: PLC0415 - optional

    monkeypatch.setenv("PODS_USER", "chaos")
    load: Any = config.load_kube_config
    load(str(kubeconfig()))
    nodes: list[Any] = client.CoreV1Api().list_node().items
    images = {name for node in nodes for one in node.status.images or () for name in one.names or ()}
    if not any(name.endswith(IMAGE) for name in images):
        pytest.skip(f"no node has {IMAGE}: `make kubernetes-suite` makes it")
    whole = made.cluster_file("whole", allow="{}")
    wait_until(lambda: describe([str(whole)]) == 0, timeout_s=120, what="the cluster to be whole", poll_s=2.0)
    mine = as_person(client, made, tmp_path / "kubeconfig")
    file = made.cluster_file("job", allow="{kill: 1}", forwarded=True)
    stated = yaml.safe_load(file.read_text(encoding="utf-8"))
    stated["offers"]["kubernetes"]["kubeconfig"] = str(mine)
    file.write_text(yaml.safe_dump(stated), encoding="utf-8")
    yield Desk(made, client, tmp_path, file)


def as_person(client: Any, made: BrokersInPods, to: Path) -> Path:
    """The kubeconfig of who has the rights of job-rights.yaml alone."""
    from kubernetes import utils  # noqa: PLC0415 - optional

    assert CHECKOUT is not None, "tests are run in a checkout"
    core = client.CoreV1Api()
    if PERSON not in {one.metadata.name for one in core.list_namespaced_service_account(made.namespace).items}:
        core.create_namespaced_service_account(made.namespace, {"metadata": {"name": PERSON}})
        text = (CHECKOUT / "docs" / "kubernetes" / "job-rights.yaml").read_text(encoding="utf-8")
        for document in yaml.safe_load_all(text):
            if document["kind"] == "RoleBinding":
                document["subjects"] = [{"kind": "ServiceAccount", "name": PERSON, "namespace": made.namespace}]
            create: Any = utils.create_from_dict
            create(client.ApiClient(), document, namespace=made.namespace)
    request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[]))
    token = core.create_namespaced_service_account_token(PERSON, made.namespace, request).status.token
    stated = yaml.safe_load(made.admin.read_text(encoding="utf-8"))
    for user in stated["users"]:
        user["user"] = {"token": token}
    to.write_text(yaml.safe_dump(stated), encoding="utf-8")
    return to


def test_it_is_as_if_it_were_played_here(desk: Desk) -> None:
    done = desk.plays()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    (run,) = desk.runs
    verdict = run.read_verdict()
    assert verdict["verdict"] == "VALID"
    assert judge_run(run).verdict == "VALID", "judged again here"
    files = [path for path in desk.folder.rglob("*") if path.is_file() and path.name != "kubeconfig"]
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
    assert PASSWORD not in done.stdout + done.stderr


def test_it_ends_as_pytest_does(desk: Desk) -> None:
    done = desk.plays("--", "-k", "nothing_is_called_so")
    assert done.returncode == 5, done.stdout + done.stderr
    assert desk.runs == []


def test_an_image_that_is_not_there_is_reported(desk: Desk) -> None:
    done = desk.plays("--image", "local/of-nobody:1")
    assert done.returncode == NOT_PLAYED
    assert "ErrImageNeverPull" in done.stderr
    assert "is gone" in done.stderr


def test_an_account_that_is_not_there_is_reported_before_anything_is_made(desk: Desk) -> None:
    done = desk.plays("--service-account", "nobody")
    assert done.returncode == NOT_PLAYED
    assert "service account nobody" in done.stderr


def test_pytest_is_ended_by_its_limit_and_what_it_had_recorded_comes(desk: Desk) -> None:
    with desk.begun("--limit-min", "0.5") as process:
        assert process.wait(ENDS_WITHIN_S) == 124
    assert len(desk.runs) == 1
    desk.require_nothing_left()


def test_an_interrupt_heals_and_fetches_what_there_is(desk: Desk) -> None:
    with desk.begun() as process:
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(ENDS_WITHIN_S) == 2
    assert len(desk.runs) == 1
    desk.require_nothing_left()


def test_two_interrupts_do_not_wait_and_leave_nothing_either(desk: Desk) -> None:
    with desk.begun() as process:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(process.pid, number)
        assert process.wait(ENDS_WITHIN_S) == 130
    assert not desk.to.exists()
    desk.require_nothing_left()


def test_a_pod_that_is_deleted_by_force_is_reported(desk: Desk) -> None:
    with desk.begun() as process:
        desk.admin.CoreV1Api().delete_namespaced_pod(desk.pod(), desk.pods.namespace, grace_period_seconds=0)
        assert process.wait(ENDS_WITHIN_S) == LOST
    assert not desk.to.exists()
    desk.require_nothing_left()


def test_a_pod_that_is_evicted_heals_and_what_there_is_comes(desk: Desk) -> None:
    with desk.begun() as process:
        name = desk.pod()
        body = desk.admin.V1Eviction(metadata=desk.admin.V1ObjectMeta(name=name))
        desk.admin.CoreV1Api().create_namespaced_pod_eviction(name, desk.pods.namespace, body)
        assert process.wait(ENDS_WITHIN_S) == 2
    assert len(desk.runs) == 1
    desk.require_nothing_left()
