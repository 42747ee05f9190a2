"""All pods of brokers are restarted in turn by their StatefulSet: it is told to, or the Cluster Operator that keeps it.

Either is told by an annotation of the pods to be. It stays where it was written: taken away, it would have the pods
restarted once more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import urllib3
from kubernetes import client

from rabbitmq_resilience.clusters.attached.kubernetes.pods import ANSWERS_WITHIN_S, MERGE, Pods, connected, words_of
from rabbitmq_resilience.clusters.attached.machine import MachineError
from rabbitmq_resilience.clusters.attached.offers import Kubernetes
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: As ``kubectl rollout restart`` writes it.
_RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
#: The operator passes on none of the annotations of kubernetes.io (internal/metadata/annotation.go).
_TOLD_AT = "rabbitmq-resilience/restartedAt"
#: Of which StatefulSet's template a pod was made.
_REVISION = "controller-revision-hash"
OPERATOR_GROUP, OPERATOR_VERSION, OPERATOR_PLURAL = "rabbitmq.com", "v1beta1", "rabbitmqclusters"
TAKEN_UP_WITHIN_S = 30.0


@dataclass
class Rollout:
    """``of``: the pod of each broker, by Erlang name."""

    pods: Pods
    of: Mapping[str, str]
    offer: Kubernetes
    _name: str = ""
    _before: dict[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Returns once the StatefulSet has another revision to bring about. Raises MachineError."""
        name = self._name = self._kept_by()
        told = self._set(name)
        if texts := list(_not_rolling(told, len(self.of))):
            raise MachineError(f"{'; '.join(texts)}; nothing was done")
        self._before = {node: self.pods.there(pod).uid for node, pod in self.of.items()}
        revision, at = told.status.update_revision, datetime.now(UTC).isoformat(timespec="seconds")
        if self.offer.restart_all == "operator":
            self._ask("RabbitmqCluster", lambda _, objects: _tell_operator(objects, self.pods.namespace, told, at))
        else:
            self._ask(name, lambda sets, _: _tell_set(sets, self.pods.namespace, name, at))
        try:
            wait_until(
                lambda: self._set(name).status.update_revision != revision,
                timeout_s=TAKEN_UP_WITHIN_S,
                what=f"StatefulSet {name} to take it up",
                poll_s=0.5,
            )
        except WaitTimeout as error:
            raise MachineError(str(error)) from error

    def left(self) -> Iterator[str]:
        """In words, what is not of the new revision, the very pod that it was before, or not ready."""
        told = self._set(self._name)
        for node, pod in sorted(self.of.items()):
            found = self.pods.find(pod)
            if found is None:
                yield f"{node} has no pod"
            elif found.uid == self._before.get(node):
                yield f"pod {pod} is the one that it was before"
            elif (found.raw.metadata.labels or {}).get(_REVISION) != told.status.update_revision:
                yield f"pod {pod} is not of the new revision"
            elif not _is_ready(found.raw):
                yield f"pod {pod} is not ready"

    def _kept_by(self) -> str:
        """The name of the StatefulSet that keeps all of these pods."""
        names = {pod: _keeper(self.pods.there(pod).raw, "StatefulSet") for pod in self.of.values()}
        if len(set(names.values())) > 1 or None in names.values():
            told = ", ".join(f"{pod} by {name or 'none'}" for pod, name in names.items())
            raise MachineError(f"the brokers are not kept by one StatefulSet: {told}")
        return str(next(iter(names.values())))

    def _set(self, name: str) -> Any:
        return self._ask(
            name,
            lambda sets, _: sets.read_namespaced_stateful_set(
                name, self.pods.namespace, _request_timeout=ANSWERS_WITHIN_S
            ),
        )

    def _ask(self, what: str, call: Callable[[client.AppsV1Api, Any], Any]) -> Any:
        try:
            with connected(self.pods.configuration) as connection:
                return call(client.AppsV1Api(connection), client.CustomObjectsApi(connection))
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise MachineError(f"{what} in {self.pods.namespace}: {words_of(error)}") from error


def _keeper(told: Any, kind: str) -> str | None:
    owners: Collection[Any] = told.metadata.owner_references or ()
    return next((one.name for one in owners if one.kind == kind), None)


def _not_rolling(told: Any, pods: int) -> Iterator[str]:
    """In words, why it would not restart all of them in turn."""
    name, strategy = told.metadata.name, told.spec.update_strategy
    if strategy.type != "RollingUpdate" or (strategy.rolling_update and strategy.rolling_update.partition):
        yield f"StatefulSet {name} does not restart all of its pods by itself (updateStrategy)"
    if told.status.current_revision != told.status.update_revision:
        yield f"StatefulSet {name} is being updated already"
    if told.spec.replicas != pods:
        yield f"StatefulSet {name} has {told.spec.replicas} pods, and the cluster file {pods} nodes"


def _is_ready(told: Any) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in told.status.conditions or ())


def _tell_set(sets: client.AppsV1Api, namespace: str, name: str, at: str) -> None:
    body = {"spec": {"template": {"metadata": {"annotations": {_RESTARTED_AT: at}}}}}
    sets.patch_namespaced_stateful_set(name, namespace, body, _request_timeout=ANSWERS_WITHIN_S, _content_type=MERGE)


def _tell_operator(objects: Any, namespace: str, told: Any, at: str) -> None:
    """By its override of the StatefulSet: what it has of its own of the pods to be, it writes anew each time."""
    cluster = _keeper(told, "RabbitmqCluster")
    if cluster is None:
        raise MachineError(f"StatefulSet {told.metadata.name} is kept by no RabbitmqCluster; state restart_all")
    template = {"metadata": {"annotations": {_TOLD_AT: at}}}
    body = {"spec": {"override": {"statefulSet": {"spec": {"template": template}}}}}
    where = (OPERATOR_GROUP, OPERATOR_VERSION, namespace, OPERATOR_PLURAL)
    objects.patch_namespaced_custom_object(
        *where, cluster, body, _request_timeout=ANSWERS_WITHIN_S, _content_type=MERGE
    )
