"""The user's own program on a cluster that runs already: processes here, and a tap before its brokers."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.on_clusters import fitted
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tap.tap import Tap
from tests.clusters.attached.processes import TOPOLOGY, written
from tests.parts import ROOT
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.attached

SCENARIO = """\
version: 1
title: Workers of an application fail
topology: three_nodes_three_zones
workload:
  kind: application
  queue_type: quorum
  processes:
    - {name: source, command: ["{python}", discreet.py, publish], stops: before_drain}
    - {name: sink, command: ["{python}", discreet.py, consume], number: 2}
  flowing: {published: 20, delivered: 20}
  variables: {ca_file: SSL_CERT_FILE}
phases: {steady_s: 2, recovery_s: 60, drain_s: 60}
schedule:
  - {at_s: 1, fault: kill_client, client: "application:sink-1", for_s: 2}
invariants: {no_loss: {}, recovery: {}, reconnects: {within_s: 30}, consumers: {within_s: 30}, settled: {}}
"""
CUT = '  - {at_s: 4, fault: partition, between: ["application:sink-0", all], for_s: 4}\n'
#: The password, also as URLs have it, and what the messages have in them.
SECRETS = (b"of mine", b"of%20mine", b"-of-mine", b"PRIVATE KEY")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster.form(TOPOLOGY) as formed:
        yield formed


def played(file: Path, folder: Path, *, text: str = SCENARIO) -> Result:
    programs = ROOT / "tests" / "workloads" / "applications"
    scenario = fitted(fault_file.parse(text, folder=programs, driver="attached"), file)
    with closing(Attachment(load(file))) as attachment, ClusterPool(attachment.form, keeps=False) as pool:
        return run_validated(scenario, RunContext(pool, folder, io.StringIO(), driver="attached"))


def leaked(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "source-0.log" for path in files)
    return [f"{path}: {secret!r}" for path in files for secret in SECRETS if secret in path.read_bytes()]


def test_what_programs_declare_in_a_given_virtual_host_is_removed(cluster: LocalCluster, tmp_path: Path) -> None:
    api = cluster.api("a1")
    api.create_vhost("given")
    api.put("users/mine", {"password": "of mine", "tags": "monitoring,policymaker"})
    api.put("permissions/given/mine", {"configure": ".*", "write": ".*", "read": ".*"})
    try:
        file = written(cluster, tmp_path, besides="virtual_host: given\n")
        with pytest.warns(UserWarning, match="could not see"):
            result = played(file, tmp_path / "runs", text=SCENARIO.replace("invariants:", f"{CUT}invariants:"))
        assert str(result.verdict) == "VALID", result.document
        assert api.queues("given") == []
        assert [row["name"] for row in api.get("exchanges/given") if row["name"][:4] not in {"", "amq."}] == []
        assert leaked(tmp_path / "runs") == []
    finally:
        api.delete_vhost("given")


def test_programs_speak_tls_where_the_brokers_of_others_do(cluster: LocalCluster, tmp_path: Path) -> None:
    """Both sides of the tap do. Another one stands for the TLS of the brokers."""
    api = cluster.api("a1")
    api.put("users/mine", {"password": "of mine", "tags": "administrator"})
    front = tmp_path / "front"
    front.mkdir()
    with Tap(front) as brokers:
        file = written(cluster, tmp_path, besides=f"ca: {brokers.ca_file}\n")
        for node in TOPOLOGY.node_names:
            endpoint = cluster.amqp_endpoint(node)
            port = brokers.listen("broker", node, endpoint, made_certificate=True)
            text = file.read_text(encoding="utf-8")
            text = text.replace(f"amqp://127.0.0.1:{endpoint.port}", f"amqps://127.0.0.1:{port}")
            file.write_text(text, encoding="utf-8")
        result = played(file, tmp_path / "runs")
    assert str(result.verdict) == "VALID", result.document
    assert leaked(tmp_path / "runs") == []
