"""Cuts by NetworkPolicy, as far as an API server sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.commanded import OurMachine
from rabbitmq_resilience.extensions.attached.machine import AbsentError, MachineError
from rabbitmq_resilience.extensions.attached.offers import Kubernetes
from rabbitmq_resilience.extensions.attached.packet_rules import DROP, PacketRule

pytest.importorskip("kubernetes")

from rabbitmq_resilience.extensions.attached.kubernetes.containers import ContainerMachine
from rabbitmq_resilience.extensions.attached.kubernetes.pods import Pods
from rabbitmq_resilience.extensions.attached.kubernetes.policies import LABEL, NetworkPolicies
from tests.clusters.attached.api_server import ApiServer, api_server
from tests.messages import Messages

pytestmark = pytest.mark.core

POLICIES = "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies"
RULES = [PacketRule("10.0.0.2", DROP)]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        found.put(
            "/api/v1/namespaces/shop/pods",
            "rabbit-0",
            metadata={"labels": {"statefulset.kubernetes.io/pod-name": "rabbit-0"}},
            spec={"containers": [{"name": "rabbitmq", "image": "rabbitmq"}]},
            status={"phase": "Running"},
        )
        yield found


@pytest.fixture
def policies(server: ApiServer, tmp_path: Path) -> Iterator[NetworkPolicies]:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server.configuration.host}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "kube.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    offer = Kubernetes(namespace="shop", kubeconfig=tmp_path / "kube.yaml", cut_by="network_policy")
    pods = Pods(server.configuration, "shop", "rabbitmq")
    found = NetworkPolicies(pods, "rabbit-0", "rabbit@rabbit-0", offer, tmp_path, OurMachine(str(tmp_path / "state")))
    yield found
    server.objects.clear()
    if watchdog.armed(found.keeper):
        found.put([], for_s=0)


def test_ours_is_made_with_our_label_and_goes(server: ApiServer, policies: NetworkPolicies) -> None:
    policies.put(RULES, for_s=3600)
    assert server.objects[f"{POLICIES}/resilience-rabbit-0"]["metadata"]["labels"] == {LABEL: "rabbit-0"}
    policies.put([*RULES, PacketRule("10.0.0.3", DROP)], for_s=3600)
    policies.put([], for_s=0)
    assert f"{POLICIES}/resilience-rabbit-0" not in server.objects


def test_one_that_is_only_called_like_ours_is_left_alone(
    server: ApiServer, policies: NetworkPolicies, message: Messages
) -> None:
    server.put(POLICIES, "resilience-rabbit-0", spec={"podSelector": {}})
    with message.of(MachineError):
        policies.put(RULES, for_s=3600)
    assert watchdog.armed(policies.keeper) == []
    policies.put([], for_s=0)
    assert not server.did("PATCH", of="networkpolicies")
    assert not server.did("DELETE", of="networkpolicies")


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"podSelector": {"matchLabels": {"app": "web"}}}, False),
        ({"podSelector": {}, "policyTypes": ["Egress"]}, False),
        ({"podSelector": {}, "policyTypes": ["Egress", "Ingress"]}, True),
        ({"podSelector": {"matchLabels": {"statefulset.kubernetes.io/pod-name": "rabbit-0"}}}, True),
        ({"podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, True),
    ],
)
def test_policies_of_others_matter_if_they_may_select_the_pod(
    server: ApiServer, policies: NetworkPolicies, spec: dict[str, Any], refused: bool
) -> None:
    server.put(POLICIES, "theirs", spec=spec)
    with pytest.raises(MachineError, match="theirs") if refused else nullcontext():
        policies.put(RULES, for_s=3600)
    assert bool(watchdog.armed(policies.keeper)) is not refused


def test_one_that_outlives_what_watched_over_it_is_deleted(server: ApiServer, policies: NetworkPolicies) -> None:
    server.put(POLICIES, "resilience-rabbit-0", metadata={"labels": {LABEL: "rabbit-0"}}, spec={"podSelector": {}})
    policies.put([], for_s=0)
    assert f"{POLICIES}/resilience-rabbit-0" not in server.objects


def test_nothing_is_healed_in_a_container_that_is_not_there(policies: NetworkPolicies, message: Messages) -> None:
    gone = ContainerMachine(policies.pods, "rabbit-0", lambda: None, "/state")
    with message.of(AbsentError):
        watchdog.heal(gone, "one")
    assert watchdog.armed(gone) == []
