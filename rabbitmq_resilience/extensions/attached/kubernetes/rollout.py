"""Have the StatefulSet of the brokers restart all of its pods in turn.

An annotation in the pod template starts the restart. It is written to the StatefulSet, or to the RabbitmqCluster from
which the Cluster Operator makes the StatefulSet. The annotation is not removed: that would restart the pods again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import urllib3
from kubernetes import client

from rabbitmq_resilience.extensions.attached.kubernetes.pods import ANSWERS_WITHIN_S, MERGE, Pods, connected, words_of
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.offers import Kubernetes
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: The annotation that ``kubectl rollout restart`` writes.
_RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
#: Our own annotation: the operator passes on none of those of kubernetes.io (internal/metadata/annotation.go).
_OPERATOR_RESTARTED_AT = "rabbitmq-resilience/restartedAt"
#: The label that names the revision of the StatefulSet from which a pod was made.
_REVISION = "controller-revision-hash"
OPERATOR_GROUP, OPERATOR_VERSION, OPERATOR_PLURAL = "rabbitmq.com", "v1beta1", "rabbitmqclusters"
TAKEN_UP_WITHIN_S = 30.0


@dataclass
class PodRollout:
    """A restart of all brokers in turn. ``pod_of``: the pod of each broker, by Erlang name."""

    pods: Pods
    pod_of: Mapping[str, str]
    offer: Kubernetes
    _name: str = ""
    _before: dict[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Start the restart, and return once the StatefulSet has a new revision.

        Raise MachineError if the StatefulSet cannot do it, or does not take it up in time."""
        name = self._name = self._kept_by()
        found = self._set(name)
        if texts := list(_not_rolling(found, len(self.pod_of))):
            raise MachineError(f"{'; '.join(texts)}; nothing was done")
        self._before = {node: self.pods.get(pod).uid for node, pod in self.pod_of.items()}
        revision, at = found.status.update_revision, datetime.now(UTC).isoformat(timespec="seconds")
        if self.offer.restart_all == "operator":
            self._ask("RabbitmqCluster", lambda _, objects: _annotate_cluster(objects, self.pods.namespace, found, at))
        else:
            self._ask(name, lambda sets, _: _annotate_set(sets, self.pods.namespace, name, at))
        try:
            wait_until(
                lambda: self._set(name).status.update_revision != revision,
                timeout_s=TAKEN_UP_WITHIN_S,
                what=f"StatefulSet {name} to take up the restart",
                poll_s=0.5,
            )
        except WaitTimeout as error:
            raise MachineError(str(error)) from error

    def left(self) -> Iterator[str]:
        """Yield a text for each broker whose pod is missing, not restarted, not of the new revision, or not ready."""
        current = self._set(self._name)
        for node, pod in sorted(self.pod_of.items()):
            found = self.pods.find(pod)
            if found is None:
                yield f"{node} has no pod"
            elif found.uid == self._before.get(node):
                yield f"pod {pod} was not replaced yet"
            elif (found.raw.metadata.labels or {}).get(_REVISION) != current.status.update_revision:
                yield f"pod {pod} is not of the new revision"
            elif not _is_ready(found.raw):
                yield f"pod {pod} is not ready"

    def _kept_by(self) -> str:
        """Return the name of the StatefulSet that keeps all of these pods. Raise MachineError if there is none."""
        names = {pod: _keeper(self.pods.get(pod).raw, "StatefulSet") for pod in self.pod_of.values()}
        if len(set(names.values())) > 1 or None in names.values():
            keepers = ", ".join(f"{pod} by {name or 'none'}" for pod, name in names.items())
            raise MachineError(f"the brokers are not kept by one StatefulSet: {keepers}")
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


def _keeper(raw: Any, kind: str) -> str | None:
    """Return the name of the owner of that kind, or None."""
    owners: Collection[Any] = raw.metadata.owner_references or ()
    return next((one.name for one in owners if one.kind == kind), None)


def _not_rolling(found: Any, pods: int) -> Iterator[str]:
    """Yield as texts why this StatefulSet would not restart all brokers in turn."""
    name, strategy = found.metadata.name, found.spec.update_strategy
    if strategy.type != "RollingUpdate" or (strategy.rolling_update and strategy.rolling_update.partition):
        yield f"StatefulSet {name} does not restart all of its pods by itself (updateStrategy)"
    if found.status.current_revision != found.status.update_revision:
        yield f"StatefulSet {name} is being updated already"
    if found.spec.replicas != pods:
        yield f"StatefulSet {name} has {found.spec.replicas} pods, and the cluster file {pods} nodes"


def _is_ready(raw: Any) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in raw.status.conditions or ())


def _annotate_set(sets: client.AppsV1Api, namespace: str, name: str, at: str) -> None:
    body = {"spec": {"template": {"metadata": {"annotations": {_RESTARTED_AT: at}}}}}
    sets.patch_namespaced_stateful_set(name, namespace, body, _request_timeout=ANSWERS_WITHIN_S, _content_type=MERGE)


def _annotate_cluster(objects: Any, namespace: str, found: Any, at: str) -> None:
    """Write the annotation into the override of the StatefulSet that a RabbitmqCluster has.

    The operator overwrites the pod template in the StatefulSet itself each time."""
    cluster = _keeper(found, "RabbitmqCluster")
    if cluster is None:
        raise MachineError(
            f"StatefulSet {found.metadata.name} is kept by no RabbitmqCluster; state restart_all: statefulset"
        )
    template = {"metadata": {"annotations": {_OPERATOR_RESTARTED_AT: at}}}
    body = {"spec": {"override": {"statefulSet": {"spec": {"template": template}}}}}
    where = (OPERATOR_GROUP, OPERATOR_VERSION, namespace, OPERATOR_PLURAL)
    objects.patch_namespaced_custom_object(
        *where, cluster, body, _request_timeout=ANSWERS_WITHIN_S, _content_type=MERGE
    )
