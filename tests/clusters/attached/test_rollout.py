"""A rolling restart, and claims that are deleted, as far as an API server sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.offers import Kubernetes

pytest.importorskip("kubernetes")

from rabbitmq_resilience.extensions.attached.kubernetes import rollout, volume_claims
from rabbitmq_resilience.extensions.attached.kubernetes.pods import Pods
from tests.clusters.attached.api_server import ApiServer, Body, api_server
from tests.messages import Messages

pytestmark = pytest.mark.core

PODS, CLAIMS = "/api/v1/namespaces/shop/pods", "/api/v1/namespaces/shop/persistentvolumeclaims"
SETS = "/apis/apps/v1/namespaces/shop/statefulsets"
OPERATED = "/apis/rabbitmq.com/v1beta1/namespaces/shop/rabbitmqclusters"
OF = {f"rabbit@{n}": f"rabbit-{n}" for n in range(3)}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """A StatefulSet of three, which takes up each change of its template."""
    for module, name in [
        (rollout, "TAKEN_UP_WITHIN_S"),
        (volume_claims, "GONE_WITHIN_S"),
        (volume_claims, "BACK_WITHIN_S"),
    ]:
        monkeypatch.setattr(module, name, 0.3)
    with api_server() as found:
        template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "rabbitmq"}]}}
        found.put(
            SETS,
            "rabbit",
            spec={
                "replicas": 3,
                "selector": {"matchLabels": {"app": "x"}},
                "serviceName": "rabbit",
                "template": template,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
            },
            status={"replicas": 3, "currentRevision": "one", "updateRevision": "one"},
        )
        for n in range(3):
            pod(found, n, revision="one")
            found.put(CLAIMS, f"data-rabbit-{n}", spec={}, status={})
        found.changed = taken_up
        yield found


def pod(server: ApiServer, n: int, *, revision: str, ready: bool = True) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "rabbit", "uid": "u", "controller": True}
    mounts = [{"name": "data", "mountPath": "/var/lib/rabbitmq"}, {"name": "common", "mountPath": "/common"}]
    kept = {name: {"claimName": claim} for name, claim in (("data", f"data-rabbit-{n}"), ("common", "of-all"))}
    running = {"name": "rabbitmq", "state": {"running": {}}, "ready": True, "restartCount": 0}
    server.put(
        PODS,
        f"rabbit-{n}",
        metadata={"ownerReferences": [owner], "labels": {"controller-revision-hash": revision}},
        spec={
            "containers": [{"name": "rabbitmq", "image": "rabbitmq", "volumeMounts": mounts}],
            "volumes": [{"name": name, "persistentVolumeClaim": claim} for name, claim in kept.items()],
        },
        status={
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{**running, "image": "rabbitmq", "imageID": "i"}],
        },
    )


def taken_up(body: Body) -> None:
    if "updateRevision" in body.get("status", {}):
        body["status"]["updateRevision"] = "two"


def rolling(server: ApiServer, by: Any = "statefulset") -> rollout.PodRollout:
    return rollout.PodRollout(Pods(server.configuration, "shop", "rabbitmq"), OF, Kubernetes(restart_all=by))


def test_a_statefulset_is_reported_as_kubectl_does_and_each_pod_is_looked_at(
    server: ApiServer, message: Messages
) -> None:
    def told(found: rollout.PodRollout) -> list[str]:
        texts = list(found.left())
        for text in texts:
            message(text)
        return [word for text in texts for word in text.split() if word.startswith("rabbit")]

    found = rolling(server)
    found.begin()
    [(path, body)] = server.did("PATCH", of="")
    assert path == f"{SETS}/rabbit"
    assert list(body["spec"]["template"]["metadata"]["annotations"]) == ["kubectl.kubernetes.io/restartedAt"]
    assert told(found) == ["rabbit-0", "rabbit-1", "rabbit-2"]
    pod(server, 2, revision="two")
    pod(server, 1, revision="two", ready=False)
    pod(server, 0, revision="one")
    assert told(found) == ["rabbit-0", "rabbit-1"]
    server.objects.pop(f"{PODS}/rabbit-0")
    pod(server, 1, revision="two")
    assert told(found) == ["rabbit@0"]
    pod(server, 0, revision="two")
    assert list(found.left()) == []


def test_the_operator_is_reported_by_what_it_passes_on(server: ApiServer) -> None:
    owner = {"apiVersion": "rabbitmq.com/v1beta1", "kind": "RabbitmqCluster", "name": "orders", "uid": "u"}
    server.objects[f"{SETS}/rabbit"]["metadata"]["ownerReferences"] = [owner]
    server.put(OPERATED, "orders", spec={})
    server.changed = lambda _: taken_up(server.objects[f"{SETS}/rabbit"])
    rolling(server, "operator").begin()
    [(path, body)] = server.did("PATCH", of="")
    assert path == f"{OPERATED}/orders"
    template = body["spec"]["override"]["statefulSet"]["spec"]["template"]
    assert list(template["metadata"]["annotations"]) == ["rabbitmq-resilience/restartedAt"]


def test_one_that_no_one_takes_up_is_reported(server: ApiServer, message: Messages) -> None:
    server.changed = lambda _: None
    with message.of(MachineError):
        rolling(server).begin()


@pytest.mark.parametrize(
    ("field", "to"),
    [
        ("updateStrategy", {"type": "OnDelete"}),
        ("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}),
        ("replicas", 5),
    ],
)
def test_one_that_would_not_restart_all_is_refused(server: ApiServer, field: str, to: Any, message: Messages) -> None:
    server.objects[f"{SETS}/rabbit"]["spec"][field] = to
    with message.of(MachineError):
        rolling(server).begin()
    assert server.asked == []


def test_one_that_is_under_way_and_an_operator_that_is_none_are_refused(server: ApiServer, message: Messages) -> None:
    with message.of(MachineError):
        rolling(server, "operator").begin()
    server.objects[f"{SETS}/rabbit"]["status"]["updateRevision"] = "other"
    with message.of(MachineError):
        rolling(server).begin()
    assert server.asked == []


class Inside:
    """The broker's container, which tells how much it has of what is older than a time."""

    state, description = "/tmp", "pod shop/rabbit-1"  # noqa: S108 - nothing is written there

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:  # noqa: ARG002 - of the protocol
        self.asked.append(arguments)
        return "0\n"

    def connect(self, host: str, port: int, *, timeout_s: float | None) -> Any:  # noqa: ARG002 - of the protocol
        raise AssertionError("nothing is connected to")


def losing(server: ApiServer, inside: Inside) -> volume_claims.PodClaims:
    return volume_claims.PodClaims(Pods(server.configuration, "shop", "rabbitmq"), "rabbit-1", inside)


def test_a_claim_goes_with_its_pod_and_what_is_older_than_the_new_one_is_looked_for(server: ApiServer) -> None:
    inside = Inside()

    def comes_back(path: str) -> None:
        if path.startswith(PODS):
            made = "2026-11-24T11:00:00Z"
            server.put(CLAIMS, "data-rabbit-1", metadata={"creationTimestamp": made}, spec={}, status={})
            pod(server, 1, revision="one")

    server.deleted = comes_back
    found = losing(server, inside)
    found.delete()
    gone = [path for path, _ in server.did("DELETE", of="")]
    assert gone == [f"{CLAIMS}/data-rabbit-1", f"{PODS}/rabbit-1"], "and not what others have too"
    assert found.stored_bytes() == 0
    assert inside.asked == [("1795517995", "/var/lib/rabbitmq")], "5 s before it was made"


def test_a_claim_that_does_not_go_and_a_broker_that_does_not_come_back_are_reported(
    server: ApiServer, message: Messages
) -> None:
    found = losing(server, Inside())
    server.objects[f"{CLAIMS}/data-rabbit-1"]["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    with message.of(MachineError):
        found.delete()
    with message.of(MachineError):
        found.stored_bytes()
    server.objects.pop(f"{CLAIMS}/data-rabbit-1")
    with message.of(MachineError):
        found.stored_bytes()


def test_a_pod_without_a_claim_of_its_set_is_left_alone(server: ApiServer, message: Messages) -> None:
    server.objects[f"{SETS}/rabbit"]["spec"]["volumeClaimTemplates"] = []
    with message.of(MachineError):
        losing(server, Inside()).delete()
    assert server.asked == []


def test_a_claim_of_another_container_is_not_the_brokers(server: ApiServer, message: Messages) -> None:
    """Such as one with backups."""
    spec = server.objects[f"{PODS}/rabbit-1"]["spec"]
    backup = {"name": "backup", "image": "backup", "volumeMounts": spec["containers"][0].pop("volumeMounts")}
    spec["containers"].append(backup)
    assert not Pods(server.configuration, "shop", "rabbitmq").get("rabbit-1").has_claim
    with message.of(MachineError):
        losing(server, Inside()).delete()
    assert not server.did("DELETE", of="")
