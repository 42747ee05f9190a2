"""Write the Kubernetes objects of a Job: ConfigMap, Secret and Job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.extensions.jobs.job_request import JobRequest
from rabbitmq_resilience.extensions.jobs.paths import (
    CLUSTER_FILE,
    CREDENTIALS,
    FETCHED_WITHIN_S,
    GRACE_S,
    HEALS_WITHIN_S,
    KEEPER,
    PLAYER,
    RESULTS,
    SCENARIOS,
    WORK,
)

#: How long a Job may take to begin: until a node is found and the image is pulled.
STARTS_WITHIN_S = 600.0
#: How long an ended Job stays if this program is gone and does not remove it.
_STAYS_S = 600
_LEFT_OUT = "(left out)"
_LABELS = {"app.kubernetes.io/name": "rabbitmq-resilience", "app.kubernetes.io/component": "job"}


@dataclass(frozen=True)
class JobSettings:
    """Settings of a Job. ``name``: the name of all its objects. ``account``: the service account that acts on the
    brokers. ``cpu`` and ``memory``: what the Job requests of its node, as Kubernetes writes it."""

    name: str
    image: str
    pull: str
    account: str
    limit_s: float
    cpu: str
    memory: str
    for_pytest: Sequence[str] = ()


def config_map(order: JobRequest, settings: JobSettings) -> dict[str, Any]:
    """Return the ConfigMap with the cluster file, its certificates and the fault files."""
    return {**_head("v1", "ConfigMap", order, settings), "data": dict(order.files)}


def secret(order: JobRequest, settings: JobSettings, *, shown: bool = False) -> dict[str, Any]:
    """Return the Secret with the user and password of the brokers. ``shown``: without them, to be shown to people."""
    access = order.access
    data = {"user": access.user, "password": access.password}
    content = dict.fromkeys(data, _LEFT_OUT) if shown else data
    return {**_head("v1", "Secret", order, settings), "type": "Opaque", "stringData": content}


def job(order: JobRequest, settings: JobSettings) -> dict[str, Any]:
    """Return the Job. It has a time limit, and Kubernetes removes it some time after its end, even if we are gone."""
    at_most_s = STARTS_WITHIN_S + settings.limit_s + HEALS_WITHIN_S + FETCHED_WITHIN_S
    template = {
        "metadata": {
            "labels": _LABELS,
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        },
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": settings.account,
            "terminationGracePeriodSeconds": round(GRACE_S),
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [_player(order, settings), _keeper(settings)],
            "volumes": [
                {"name": "work", "emptyDir": {}},
                {"name": "tmp", "emptyDir": {}},
                {"name": "scenarios", "configMap": {"name": settings.name}},
                {"name": "credentials", "secret": {"secretName": settings.name}},
            ],
        },
    }
    return {
        **_head("batch/v1", "Job", order, settings),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": round(at_most_s),
            "ttlSecondsAfterFinished": _STAYS_S,
            "template": template,
        },
    }


def _player(order: JobRequest, settings: JobSettings) -> dict[str, Any]:
    for_pytest = [
        "-p",
        "no:cacheprovider",
        f"--resilience-cluster={CLUSTER_FILE}",
        f"--resilience-runs-dir={RESULTS}/runs",
        f"--junitxml={RESULTS}/junit.xml",
        *settings.for_pytest,
        *(f"{SCENARIOS}/{name}" for name in order.scenarios),
    ]
    mounts = [
        {"name": "scenarios", "mountPath": SCENARIOS, "readOnly": True},
        {"name": "credentials", "mountPath": CREDENTIALS, "readOnly": True},
    ]
    asked = {"cpu": settings.cpu, "memory": settings.memory}
    return _container(settings, PLAYER, ["play", f"{settings.limit_s:g}", *for_pytest], mounts, asked)


def _keeper(settings: JobSettings) -> dict[str, Any]:
    return _container(settings, KEEPER, ["keep"], [], {"cpu": "10m", "memory": "64Mi"})


def _container(
    settings: JobSettings,
    name: str,
    arguments: list[str],
    mounts: list[dict[str, Any]],
    asked: Mapping[str, str],
) -> dict[str, Any]:
    return {
        "name": name,
        "image": settings.image,
        "imagePullPolicy": settings.pull,
        "command": ["python3", "-m", "rabbitmq_resilience.extensions.jobs.entrypoint", *arguments],
        "workingDir": WORK,
        "env": [
            {"name": "HOME", "value": WORK},
            {"name": "XDG_STATE_HOME", "value": f"{WORK}/state"},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            {"name": "COLUMNS", "value": "120"},
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"requests": dict(asked)},
        "volumeMounts": [
            {"name": "work", "mountPath": WORK},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of a container
            *mounts,
        ],
    }


def _head(version: str, kind: str, order: JobRequest, settings: JobSettings) -> dict[str, Any]:
    metadata = {"name": settings.name, "namespace": order.offer.namespace, "labels": dict(_LABELS)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
