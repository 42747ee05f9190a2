"""A cluster that is there already and offers no way in: load, verdict, and faults of our own clients."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.attached.attaching import Attachment, look_at
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.on_clusters import fitted
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.errors import WrongClusterError
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from tests.clusters.attached.processes import TOPOLOGY, written
from tests.run_scenarios import run_validated

pytestmark = pytest.mark.core

SCENARIO = """\
version: 1
title: A client is cut off and another one killed
topology: three_nodes_three_zones
workload: {queue_type: quorum, queues: 2, publishers: 2, consumers: 2, rate_per_s: 100}
phases: {steady_s: 2}
schedule:
  - {at_s: 1, fault: partition, between: ["publisher:0", all], for_s: 4}
  - {at_s: 2, fault: kill_client, client: "publisher:1", for_s: 2}
invariants: {no_loss: {}, order: {}, recovery: {}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster.form(TOPOLOGY) as formed:
        yield formed


@pytest.fixture
def user(cluster: LocalCluster) -> None:
    """Somebody who is not guest."""
    cluster.api("a1").put("users/mine", {"password": "of mine", "tags": "administrator"})


def played(file: Path, folder: Path) -> str:
    scenario = fitted(fault_file.parse(SCENARIO, driver="attached"), file)
    with closing(Attachment(load(file))) as attachment:
        with ClusterPool(attachment.form, keeps=False) as pool:
            result = run_validated(scenario, RunContext(pool, folder / "runs", io.StringIO(), driver="attached"))
        assert attachment.others_changed() == []
    assert result.document["driver"] == "attached"
    assert [path for path in folder.rglob("runs/**/*") if path.is_file() and b"of mine" in path.read_bytes()] == []
    return str(result.verdict)


@pytest.mark.usefixtures("user")
def test_each_run_has_a_virtual_host_of_its_own(cluster: LocalCluster, tmp_path: Path) -> None:
    before = cluster.api("a1").vhosts()
    assert played(written(cluster, tmp_path), tmp_path) == "VALID"
    assert cluster.api("a1").vhosts() == before


@pytest.mark.attached
@pytest.mark.usefixtures("user")
def test_a_virtual_host_that_was_given_stays_and_is_left_empty(cluster: LocalCluster, tmp_path: Path) -> None:
    api = cluster.api("a1")
    api.create_vhost("given")
    api.put("permissions/given/mine", {"configure": ".*", "write": ".*", "read": ".*"})
    api.put("users/mine", {"password": "of mine", "tags": "monitoring,policymaker"})
    try:
        file = written(cluster, tmp_path, besides="virtual_host: given\n")
        with pytest.warns(UserWarning, match="could not see"):
            assert played_in_given(file, tmp_path) == "VALID"
        assert api.queues("given") == []
        assert api.vhosts() == ["/", "given"]
    finally:
        api.delete_vhost("given")


def played_in_given(file: Path, folder: Path) -> str:
    scenario = fitted(fault_file.parse(SCENARIO, driver="attached"), file)
    with closing(Attachment(load(file))) as attachment, ClusterPool(attachment.form, keeps=False) as pool:
        return str(run_validated(scenario, RunContext(pool, folder / "runs", io.StringIO(), driver="attached")).verdict)


@pytest.mark.attached
@pytest.mark.usefixtures("user")
def test_another_cluster_that_answers_is_left_alone(cluster: LocalCluster, tmp_path: Path) -> None:
    with pytest.raises(WrongClusterError, match="'orders'"):
        look_at(load(written(cluster, tmp_path, name="orders")))
    file = written(cluster, tmp_path)
    file.write_text("".join(line for line in file.read_text().splitlines(True) if "c1@" not in line))
    with pytest.raises(WrongClusterError, match="c1@localhost"):
        look_at(load(file))


@pytest.mark.attached
@pytest.mark.usefixtures("user")
def test_clients_must_come_to_the_cluster_whose_management_api_answers(cluster: LocalCluster, tmp_path: Path) -> None:
    """Nobody logs in to the other one."""
    port = cluster.amqp_endpoint("b1").port
    with LocalCluster.form(topology_catalogue.load("one_node")) as other:
        elsewhere = other.amqp_endpoint("a1").port
        file = written(cluster, tmp_path)
        file.write_text(file.read_text().replace(f"amqp://127.0.0.1:{port}", f"amqp://127.0.0.1:{elsewhere}"))
        other.run_tool("a1", "rabbitmqctl", "set_cluster_name", "production")
        with pytest.raises(WrongClusterError, match=r"b1@localhost.*'production'"):
            Attachment(load(file))
        assert "mine" not in next(iter(other.logs().values())).read_text()
