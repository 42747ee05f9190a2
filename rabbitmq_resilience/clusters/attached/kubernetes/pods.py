"""The pods of a namespace, as the API server tells of them at this moment: nothing is kept, a pod comes and goes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import urllib3
import websocket
import yaml
from kubernetes import client, config

from rabbitmq_resilience.clusters.attached.machine import MachineError
from rabbitmq_resilience.clusters.attached.offers import Kubernetes

Answer = TypeVar("Answer")

ANSWERS_WITHIN_S = 15.0
#: How an object is patched: other kinds of patches are not for all kinds of objects (RFC 7386).
MERGE = "application/merge-patch+json"
ZONE = "topology.kubernetes.io/zone"
_NOT_FOUND = 404
_DEFAULT = "~/.kube/config"


def configured(offer: Kubernetes, folder: Path) -> client.Configuration:
    """Where the API server is, and who we are there: from ``kubeconfig``, from where kubectl looks, or from the pod in
    which this runs. ``folder``: from where paths are seen. Raises MachineError."""
    found = client.Configuration()
    offer = resolved(offer, folder)
    named = None if offer.kubeconfig is None else str(folder / offer.kubeconfig)
    inside = named is None and "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ
    try:
        if inside:
            config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(  # type: ignore[no-untyped-call]
                named, context=offer.context, client_configuration=found
            )
    except (config.ConfigException, OSError) as error:
        where = named or os.environ.get("KUBECONFIG") or _DEFAULT
        why = f"there is no way to Kubernetes by {where}: {error} Name a file in offers.kubernetes.kubeconfig"
        raise MachineError(why) from None
    websocket.setdefaulttimeout(ANSWERS_WITHIN_S)
    return found


@contextmanager
def connected(configuration: client.Configuration) -> Iterator[client.ApiClient]:
    """Its connections end with it, which the client leaves to others."""
    with client.ApiClient(configuration) as api:
        try:
            yield api
        finally:
            api.rest_client.pool_manager.clear()


def resolved(offer: Kubernetes, folder: Path) -> Kubernetes:
    """The same, and the same later: which file, and which of its contexts, is not left to what there is by then. Of
    several files, as KUBECONFIG may have them, the first that says its context is followed, as by kubectl."""
    if offer.kubeconfig is None and "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ:
        return offer
    named = str(folder / offer.kubeconfig) if offer.kubeconfig else os.environ.get("KUBECONFIG") or _DEFAULT
    files = [str(Path(each).expanduser().absolute()) for each in named.split(os.pathsep) if each]
    context = offer.context or next(filter(None, map(_current_context, files)), None)
    if context is None:
        return offer  # told where it is read
    return offer.model_copy(update={"kubeconfig": Path(os.pathsep.join(files)), "context": context})


def _current_context(file: str) -> str | None:
    """As the file says; None where it says none, or cannot be read."""
    try:
        told = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return told.get("current-context") if isinstance(told, dict) else None


def words_of(error: Exception) -> str:
    """What the API server said."""
    if not isinstance(error, client.ApiException):
        return f"{type(error).__name__}: {error}"
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)


@dataclass(frozen=True)
class Pod:
    """``containers`` that run now, with the ephemeral ones; ``waiting``: why others do not, by name."""

    name: str
    uid: str
    address: str
    node: str
    containers: frozenset[str]
    waiting: dict[str, str]
    broker_image: str
    has_claim: bool
    raw: Any


@dataclass(frozen=True)
class Pods:
    """``container`` is the broker's."""

    configuration: client.Configuration
    namespace: str
    container: str

    @contextmanager
    def api(self) -> Iterator[client.CoreV1Api]:
        """One of its own for each call: the client's streams change the one that they use."""
        with connected(self.configuration) as api:
            yield client.CoreV1Api(api)

    def ask(self, what: str, call: Callable[[client.CoreV1Api], Answer]) -> Answer:
        """Raises MachineError with the server's words."""
        try:
            with self.api() as api:
                return call(api)
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise MachineError(f"{what} in {self.namespace}: {words_of(error)}") from error

    def find(self, name: str) -> Pod | None:
        """None where there is none of that name."""

        def read(api: client.CoreV1Api) -> Any:
            try:
                return api.read_namespaced_pod(name, self.namespace, _request_timeout=ANSWERS_WITHIN_S)
            except client.ApiException as error:
                if error.status == _NOT_FOUND:
                    return None
                raise

        told = self.ask(f"pod {name}", read)
        return None if told is None else self._pod(told)

    def there(self, name: str) -> Pod:
        """Raises MachineError where there is none."""
        found = self.find(name)
        if found is None:
            raise MachineError(f"{self.namespace} has no pod {name} now")
        return found

    def broker_runs(self, name: str) -> bool:
        """Whether its container does, as the kubelet has told."""
        found = self.find(name)
        return found is not None and self.container in found.containers

    def delete(self, name: str, *, uid: str, grace_s: int | None) -> None:
        """Of that ``uid`` alone: never one that has come in its place. ``grace_s``: None for the pod's own."""
        options = client.V1DeleteOptions(grace_period_seconds=grace_s, preconditions=client.V1Preconditions(uid=uid))
        self.ask(
            f"pod {name} cannot be deleted",
            lambda api: api.delete_namespaced_pod(
                name, self.namespace, body=options, _request_timeout=ANSWERS_WITHIN_S
            ),
        )

    def zone(self, node: str) -> str | None:
        """Of a node of Kubernetes; None where it is not labelled, or we may not look."""
        try:
            with self.api() as api:
                told = api.read_node(node, _request_timeout=ANSWERS_WITHIN_S)
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError):
            return None
        labels = (told.metadata.labels if told.metadata else None) or {}
        return labels.get(ZONE)

    def _pod(self, told: Any) -> Pod:
        statuses = [*(told.status.container_statuses or ()), *(told.status.ephemeral_container_statuses or ())]
        mine = [one for one in told.spec.containers if one.name == self.container]
        if not mine:
            has = ", ".join(one.name for one in told.spec.containers)
            raise MachineError(f"pod {told.metadata.name} has {has}, and no {self.container}; state container:")
        waiting = {one.name: one.state.waiting for one in statuses if one.state and one.state.waiting}
        return Pod(
            name=told.metadata.name,
            uid=told.metadata.uid,
            address=told.status.pod_ip or "",
            node=told.spec.node_name or "",
            containers=frozenset(one.name for one in statuses if one.state and one.state.running),
            waiting={name: f"{one.reason}: {one.message or 'no more is told'}" for name, one in waiting.items()},
            broker_image=mine[0].image,
            has_claim=any(volume.persistent_volume_claim for volume in told.spec.volumes or ()),
            raw=told,
        )
