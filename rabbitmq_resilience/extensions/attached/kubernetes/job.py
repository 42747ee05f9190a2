"""Make, watch and remove a Job in the brokers' namespace, with all objects that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client

from rabbitmq_resilience.extensions.attached.kubernetes.containers import ContainerMachine
from rabbitmq_resilience.extensions.attached.kubernetes.job_states import JobStatus, seen
from rabbitmq_resilience.extensions.attached.kubernetes.output import Output
from rabbitmq_resilience.extensions.attached.kubernetes.pods import (
    ANSWERS_WITHIN_S,
    Pods,
    configured,
    connected,
    words_of,
)
from rabbitmq_resilience.extensions.attached.kubernetes.reviews import may
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError
from rabbitmq_resilience.extensions.attached.offers import Kubernetes
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: The needed rights (verb, resource, subresource), as ``docs/kubernetes/job-rights.yaml`` has them.
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
    """The names of the two containers of the Job's pod, and the folder that they share."""

    player: str
    keeper: str
    work: str


@dataclass(frozen=True)
class RemoteJob:
    """The Job of that ``name``, whether it exists or not. Methods raise MachineError if the API server refuses."""

    pods: Pods
    name: str
    containers: Containers

    @classmethod
    def of(cls, offer: Kubernetes, name: str, containers: Containers, *, folder: Path) -> RemoteJob:
        """Return the Job of that name in the namespace of the offer. ``folder``: relative paths in it start there."""
        return cls(Pods(configured(offer, folder), offer.namespace, containers.player), name, containers)

    def lacking(self, account: str) -> Iterator[str]:
        """Yield a text for each thing that is missing to make the Job: rights, or the service account."""
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
        """Make the Job, and then the objects that belong to it; its pod waits for them.

        The Job owns these objects, so Kubernetes removes them with the Job even if we are gone."""
        body: Any = job  # the client takes plain data as well as its own types
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

    def look(self) -> JobStatus:
        """Return the current state of the Job."""
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
        """Return why no pod is made of the Job; empty if there are no such events, or we may not read them."""
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
        """Pass each line that the player prints to ``say``, until the returned ``Output`` is closed."""
        return Output(self.pods, pod, say)

    def remove(self, *, within_s: float) -> None:
        """Remove the Job, and return once it is gone; all that belongs to it goes first.

        A Job that does not exist is no error. Requests are repeated if the API server does not answer."""

        def left() -> str:
            try:
                return "it still exists" if self._delete() else ""
            except MachineError as error:
                return str(error)

        what = f"Job {self.name} in {self.pods.namespace} to be gone"
        try:
            wait_until(left, timeout_s=within_s, what=what, poll_s=_AGAIN_AFTER_S, until=lambda text: not text)
        except WaitTimeout as error:
            raise MachineError(str(error)) from error

    def _delete(self) -> bool:
        """Ask for the deletion of the Job; return whether the Job still existed."""

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
