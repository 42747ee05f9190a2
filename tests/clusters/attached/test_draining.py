"""Nodes of Kubernetes that are cordoned and drained, and uncordoned, as far as an API server sees it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.cluster_command import heal
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.commanded import OurMachine
from rabbitmq_resilience.extensions.attached.healing import journal_of
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.node_backends import NodeBackends
from rabbitmq_resilience.extensions.attached.offers import Kubernetes

pytest.importorskip("kubernetes")

from rabbitmq_resilience.extensions.attached.kubernetes import draining as draining_program
from rabbitmq_resilience.extensions.attached.kubernetes import evictions
from rabbitmq_resilience.extensions.attached.kubernetes.containers import ContainerMachine
from rabbitmq_resilience.extensions.attached.kubernetes.draining import MARK, PodDraining, uncordoned
from rabbitmq_resilience.extensions.attached.kubernetes.pod_broker import PodBroker
from rabbitmq_resilience.extensions.attached.kubernetes.pods import ZONE, Pods
from tests.clusters.attached.api_server import ApiServer, api_server
from tests.messages import Messages

pytestmark = pytest.mark.core

FOR_S = 3600.0
PODS, NODES = "/api/v1/namespaces/shop/pods", "/api/v1/nodes"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """Zones 1, 2 and 3, of two nodes each; a broker on the first of each."""
    with api_server() as found:
        for n in range(1, 4):
            for which in ("", "-spare"):
                found.put(NODES, f"node{n}{which}", metadata={"labels": {ZONE: f"zone-{n}"}}, spec={})
            pod(found, f"rabbit-{n}", f"node{n}")
        yield found


def pod(server: ApiServer, name: str, node: str, *, by: str | None = "StatefulSet", **spec: Any) -> None:
    owner = {"apiVersion": "apps/v1", "kind": by, "name": "x", "uid": "u", "controller": True}
    server.put(
        PODS,
        name,
        metadata={"ownerReferences": [owner] if by else []},
        spec={"containers": [{"name": "rabbitmq", "image": "rabbitmq"}], "nodeName": node, **spec},
        status={"phase": "Running"},
    )


@pytest.fixture
def draining(server: ApiServer, tmp_path: Path) -> PodDraining:
    config = {"clusters": [{"name": "c", "cluster": {"server": server.configuration.host}}], "current-context": "x"}
    config |= {
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }
    (tmp_path / "kube.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}), "utf-8")
    offer = Kubernetes(namespace="shop", kubeconfig=tmp_path / "kube.yaml", drain_node="brokers")
    of = {f"rabbit@{n}": f"rabbit-{n}" for n in range(1, 4)}
    keeper = OurMachine.of_user(tmp_path / "state")
    return PodDraining(Pods(server.configuration, "shop", "rabbitmq"), of, offer, tmp_path, keeper)


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is watched over from this machine, which is run in this process where it is to heal: by the name of each."""
    found: dict[str, str] = {}

    def heal(_: object, key: str) -> None:
        *_, module, offer, folder, machine = shlex.split(found.pop(key, ""))
        assert module == draining_program.__name__
        uncordoned(Kubernetes.model_validate_json(offer), Path(folder), machine)

    def arm(_: object, key: str, *, heal: str, after_s: float) -> None:
        assert after_s >= FOR_S + evictions.evicted_within_s([])
        found[key] = heal

    monkeypatch.setattr(watchdog, "arm", arm)
    monkeypatch.setattr(watchdog, "heal", heal)
    return found


def cordoned(server: ApiServer) -> list[str]:
    return sorted(
        path.rpartition("/")[2]
        for path, one in server.objects.items()
        if path.startswith(NODES) and one["spec"].get("unschedulable")
    )


def drain(draining: PodDraining, *brokers: str, whole_zones: bool = False) -> None:
    draining.drain(brokers, whole_zones=whole_zones, for_s=FOR_S)


def test_a_node_is_cordoned_then_its_broker_evicted_and_uncordoned_by_what_watches_here(
    server: ApiServer, draining: PodDraining, armed: dict[str, str], message: Messages
) -> None:
    pod(server, "somebodys", "node2")
    drain(draining, "rabbit@2")
    assert [(verb, path.rpartition("/")[2]) for verb, path, _ in server.asked] == [
        ("PATCH", "node2"),
        ("POST", "eviction"),
    ]
    assert cordoned(server) == ["node2"]
    assert server.objects[f"{NODES}/node2"]["metadata"]["annotations"] == {MARK: "shop/rabbit-2"}
    assert f"{PODS}/rabbit-2" not in server.objects
    assert f"{PODS}/somebodys" in server.objects
    assert list(draining.open(["rabbit@2"])) == []
    message(*draining.open(["rabbit@1"]))
    server.objects[f"{NODES}/node2"]["spec"]["unschedulable"] = False
    message(*draining.open(["rabbit@2"]))
    server.objects[f"{NODES}/node2"]["spec"]["unschedulable"] = True
    assert list(armed) == ["rabbit@2:cordoned:node2"]
    draining.uncordon(["rabbit@2"])
    assert cordoned(server) == []
    assert server.objects[f"{NODES}/node2"]["metadata"]["annotations"] == {}
    draining.uncordon(["rabbit@2"])


def test_all_nodes_of_a_zone(server: ApiServer, draining: PodDraining, armed: dict[str, str]) -> None:
    drain(draining, "rabbit@3", whole_zones=True)
    assert cordoned(server) == ["node3", "node3-spare"]
    assert list(armed) == ["rabbit@3:cordoned:node3", "rabbit@3:cordoned:node3-spare"]
    draining.uncordon(["rabbit@3"])
    assert cordoned(server) == []


def test_a_drain_that_was_not_watched_over_is_healed_as_far_as_it_came(
    server: ApiServer, draining: PodDraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise MachineError("no watchdog")

    monkeypatch.setattr(watchdog, "arm", fails)
    with pytest.raises(MachineError, match="no watchdog"):
        drain(draining, "rabbit@3", whole_zones=True)
    draining.uncordon(["rabbit@3"])
    assert cordoned(server) == []


def test_each_of_several_brokers_has_its_nodes_back(
    server: ApiServer, draining: PodDraining, armed: dict[str, str]
) -> None:
    drain(draining, "rabbit@1", "rabbit@2")
    armed.clear()
    draining.uncordon_left("rabbit@3")
    assert cordoned(server) == ["node1", "node2"]
    draining.uncordon_left("rabbit@2")
    assert cordoned(server) == []


def test_an_eviction_that_a_budget_refuses_is_reported(
    server: ApiServer, draining: PodDraining, armed: dict[str, str], monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setattr(evictions, "LET_GO_WITHIN_S", 0.1)
    server.evicting = lambda _: (429, "Cannot evict pod as it would violate the pod's disruption budget.")
    with message.of(MachineError):
        drain(draining, "rabbit@2")
    assert f"{PODS}/rabbit-2" in server.objects
    assert cordoned(server) == ["node2"], "which healing opens again"
    assert list(armed) == ["rabbit@2:cordoned:node2"]


def test_what_would_take_others_is_refused_before_anything_is_done(
    server: ApiServer, draining: PodDraining, message: Messages
) -> None:
    pod(server, "rabbit-3", "node2")
    with message.of(MachineError):
        drain(draining, "rabbit@2")
    server.objects[f"{NODES}/node1"]["spec"]["unschedulable"] = True
    with message.of(MachineError):
        drain(draining, "rabbit@1")
    assert server.asked == []


@pytest.mark.usefixtures("armed")
def test_all_pods_go_but_those_that_their_node_keeps(server: ApiServer, draining: PodDraining) -> None:
    draining.offer = draining.offer.model_copy(update={"drain_node": "all"})
    pod(server, "agent", "node2", by="DaemonSet")
    pod(server, "shop-1", "node2", by="ReplicaSet")
    drain(draining, "rabbit@2")
    on_node = [one["metadata"]["name"] for one in server.objects.values() if one["spec"].get("nodeName") == "node2"]
    assert on_node == ["agent"]


@pytest.mark.parametrize(
    ("by", "spec"),
    [(None, {}), ("ReplicaSet", {"volumes": [{"name": "v", "emptyDir": {}}]})],
)
def test_all_pods_do_not_go_where_one_would_lose_something(
    server: ApiServer, draining: PodDraining, by: str | None, spec: dict[str, Any], message: Messages
) -> None:
    draining.offer = draining.offer.model_copy(update={"drain_node": "all"})
    pod(server, "shop-1", "node2", by=by, **spec)
    with message.of(MachineError):
        drain(draining, "rabbit@2")
    assert server.asked == []


def test_only_what_we_have_cordoned_is_uncordoned(server: ApiServer, draining: PodDraining) -> None:
    server.objects[f"{NODES}/node1"]["spec"]["unschedulable"] = True
    uncordoned(draining.offer, draining.folder, "node1")
    uncordoned(draining.offer, draining.folder, "gone")
    assert cordoned(server) == ["node1"]


def test_where_brokers_run_afterwards_is_reported(server: ApiServer, draining: PodDraining, message: Messages) -> None:
    stated = {f"rabbit@{n}": f"zone-{n}" for n in range(1, 4)}
    assert list(draining.misplaced(stated)) == []
    pod(server, "rabbit-1", "node2")
    server.objects[f"{NODES}/node3"]["spec"]["unschedulable"] = True
    server.objects.pop(f"{PODS}/rabbit-2")
    of_1, of_2, of_3 = draining.misplaced(stated)
    for broker, text in (("rabbit@1", of_1), ("rabbit@2", of_2), ("rabbit@3", of_3)):
        assert broker in text
        message(text)


def test_heal_uncordons_what_a_killed_run_has_drained(
    server: ApiServer, draining: PodDraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its watchdogs, and without them; nodes that were drained for other clusters of the namespace stay."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(PodBroker, "state", lambda _: "running")
    monkeypatch.setattr(PodBroker, "give_back", lambda _: None)
    monkeypatch.setattr(ContainerMachine, "run", lambda *_, **__: "")
    server.objects[f"{NODES}/node1"] |= {"spec": {"unschedulable": True}}
    server.objects[f"{NODES}/node1"]["metadata"]["annotations"] = {MARK: "shop/others-1"}
    known = load(cluster_file(tmp_path, draining))
    for has_watchdogs in (True, False):
        pod(server, "rabbit-2", "node2")
        with NodeBackends.of(known) as backends:
            assert backends.orchestrator is not None
            journal_of(known, backends).begun("drain_node", "rabbit@2", heals_by_itself_s=FOR_S)
            backends.orchestrator.draining.drain(["rabbit@2"], whole_zones=False, for_s=FOR_S)
            keeper = backends.keepers["this machine"]
        pod(server, "rabbit-2", "node2-spare")
        assert cordoned(server) == ["node1", "node2"]
        if not has_watchdogs:
            (key,) = watchdog.armed(keeper)
            keeper.run('kill -KILL -- "-$(cat "$1/pid")"; rm -r "$1"', f"{keeper.state}/{key}")
        assert heal([str(known.path)]) == 0
        assert cordoned(server) == ["node1"]
        assert watchdog.armed(keeper) == []


def cluster_file(folder: Path, draining: PodDraining) -> Path:
    """Nobody listens at these addresses."""
    (folder / "secret").write_text("x\n")
    nodes = [
        {"name": name, "zone": f"zone-{n}", "amqp": "amqp://127.0.0.1:11", "management": "http://127.0.0.1:11"}
        for n, name in enumerate(draining.pod_of, 1)
    ]
    for node in nodes:
        for kind in ("amqp", "management"):
            node[kind] = f"{node[kind]}{node['name'][-1]}"
    offer = {**draining.offer.model_dump(mode="json", exclude_defaults=True), "pods": dict(draining.pod_of)}
    stated = {"version": 1, "cluster": "shop", "user": {"file": "secret"}, "password": {"file": "secret"}}
    stated |= {"partition_handling": "pause_minority", "nodes": nodes}
    stated |= {"offers": {"kubernetes": offer}, "allow": {"drain_node": 1}}
    path = folder / "shop.yaml"
    path.write_text(yaml.safe_dump(stated, sort_keys=False))
    return path
