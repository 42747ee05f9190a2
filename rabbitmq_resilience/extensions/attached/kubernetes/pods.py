"""Read the pods of a namespace from the API server. Nothing is cached, as pods come and go."""

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

from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.offers import Kubernetes

Answer = TypeVar("Answer")

ANSWERS_WITHIN_S = 15.0
#: The kind of patch that all kinds of objects take (RFC 7386).
MERGE = "application/merge-patch+json"
ZONE = "topology.kubernetes.io/zone"
_NOT_FOUND = 404
_DEFAULT = "~/.kube/config"


def configured(offer: Kubernetes, folder: Path) -> client.Configuration:
    """Return the address of the API server and our account there.

    Sources: the ``kubeconfig`` of the offer, the files that kubectl reads, or the pod in which this runs. ``folder``:
    relative paths start there. Raise MachineError if no source can be read."""
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
        raise MachineError(
            f"Kubernetes cannot be reached by {where}: {error} Name a file in offers.kubernetes.kubeconfig of the "
            "cluster file (of find-pods: --kubeconfig)"
        ) from None
    websocket.setdefaulttimeout(ANSWERS_WITHIN_S)
    return found


@contextmanager
def connected(configuration: client.Configuration) -> Iterator[client.ApiClient]:
    """Yield a client, and close its connections at the end: the library does not."""
    with client.ApiClient(configuration) as api:
        try:
            yield api
        finally:
            api.rest_client.pool_manager.clear()


def resolved(offer: Kubernetes, folder: Path) -> Kubernetes:
    """Return the offer with its kubeconfig files and context filled in, so that later changes there have no effect.

    If KUBECONFIG names several files, the first that states a current context decides, as with kubectl."""
    if offer.kubeconfig is None and "KUBECONFIG" not in os.environ and "KUBERNETES_SERVICE_HOST" in os.environ:
        return offer
    stated = None if offer.kubeconfig is None else str(folder / offer.kubeconfig.expanduser())
    named = stated or os.environ.get("KUBECONFIG") or _DEFAULT
    files = [str(Path(each).expanduser().absolute()) for each in named.split(os.pathsep) if each]
    context = offer.context or next(filter(None, map(_current_context, files)), None)
    if context is None:
        return offer  # reading the files reports the error
    return offer.model_copy(update={"kubeconfig": Path(os.pathsep.join(files)), "context": context})


def _current_context(file: str) -> str | None:
    """Return the current context that the file states, or None if it states none or cannot be read."""
    try:
        content = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return content.get("current-context") if isinstance(content, dict) else None


def stored_in(raw: Any, container: str) -> dict[str, str]:
    """Return the claims that a container of a pod (V1Pod) mounts, by folder. Other containers may have claims, too."""
    claimed = {one.name: one.persistent_volume_claim for one in raw.spec.volumes or () if one.persistent_volume_claim}
    mounts = [mount for one in raw.spec.containers if one.name == container for mount in one.volume_mounts or ()]
    return {mount.mount_path: claimed[mount.name].claim_name for mount in mounts if mount.name in claimed}


def words_of(error: Exception) -> str:
    """Return the API server's own message, or a text for the error if there is none."""
    if not isinstance(error, client.ApiException):
        return f"{type(error).__name__}: {error}"
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)


@dataclass(frozen=True)
class Pod:
    """A pod at one moment.

    ``containers``: those that run, with the ephemeral ones. ``waiting``: why others wait, by name. ``raw``: the object
    of the client (V1Pod)."""

    name: str
    uid: str
    address: str
    node: str
    containers: frozenset[str]
    waiting: dict[str, str]
    broker_image: str
    #: Whether the broker stores in a volume claim.
    has_claim: bool
    raw: Any


@dataclass(frozen=True)
class Pods:
    """The pods of a namespace. ``container``: the name of the broker's container."""

    configuration: client.Configuration
    namespace: str
    container: str

    @contextmanager
    def api(self) -> Iterator[client.CoreV1Api]:
        """Yield an API client of its own for each call: the streams of the library change the client that they use."""
        with connected(self.configuration) as api:
            yield client.CoreV1Api(api)

    def ask(self, what: str, call: Callable[[client.CoreV1Api], Answer]) -> Answer:
        """Return what ``call`` returns. Raise MachineError with ``what`` and the server's words if it fails."""
        try:
            with self.api() as api:
                return call(api)
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise MachineError(f"{what} in {self.namespace}: {words_of(error)}") from error

    def find(self, name: str) -> Pod | None:
        """Return the pod of that name, or None if there is none. Raise MachineError if the server does not answer."""

        def read(api: client.CoreV1Api) -> Any:
            try:
                return api.read_namespaced_pod(name, self.namespace, _request_timeout=ANSWERS_WITHIN_S)
            except client.ApiException as error:
                if error.status == _NOT_FOUND:
                    return None
                raise

        raw = self.ask(f"pod {name}", read)
        return None if raw is None else self._pod(raw)

    def get(self, name: str) -> Pod:
        """Return the pod of that name. Raise MachineError if there is none."""
        found = self.find(name)
        if found is None:
            raise MachineError(f"{self.namespace} has no pod {name} now")
        return found

    def broker_runs(self, name: str) -> bool:
        """Return whether the broker's container of that pod runs, as the kubelet has reported it."""
        found = self.find(name)
        return found is not None and self.container in found.containers

    def delete(self, name: str, *, uid: str, grace_s: int | None) -> None:
        """Delete the pod of that ``uid``, never one that has replaced it.

        ``grace_s``: the grace period; None for the pod's own."""
        options = client.V1DeleteOptions(grace_period_seconds=grace_s, preconditions=client.V1Preconditions(uid=uid))
        self.ask(
            f"pod {name} cannot be deleted",
            lambda api: api.delete_namespaced_pod(
                name, self.namespace, body=options, _request_timeout=ANSWERS_WITHIN_S
            ),
        )

    def zone(self, node: str) -> str | None:
        """Return the zone of a node of Kubernetes, or None if it has no such label or we may not read it."""
        try:
            with self.api() as api:
                found = api.read_node(node, _request_timeout=ANSWERS_WITHIN_S)
        except (client.ApiException, urllib3.exceptions.HTTPError, OSError):
            return None
        labels = (found.metadata.labels if found.metadata else None) or {}
        return labels.get(ZONE)

    def _pod(self, raw: Any) -> Pod:
        statuses = [*(raw.status.container_statuses or ()), *(raw.status.ephemeral_container_statuses or ())]
        mine = [one for one in raw.spec.containers if one.name == self.container]
        if not mine:
            has = ", ".join(one.name for one in raw.spec.containers)
            raise MachineError(f"pod {raw.metadata.name} has {has}, and no {self.container}; state container:")
        waiting = {one.name: one.state.waiting for one in statuses if one.state and one.state.waiting}
        return Pod(
            name=raw.metadata.name,
            uid=raw.metadata.uid,
            address=raw.status.pod_ip or "",
            node=raw.spec.node_name or "",
            containers=frozenset(one.name for one in statuses if one.state and one.state.running),
            waiting={name: f"{one.reason}: {one.message or 'no details'}" for name, one in waiting.items()},
            broker_image=mine[0].image,
            has_claim=bool(stored_in(raw, self.container)),
            raw=raw,
        )
