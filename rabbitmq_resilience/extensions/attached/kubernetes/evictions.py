"""Evict pods from a node of Kubernetes; a disruption budget may refuse an eviction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import urllib3
from kubernetes import client

from rabbitmq_resilience.extensions.attached.kubernetes.pods import ANSWERS_WITHIN_S, Pod, Pods, connected, words_of
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: How long to ask again if a disruption budget refuses an eviction, for each pod.
LET_GO_WITHIN_S = 30.0
_ENDED_WITHIN_S = 30.0
_GRACE_S_MAX = 120.0
_POLL_S = 1.0
_NOT_FOUND, _TOO_MANY = 404, 429
#: The annotation of pods that the kubelet itself starts
#: (https://kubernetes.io/docs/reference/labels-annotations-taints).
_MIRROR = "kubernetes.io/config.mirror"
_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Going:
    """A pod that is to be evicted. ``grace_s``: how long it may take to end."""

    namespace: str
    name: str
    uid: str
    grace_s: float

    @classmethod
    def of(cls, raw: Any) -> Going:
        """Return the eviction of this pod (V1Pod of the client)."""
        grace_s = min(float(raw.spec.termination_grace_period_seconds or 0), _GRACE_S_MAX)
        return cls(raw.metadata.namespace, raw.metadata.name, raw.metadata.uid, grace_s)

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


def of_brokers(pods: Iterable[Pod]) -> list[Going]:
    """Return the evictions of these pods of brokers."""
    return [Going.of(pod.raw) for pod in pods]


def evictable(pods: Pods, machines: Collection[str]) -> list[Going]:
    """Return all pods of these nodes of Kubernetes, except those that the kubelet or a DaemonSet keeps there.

    Raise MachineError if a pod would not come back, or would lose its data. ``kubectl drain`` refuses both as well,
    unless an option allows it."""
    found: list[Going] = []
    for machine in sorted(machines):
        for raw in _on(pods, machine):
            if refusal := _lost(raw):
                raise MachineError(f"{Going.of(raw)} on {machine} {refusal}; nothing was done")
            found.append(Going.of(raw))
    return found


def evicted_within_s(going: Collection[Going]) -> float:
    """Return the longest time that the evictions may take."""
    return LET_GO_WITHIN_S * len(going) + _GRACE_S_MAX + _ENDED_WITHIN_S


def evicted(pods: Pods, going: Collection[Going]) -> None:
    """Evict these pods, and return once they are gone.

    Raise MachineError if one does not go, for instance with the words of a disruption budget that refuses."""
    for one in going:
        _evict(pods, one)
    within_s = max((one.grace_s for one in going), default=0.0) + _ENDED_WITHIN_S
    try:
        wait_until(
            lambda: not [one for one in going if _is_there(pods, one)],
            timeout_s=within_s,
            what=f"{', '.join(map(str, going))} to be gone",
            poll_s=_POLL_S,
        )
    except WaitTimeout as error:
        raise MachineError(str(error)) from error


def _on(pods: Pods, machine: str) -> Iterator[Any]:
    def listed(api: client.CoreV1Api) -> Any:
        return api.list_pod_for_all_namespaces(
            field_selector=f"spec.nodeName={machine}", _request_timeout=ANSWERS_WITHIN_S
        )

    for raw in pods.ask(f"the pods on {machine}", listed).items:
        kept = _MIRROR in (raw.metadata.annotations or {}) or "DaemonSet" in _keepers(raw)
        if not kept and raw.status.phase not in _OVER:
            yield raw


def _keepers(raw: Any) -> list[str]:
    return [one.kind for one in raw.metadata.owner_references or () if one.controller]


def _lost(raw: Any) -> str:
    if not _keepers(raw):
        return "has no controller, and would not come back"
    if any(volume.empty_dir for volume in raw.spec.volumes or ()):
        return "stores data in an emptyDir, which would be lost with it"
    return ""


def _evict(pods: Pods, one: Going) -> None:
    options = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=one.uid))
    body = client.V1Eviction(
        metadata=client.V1ObjectMeta(name=one.name, namespace=one.namespace), delete_options=options
    )

    def forbidden() -> Exception | None:
        """Return the refusal if the eviction may succeed later, or None if the pod is evicted or gone."""
        try:
            with connected(pods.configuration) as connection:
                api = client.CoreV1Api(connection)
                api.create_namespaced_pod_eviction(one.name, one.namespace, body, _request_timeout=ANSWERS_WITHIN_S)
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            status = getattr(error, "status", None)
            if status == _TOO_MANY:
                return error
            if status != _NOT_FOUND:
                raise MachineError(f"{one} may not be evicted: {words_of(error)}") from error
        return None

    try:
        wait_until(
            forbidden,
            timeout_s=LET_GO_WITHIN_S,
            what=f"an eviction of {one} to be allowed",
            poll_s=_POLL_S,
            until=lambda seen: seen is None,
        )
    except WaitTimeout as timeout:
        assert isinstance(timeout.last_seen, Exception)
        raise MachineError(f"{one} may not be evicted: {words_of(timeout.last_seen)}") from timeout


def _is_there(pods: Pods, one: Going) -> bool:
    def read(api: client.CoreV1Api) -> Any:
        try:
            return api.read_namespaced_pod(one.name, one.namespace, _request_timeout=ANSWERS_WITHIN_S)
        except client.ApiException as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    found = pods.ask(str(one), read)
    return found is not None and found.metadata.uid == one.uid
