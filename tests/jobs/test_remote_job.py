"""What the API server is asked for a Job, by a stand-in for it that answers over HTTP as Kubernetes does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

client = pytest.importorskip("kubernetes.client")

from rabbitmq_resilience.extensions.attached.kubernetes import output  # noqa: E402 - where there is a client
from rabbitmq_resilience.extensions.attached.kubernetes.job import WANTED, Containers, RemoteJob  # noqa: E402 - the same
from rabbitmq_resilience.extensions.attached.kubernetes.pods import Pods  # noqa: E402 - the same
from rabbitmq_resilience.extensions.attached.machine import MachineError  # noqa: E402 - the same
from rabbitmq_resilience.tools.waiting import wait_until  # noqa: E402 - the same
from tests.clock import waits_by_clock  # noqa: E402 - the same
from tests.messages import Messages  # noqa: E402 - the same

pytestmark = pytest.mark.core

BATCH, CORE = "/apis/batch/v1/namespaces/shop", "/api/v1/namespaces/shop"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
NONE = (404, {"message": "not found"})
JOB = {"metadata": {"name": "j", "uid": "u-1"}, "spec": {"template": {"spec": {"containers": []}}}, "status": {}}
LINES = [f"2026-11-24T20:00:0{n}.5Z line {n}\n" for n in range(5)]


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    body: Any


@dataclass
class ApiServer:
    """``answers`` by method and path, one after another, the last again and again: a status and JSON, or a text that
    is sent in pieces and then breaks off."""

    answers: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    forbidden: str = ""
    port: int = 0

    def answer(self, asked: Asked) -> Any:
        self.asked.append(asked)
        if asked.path == REVIEWS:
            wanted = asked.body["spec"]["resourceAttributes"]
            return 201, {**asked.body, "status": {"allowed": wanted["resource"] != self.forbidden}}
        found = self.answers[asked.method, asked.path]
        return found.pop(0) if len(found) > 1 else found[0]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    told = ApiServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout: ClassVar[float] = 10.0

        def _any(self) -> None:
            parts = urlsplit(self.path)
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            answer = told.answer(Asked(self.command, parts.path, query, body))
            if isinstance(answer, str):
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                data = answer.encode()
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                self.close_connection = True
                return
            status, plain = answer
            data = json.dumps(plain).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _any

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        told.port = serving.server_port
        yield told
        serving.shutdown()
        thread.join()


@pytest.fixture
def job(server: ApiServer) -> RemoteJob:
    configuration = client.Configuration(host=f"http://127.0.0.1:{server.port}")
    configuration.retries = False
    return RemoteJob(Pods(configuration, "shop", "play"), "j", Containers("play", "keep", "/scratch"))


def test_what_belongs_to_the_job_goes_with_it(server: ApiServer, job: RemoteJob) -> None:
    server.answers = {("POST", f"{BATCH}/jobs"): [(201, JOB)]}
    server.answers |= {("POST", f"{CORE}/{kind}"): [(201, {})] for kind in ("configmaps", "secrets")}
    parts = [{"kind": kind, "metadata": {"name": "j"}} for kind in ("ConfigMap", "Secret")]
    job.make({"kind": "Job", "metadata": {"name": "j"}}, parts)
    assert [one.path for one in server.asked] == [f"{BATCH}/jobs", f"{CORE}/configmaps", f"{CORE}/secrets"]
    owners = [one.body["metadata"]["ownerReferences"][0] for one in server.asked[1:]]
    assert {(one["kind"], one["uid"], one["blockOwnerDeletion"]) for one in owners} == {("Job", "u-1", True)}


def test_what_the_server_refuses_is_reported_in_its_words(server: ApiServer, job: RemoteJob, message: Messages) -> None:
    server.answers = {("POST", f"{BATCH}/jobs"): [(403, {"message": "exceeded quota: small"})]}
    with message.of(MachineError) as refused:
        job.make({"kind": "Job"}, [])
    assert "exceeded quota: small" in str(refused.value)


def test_rights_that_are_missing_are_reported_before_anything_is_made(
    server: ApiServer, job: RemoteJob, message: Messages
) -> None:
    server.forbidden = "secrets"
    (lacking,) = job.lacking("resilience")
    assert "create secrets in shop" in lacking
    assert "docs/kubernetes/job-rights.yaml" in lacking
    message(lacking)
    asked = [one.body["spec"]["resourceAttributes"] for one in server.asked]
    assert [(one["verb"], one["resource"]) for one in asked] == [(verb, resource) for verb, resource, _ in WANTED]
    assert {one["resource"] for one in asked if one["group"] == "batch"} == {"jobs"}


def test_an_account_that_is_missing_is_reported(server: ApiServer, job: RemoteJob, message: Messages) -> None:
    server.answers = {("GET", f"{CORE}/serviceaccounts/resilience"): [NONE]}
    (lacking,) = job.lacking("resilience")
    assert "service account resilience" in lacking
    assert "docs/kubernetes/rights.yaml" in lacking
    message(lacking)


def test_a_look_asks_for_the_job_and_its_pods(server: ApiServer, job: RemoteJob, message: Messages) -> None:
    state = {"name": "play", "image": "i", "imageID": "i", "ready": False, "restartCount": 0}
    told = {**state, "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
    pod = {
        "metadata": {"name": "j-x", "creationTimestamp": "2026-11-24T20:00:00Z"},
        "spec": {"containers": []},
        "status": {"containerStatuses": [told]},
    }
    server.answers = {("GET", f"{BATCH}/jobs/j"): [(200, JOB)], ("GET", f"{CORE}/pods"): [(200, {"items": [pod]})]}
    found = job.look()
    assert (found.pod, found.status) == ("j-x", 3)
    assert server.asked[1].query == {"labelSelector": "job-name=j"}
    server.answers["GET", f"{BATCH}/jobs/j"] = [NONE]
    lost = job.look().lost
    assert lost != ""
    message(lost)


def test_it_is_removed_once_nothing_of_it_is_there(
    server: ApiServer, job: RemoteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits_by_clock(monkeypatch)
    server.answers = {("DELETE", f"{BATCH}/jobs/j"): [(500, {"message": "away"}), (200, JOB), (200, JOB), NONE]}
    job.remove(within_s=30)
    assert [one.query for one in server.asked] == [{"propagationPolicy": "Foreground"}] * 4


def test_what_stays_is_reported(
    server: ApiServer, job: RemoteJob, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    waits_by_clock(monkeypatch)
    server.answers = {("DELETE", f"{BATCH}/jobs/j"): [(200, JOB)]}
    with message.of(MachineError) as refused:
        job.remove(within_s=30)
    assert "Job j in shop" in str(refused.value)


def test_output_is_reported_once_each_however_often_the_way_breaks_off(
    server: ApiServer, job: RemoteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "AGAIN_AFTER_S", 0.01)
    torn = LINES[2][:28]
    pieces = ["".join(LINES[:2]) + torn, (400, {"message": "away"}), "".join(LINES[1:4]), "".join(LINES)]
    server.answers = {("GET", f"{CORE}/pods/j-x/log"): list(pieces)}
    said: list[str] = []
    with closing(job.output("j-x", said.append)):
        wait_until(lambda: len(said) == 5, timeout_s=60, what="five lines")
    assert said == [f"line {n}" for n in range(5)]
    first, *others = (one.query for one in server.asked)
    assert first == {"container": "play", "follow": "true", "timestamps": "true"}
    assert {int(one["sinceSeconds"]) for one in others} <= set(range(5, 60))


def test_events_say_why_no_pod_is_made_where_we_may_see_them(server: ApiServer, job: RemoteJob) -> None:
    event = {"metadata": {}, "involvedObject": {}, "reason": "FailedCreate", "message": "exceeded quota"}
    server.answers = {("GET", f"{CORE}/events"): [(200, {"items": [event, event]}), (403, {"message": "no"})]}
    assert job.refusals() == "FailedCreate: exceeded quota"
    assert job.refusals() == ""
