"""Nodes that are drained, rolling restarts, deleted claims and Chaos Mesh on a real Kubernetes, on brokers in pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached.cluster_command import describe
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.journal import Journal, journal_file
from rabbitmq_resilience.history.events import FaultEvent
from rabbitmq_resilience.runner.judging import Result
from tests.clusters.attached.played_on_pods import PROVEN, await_whole, played, untrue
from tests.clusters.attached.pods import BrokersInPods, brokers_in_pods

pytestmark = pytest.mark.kubernetes

CUT = {"fault": "partition", "at_s": 2, "for_s": 30, "between": ["zone:c", "rest"]}
SLOW = {"fault": "latency", "at_s": 2, "for_s": 30, "links": "zone:a -> zone:b", "latency_ms": 300}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokersInPods]:
    with brokers_in_pods(tmp_path_factory.mktemp("pods")) as found:
        yield found


@pytest.fixture
def pods(made: BrokersInPods, monkeypatch: pytest.MonkeyPatch) -> BrokersInPods:
    """Whole, whatever was done to them before."""
    monkeypatch.setenv("PODS_USER", "chaos")
    await_whole(made.cluster_file("whole", allow="{}"))
    return made


@pytest.fixture
def chaos_mesh(pods: BrokersInPods) -> BrokersInPods:
    """Skips where it is not installed."""
    from kubernetes import client  # noqa: PLC0415 - optional

    with pods.as_admin() as api:
        try:
            client.CustomObjectsApi(api).list_namespaced_custom_object(
                "chaos-mesh.org", "v1alpha1", pods.namespace, "networkchaos"
            )
        except client.ApiException:
            pytest.skip("Chaos Mesh is not installed there: its API has no networkchaos")
    return pods


def states(result: Result) -> list[str]:
    return [event.state for event in result.run.events() if isinstance(event, FaultEvent)]


def details(result: Result) -> str:
    return "; ".join(event.detail for event in result.run.events() if isinstance(event, FaultEvent))


def unhealed(file: Path) -> list[Any]:
    return list(Journal(journal_file(load(file).stated.cluster)).unhealed())


@pytest.mark.parametrize("whole_zones", [False, True])
def test_nodes_are_drained_and_uncordoned(pods: BrokersInPods, tmp_path: Path, whole_zones: bool) -> None:
    file = pods.cluster_file("drained", allow="{drain_node: 1}", drain_node="brokers")
    step = {"fault": "drain_node", "at_s": 2, "for_s": 20, "node": "zone:b", "whole_zones": whole_zones}
    result = played(file, tmp_path, [step])
    assert untrue(result, 1) == {}
    assert result.verdict == "VALID"
    assert pods.cordoned() == []


def test_an_eviction_that_a_budget_refuses_is_reported_and_the_node_uncordoned(
    pods: BrokersInPods, tmp_path: Path
) -> None:
    from kubernetes import client  # noqa: PLC0415 - optional

    budget = client.V1PodDisruptionBudget(
        metadata=client.V1ObjectMeta(name="none"),
        spec=client.V1PodDisruptionBudgetSpec(
            max_unavailable=0, selector=client.V1LabelSelector(match_labels={"app": "rabbit"})
        ),
    )
    file = pods.cluster_file("budget", allow="{drain_node: 1}", drain_node="brokers")
    with pods.as_admin() as api:
        policies = client.PolicyV1Api(api)
        policies.create_namespaced_pod_disruption_budget(pods.namespace, budget)
        try:
            result = played(file, tmp_path, [{"fault": "drain_node", "at_s": 2, "for_s": 20, "node": "b1"}])
        finally:
            policies.delete_namespaced_pod_disruption_budget("none", pods.namespace)
    assert result.verdict == "UNKNOWN"
    assert "disruption budget" in details(result)
    assert pods.cordoned() == []


def test_all_brokers_are_restarted_by_their_set(pods: BrokersInPods, tmp_path: Path) -> None:
    file = pods.cluster_file("restarted", allow="{restart_all: 1}")
    result = played(file, tmp_path, [{"fault": "rolling_restart", "at_s": 2, "for_s": 300}])
    assert untrue(result, 1) == {}
    assert result.verdict == "VALID"


def test_chaos_mesh_cuts_and_heals(chaos_mesh: BrokersInPods, tmp_path: Path) -> None:
    file = chaos_mesh.cluster_file("chaos", allow="{cut: 1}", cut_by="chaos_mesh")
    result = played(file, tmp_path, [CUT])
    assert untrue(result, 1) == {}
    assert result.verdict == "VALID"


def test_latency_is_seen_or_what_it_left_is_undone_and_reported(chaos_mesh: BrokersInPods, tmp_path: Path) -> None:
    """Where the kernel has no netem the deletion of what should make it hangs."""
    file = chaos_mesh.cluster_file("slow", allow="{delay: 2}", cut_by="chaos_mesh")
    result = played(file, tmp_path, [SLOW])
    if states(result) != PROVEN:
        assert states(result) == ["injecting", "unproven", "healing", "heal_unproven"]
        assert "finalizer" in details(result)
        assert result.verdict == "UNKNOWN"
    assert unhealed(file) == []
    assert describe([str(file)]) == 0


def test_a_broker_comes_back_with_nothing_when_its_claim_is_deleted(pods: BrokersInPods, tmp_path: Path) -> None:
    """The last one: a broker of 3.10 that comes back so fails each time that its API is asked for the overview."""
    file = pods.cluster_file("emptied", allow="{kill: 1, lose_data: 1}", lose_data="claim")
    result = played(file, tmp_path, [{"fault": "lose_disk", "at_s": 2, "for_s": 30, "node": "b1"}])
    assert states(result) == PROVEN, details(result)
