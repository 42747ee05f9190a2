"""A Job in the brokers' namespace: made, looked at, its output read, and removed, with all that belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client

from rabbitmq_resilience.clusters.attached.kubernetes.containers import ContainerMachine
from rabbitmq_resilience.clusters.attached.kubernetes.job_states import Seen, seen
from rabbitmq_resilience.clusters.attached.kubernetes.output import Output
from rabbitmq_resilience.clusters.attached.kubernetes.pods import (
    ANSWERS_WITHIN_S,
    Pods,
    configured,
    connected,
    words_of,
)
from rabbitmq_resilience.clusters.attached.kubernetes.reviews import may
from rabbitmq_resilience.clusters.attached.machine import Machine, MachineError
from rabbitmq_resilience.clusters.attached.offers import Kubernetes
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: Verb, resource and subresource, as ``docs/kubernetes/job-rights.yaml`` has them.
WANTED = (
    ("create", "jobs", ""),
    ("get", "jobs", ""),
    ("delete", "jobs", ""),
    ("create", "configmaps", ""),
    ("create", "secrets", ""),
    ("list", "pods", ""),
    ("get", "pods", "log"),
    ("create", "pods", "exec"),
    ("get", "serviceaccounts", ""),
)
_RIGHTS = "docs/kubernetes/job-rights.yaml"
_NOT_FOUND = 404
_AGAIN_AFTER_S = 1.0


@dataclass(frozen=True)
class Containers:
    """What the two of the Job's pod are called, and the folder that they share."""

    player: str
    keeper: str
    work: str


@dataclass(frozen=True)
class RemoteJob:
    """The one of that ``name``, whether it is there or not. All that asks raises MachineError."""

    pods: Pods
    name: str
    containers: Containers

    @classmethod
    def of(cls, offer: Kubernetes, name: str, containers: Containers, *, folder: Path) -> RemoteJob:
        return cls(Pods(configured(offer, folder), offer.namespace, containers.player), name, containers)

    def lacking(self, account: str) -> Iterator[str]:
        """In words, what is missing there to make it."""
        namespace = self.pods.namespace
        missing = [right for right in WANTED if not self._may(*right)]
        for verb, resource, sub in missing:
            what = f"{resource}/{sub}" if sub else resource
            yield f"we may not {verb} {what} in {namespace}; {_RIGHTS} has that right"
        if missing:
            return

        def read(api: client.CoreV1Api) -> bool:
            try:
                api.read_namespaced_service_account(account, namespace, _request_timeout=ANSWERS_WITHIN_S)
            except client.ApiException as error:
                if error.status == _NOT_FOUND:
                    return False
                raise
            return True

        if not self.pods.ask(f"service account {account}", read):
            yield f"{namespace} has no service account {account}; docs/kubernetes/rights.yaml makes one"

    def _may(self, verb: str, resource: str, sub: str) -> bool:
        group = "batch" if resource == "jobs" else ""
        return may(self.pods.configuration, verb, resource, sub, namespace=self.pods.namespace, group=group)

    def make(self, job: Mapping[str, Any], belongings: Sequence[Mapping[str, Any]]) -> None:
        """The Job first, which waits for what belongs to it: that goes with it then, whatever becomes of us."""
        body: Any = job  # plain data, which the client takes as well as its own
        made: Any = self._batch(
            f"Job {self.name} cannot be made",
            lambda api: api.create_namespaced_job(self.pods.namespace, body, _request_timeout=ANSWERS_WITHIN_S),
        )
        whose = {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": made.metadata.uid}
        for belonging in belongings:
            self._make_belonging(belonging, {**whose, "blockOwnerDeletion": True})

    def _make_belonging(self, body: Mapping[str, Any], owner: Mapping[str, Any]) -> None:
        owned = {**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}}
        create = {"ConfigMap": "create_namespaced_config_map", "Secret": "create_namespaced_secret"}[body["kind"]]
        self.pods.ask(
            f"{body['kind']} {self.name} cannot be made",
            lambda api: getattr(api, create)(self.pods.namespace, owned, _request_timeout=ANSWERS_WITHIN_S),
        )

    def look(self) -> Seen:
        job = self._read()
        listed: Any = self.pods.ask(
            f"pods of Job {self.name}",
            lambda api: api.list_namespaced_pod(
                self.pods.namespace, label_selector=f"job-name={self.name}", _request_timeout=ANSWERS_WITHIN_S
            ),
        )
        found = sorted(listed.items, key=lambda pod: pod.metadata.creation_timestamp)
        return seen(job, found, player=self.containers.player, keeper=self.containers.keeper)

    def refusals(self) -> str:
        """In words, why no pod is made of it; empty where that is not told, or not to us."""
        selector = f"involvedObject.name={self.name},type=Warning"
        try:
            listed: Any = self.pods.ask(
                "events",
                lambda api: api.list_namespaced_event(
                    self.pods.namespace, field_selector=selector, _request_timeout=ANSWERS_WITHIN_S
                ),
            )
        except MachineError:
            return ""
        return "; ".join(sorted({f"{one.reason}: {one.message}" for one in listed.items}))

    def player(self, pod: str) -> Machine:
        return ContainerMachine(self.pods, pod, lambda: self.containers.player, self.containers.work)

    def keeper(self, pod: str) -> Machine:
        return ContainerMachine(self.pods, pod, lambda: self.containers.keeper, self.containers.work)

    def output(self, pod: str, say: Callable[[str], None]) -> Output:
        """What the player prints, told as it comes."""
        return Output(self.pods, pod, say)

    def remove(self, *, within_s: float) -> None:
        """Returns once it is gone, which it is last of all that belongs to it; no error where it is not there. An API
        server that does not answer is asked again."""

        def left() -> str:
            try:
                return "it is still there" if self._delete() else ""
            except MachineError as error:
                return str(error)

        what = f"Job {self.name} in {self.pods.namespace} to be gone"
        try:
            wait_until(left, timeout_s=within_s, what=what, poll_s=_AGAIN_AFTER_S, until=lambda told: not told)
        except WaitTimeout as error:
            raise MachineError(str(error)) from error

    def _delete(self) -> bool:
        """Whether it was still there."""

        def delete(api: client.BatchV1Api) -> bool:
            try:
                api.delete_namespaced_job(
                    self.name,
                    self.pods.namespace,
                    propagation_policy="Foreground",
                    _request_timeout=ANSWERS_WITHIN_S,
                )
            except client.ApiException as error:
                if error.status == _NOT_FOUND:
                    return False
                raise
            return True

        return bool(self._batch(f"Job {self.name} cannot be removed", delete))

    def _read(self) -> Any | None:
        def read(api: client.BatchV1Api) -> Any | None:
            try:
                return api.read_namespaced_job(self.name, self.pods.namespace, _request_timeout=ANSWERS_WITHIN_S)
            except client.ApiException as error:
                if error.status == _NOT_FOUND:
                    return None
                raise

        return self._batch(f"Job {self.name}", read)

    def _batch(self, what: str, call: Callable[[client.BatchV1Api], Any]) -> Any:
        try:
            with connected(self.pods.configuration) as connection:
                return call(client.BatchV1Api(connection))
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise MachineError(f"{what} in {self.pods.namespace}: {words_of(error)}") from error
