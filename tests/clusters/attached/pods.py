"""Brokers in pods: the cluster of ``docs/kubernetes/cluster.yaml``, in a namespace of its own, and who may do there
what ``docs/kubernetes/rights.yaml`` lets them, and no more."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.tools.locations import CHECKOUT, TOOLS
from rabbitmq_resilience.tools.waiting import wait_until

#: Names the kubeconfig of a cluster that may be used; otherwise that of ``make kubernetes`` is.
NAMED_BY = "KUBERNETES_FOR_TESTS"
IMAGE = "local/rabbitmq:3.10.8"
NET_TICKTIME_S = 5
_READY_WITHIN_S = 180.0


def kubeconfig() -> Path:
    """Skips without one."""
    pytest.importorskip("kubernetes")
    named = os.environ.get(NAMED_BY)
    found = Path(named) if named else TOOLS / "kubernetes" / "conf" / "admin.kubeconfig"
    if not named and not (TOOLS / "kubernetes" / "run" / "apiserver.pid").exists():
        pytest.skip(f"there is no Kubernetes: `make kubernetes` brings one up on Debian, {NAMED_BY} names another")
    return found


@dataclass(frozen=True)
class BrokersInPods:
    """``kubeconfig`` is of the account of the docs, ``admin`` of an administrator."""

    namespace: str
    kubeconfig: Path
    admin: Path
    folder: Path
    addresses: Mapping[str, str]
    zones: Mapping[str, str]

    def name(self, n: int) -> str:
        return f"rabbit@rabbit-{n}.rabbit.{self.namespace}.svc.cluster.local"

    @contextmanager
    def as_admin(self) -> Iterator[Any]:
        """A connection that may do everything."""
        from kubernetes import client, config  # noqa: PLC0415 - optional

        from rabbitmq_resilience.extensions.attached.kubernetes.pods import connected  # noqa: PLC0415 - optional

        configuration = client.Configuration()
        load: Any = config.load_kube_config
        load(str(self.admin), client_configuration=configuration)
        with connected(configuration) as api:
            yield api

    def network_policies(self) -> list[str]:
        """The names of those that there are."""
        from kubernetes import client  # noqa: PLC0415 - optional

        with self.as_admin() as api:
            told: list[Any] = client.NetworkingV1Api(api).list_namespaced_network_policy(self.namespace).items
        return [one.metadata.name for one in told]

    def cordoned(self) -> list[str]:
        """The nodes that take no pods now."""
        from kubernetes import client  # noqa: PLC0415 - optional

        with self.as_admin() as api:
            told: list[Any] = client.CoreV1Api(api).list_node().items
        return sorted(one.metadata.name for one in told if one.spec.unschedulable)

    def cluster_file(self, name: str, *, allow: str, forwarded: bool = False, **offer: Any) -> Path:
        def urls(n: int) -> dict[str, str]:
            if forwarded:
                return {"amqp": "port-forward:5672", "management": "port-forward:15672"}
            address = self.addresses[f"rabbit-{n}"]
            return {"amqp": f"amqp://{address}:5672", "management": f"http://{address}:15672"}

        nodes = [{"name": self.name(n), "zone": self.zones[f"rabbit-{n}"], **urls(n)} for n in range(3)]
        (self.folder / "password").write_text("an-example-of-a-password\n", encoding="utf-8")
        stated = {
            "version": 1,
            "cluster": "rabbit",
            "nodes": sorted(nodes, key=lambda node: node["zone"]),
            "user": {"env": "PODS_USER"},
            "password": {"file": "password"},
            "partition_handling": "pause_minority",
            "net_ticktime_s": NET_TICKTIME_S,
            "offers": {
                "kubernetes": {
                    "namespace": self.namespace,
                    "kubeconfig": str(self.kubeconfig),
                    "pull": "Never",
                    **offer,
                }
            },
            "allow": yaml.safe_load(allow),
        }
        path = self.folder / f"{name}.cluster.yaml"
        path.write_text(yaml.safe_dump(stated, sort_keys=False), encoding="utf-8")
        return path


@contextmanager
def brokers_in_pods(folder: Path) -> Iterator[BrokersInPods]:
    """Three of them, in three zones, each with a claim of its own."""
    found = kubeconfig()
    from kubernetes import client, config, utils  # noqa: PLC0415 - optional

    from rabbitmq_resilience.extensions.attached.kubernetes.pods import connected  # noqa: PLC0415 - optional

    load: Any = config.load_kube_config
    create: Any = utils.create_from_dict

    configuration = client.Configuration()
    load(str(found), client_configuration=configuration)
    namespace = f"tried-{secrets.token_hex(3)}"
    volumes = TOOLS / "kubernetes" / "volumes" / namespace
    with ExitStack() as stack:
        api = stack.enter_context(connected(configuration))
        core = client.CoreV1Api(api)
        stack.callback(shutil.rmtree, volumes, ignore_errors=True)
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace)))
        stack.callback(_gone, core, namespace)
        storage = _storage(namespace, volumes)
        stack.callback(_unstored, client, api, storage)
        rights = list(_rights(namespace))
        stack.callback(_unstored, client, api, rights)
        for document in [*storage, *_documents(namespace), *rights]:
            create(api, document, namespace=namespace)
        request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[]))
        told: Any = core.create_namespaced_service_account_token("resilience", namespace, request)
        ours = _as_account(found, str(told.status.token), folder / "kubeconfig")
        addresses = {name: _service(client, core, namespace, name) for name in ("rabbit-0", "rabbit-1", "rabbit-2")}

        def ready() -> bool:
            pods: list[Any] = core.list_namespaced_pod(namespace).items
            states = [one for pod in pods for one in pod.status.container_statuses or ()]
            return len(states) == len(addresses) and all(one.ready for one in states)

        wait_until(ready, timeout_s=_READY_WITHIN_S, what="three brokers to be ready", poll_s=1.0)
        placed: list[Any] = core.list_namespaced_pod(namespace).items
        zones = {pod.metadata.name: pod.spec.node_name.replace("node", "zone-") for pod in placed}
        yield BrokersInPods(namespace, ours, found, folder, addresses, zones)


def _documents(namespace: str) -> Iterator[dict[str, Any]]:
    """Those of the docs, as they are here."""
    assert CHECKOUT is not None, "tests are run in a checkout"
    text = (CHECKOUT / "docs" / "kubernetes" / "cluster.yaml").read_text(encoding="utf-8")
    text = text.replace("default.svc", f"{namespace}.svc")
    text = text.replace("net_ticktime, 15", f"net_ticktime, {NET_TICKTIME_S}")
    for document in yaml.safe_load_all(text):
        if document["kind"] == "StatefulSet":
            container = document["spec"]["template"]["spec"]["containers"][0]
            container |= {"image": IMAGE, "imagePullPolicy": "Never"}
            document["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] = namespace
        yield document


def _rights(namespace: str) -> Iterator[dict[str, Any]]:
    """Those of the docs; what belongs to no namespace gets another name."""
    assert CHECKOUT is not None, "tests are run in a checkout"
    text = (CHECKOUT / "docs" / "kubernetes" / "rights.yaml").read_text(encoding="utf-8")
    text = text.replace("namespace: default", f"namespace: {namespace}")
    for name in ("zones", "nodes", "evictions"):
        text = text.replace(f"resilience-{name}", f"resilience-{name}-{namespace}")
    yield from yaml.safe_load_all(text)


def _as_account(admin: Path, token: str, to: Path) -> Path:
    stated = yaml.safe_load(admin.read_text(encoding="utf-8"))
    for user in stated["users"]:
        user["user"] = {"token": token}
    to.write_text(yaml.safe_dump(stated), encoding="utf-8")
    return to


def _storage(namespace: str, volumes: Path) -> list[dict[str, Any]]:
    """A class, and two volumes in each zone, of which one is to spare: folders of this machine."""
    kind = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": namespace},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    made = []
    for n, which in itertools.product((1, 2, 3), ("a", "b")):
        (volumes / f"{n}{which}").mkdir(parents=True)
        zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [f"zone-{n}"]}
        made.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"{namespace}-{n}{which}"},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": namespace,
                    "persistentVolumeReclaimPolicy": "Retain",
                    "local": {"path": str(volumes / f"{n}{which}")},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
                },
            }
        )
    return [kind, *made]


def _unstored(client: Any, api: Any, documents: list[dict[str, Any]]) -> None:
    """What belongs to no namespace does not go with one."""
    rights = client.RbacAuthorizationV1Api(api)
    gone = {
        "PersistentVolume": client.CoreV1Api(api).delete_persistent_volume,
        "StorageClass": client.StorageV1Api(api).delete_storage_class,
        "ClusterRole": rights.delete_cluster_role,
        "ClusterRoleBinding": rights.delete_cluster_role_binding,
    }
    for document in documents:
        if document["kind"] in gone:
            with suppress(client.ApiException):
                gone[document["kind"]](document["metadata"]["name"])


def _service(client: Any, core: Any, namespace: str, pod: str) -> str:
    """An address that stays, whatever pod has that name."""
    ports = [client.V1ServicePort(name=str(port), port=port) for port in (5672, 15672, 15692)]
    spec = client.V1ServiceSpec(selector={"statefulset.kubernetes.io/pod-name": pod}, ports=ports)
    spec.publish_not_ready_addresses = True
    body = client.V1Service(metadata=client.V1ObjectMeta(name=pod), spec=spec)
    return str(core.create_namespaced_service(namespace, body).spec.cluster_ip)


def _gone(core: Any, namespace: str) -> None:
    pods: list[Any] = core.list_namespaced_pod(namespace).items
    core.delete_namespace(namespace)
    for pod in pods:
        core.delete_namespaced_pod(pod.metadata.name, namespace, grace_period_seconds=0)

    def gone() -> bool:
        return namespace not in {one.metadata.name for one in core.list_namespace().items}

    wait_until(gone, timeout_s=60, what=f"{namespace} to be gone", poll_s=1.0)
