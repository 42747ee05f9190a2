"""One run at a time on a cluster that is there already, and its virtual hosts: nothing of others is touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from pika import BlockingConnection, ConnectionParameters

from rabbitmq_resilience.extensions.attached import attaching
from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_command import heal
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.journal import Journal, journal_file
from rabbitmq_resilience.extensions.attached.lock import LockedError, lists_queues
from rabbitmq_resilience.extensions.attached.vhosts import LOCK, MARK, GivenVhostApi, Made, OwnVhostApi, marked_vhosts
from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.model.errors import ClusterError, WrongClusterError
from rabbitmq_resilience.sut.broker.management import ApiError, ManagementApi
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from tests.clusters.attached.processes import TOPOLOGY, written
from tests.statistics_ended import END
from tests.whole import await_whole

pytestmark = pytest.mark.attached

ALL = {"configure": ".*", "write": ".*", "read": ".*"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster.form(TOPOLOGY) as formed:
        formed.api("a1").put("users/mine", {"password": "of mine", "tags": "administrator"})
        yield formed


def as_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this machine, who has no journal of ours."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state of another"))


@pytest.fixture
def given(cluster: LocalCluster) -> Iterator[ManagementApi]:
    api = cluster.api("a1")
    api.create_vhost("given")
    api.put("permissions/given/mine", ALL)
    yield api
    api.delete_vhost("given")


def test_a_run_that_is_refused_leaves_the_lock_where_it_is(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(cluster, tmp_path)
    before = cluster.api("a1").vhosts()
    with closing(Attachment(load(file))) as attachment:
        during = cluster.api("a1").vhosts()
        as_another_user(tmp_path, monkeypatch)
        for _ in range(2):
            with pytest.raises(LockedError, match="another run"):
                Attachment(load(file))
        assert cluster.api("a1").vhosts() == during
        attachment.form(TOPOLOGY).close()
        assert attachment.others_changed() == []
    assert cluster.api("a1").vhosts() == before


def test_a_run_whose_lock_somebody_deletes_ends(cluster: LocalCluster, tmp_path: Path) -> None:
    with closing(Attachment(load(written(cluster, tmp_path)))) as attachment:
        formed = attachment.form(TOPOLOGY)
        (vhost,) = marked_vhosts(cluster.api("a1"))
        cluster.api("a1").delete_vhost(vhost)

        def is_told() -> bool:
            try:
                formed.check()
            except LockedError:
                return True
            return False

        wait_until(is_told, timeout_s=30, what="the run to be told that its lock is gone")
        formed.close()


def test_a_virtual_host_that_is_there_is_neither_taken_nor_removed(cluster: LocalCluster) -> None:
    theirs, made = cluster.api("a1"), Made()
    theirs.create_vhost("shop")
    theirs.declare_queue("shop", "payments")
    with (
        OwnVhostApi(theirs.base_url, access=Access(), made=made) as ours,
        OwnVhostApi(theirs.base_url, access=Access(), made=made) as of_another_node,
    ):
        with pytest.raises(ApiError, match="it exists"):
            ours.create_vhost("shop")
        ours.delete_vhost("shop")
        assert [queue["name"] for queue in theirs.queues("shop")] == ["payments"]
        ours.create_vhost("of this run")
        ours.create_vhost("of this run")  # as after an answer that was lost
        assert marked_vhosts(theirs) == ["of this run"]
        assert theirs.get("vhosts/of%20this%20run")["tags"] == [MARK]
        of_another_node.delete_vhost("of this run")
        assert marked_vhosts(theirs) == []
    theirs.delete_vhost("shop")


@pytest.mark.parametrize("first_is_given", [True, False])
def test_a_lock_is_seen_from_another_virtual_host(
    cluster: LocalCluster,
    tmp_path: Path,
    given: ManagementApi,
    monkeypatch: pytest.MonkeyPatch,
    first_is_given: bool,
) -> None:
    """Also by a user who may not use the virtual host in which it lies."""
    (tmp_path / "in given").mkdir()
    texts = [
        written(cluster, tmp_path / "in given", besides="virtual_host: given\n"),
        written(cluster, tmp_path),
    ]
    (tmp_path / "in given" / "name").write_text("theirs\n")
    given.put("users/theirs", {"password": "of mine", "tags": "monitoring"})
    given.put("permissions/given/theirs", ALL)
    first, second = texts if first_is_given else texts[::-1]
    given.delete("permissions/given/mine")
    unseen = pytest.warns(UserWarning, match="could not see") if first_is_given else nullcontext()
    with unseen, closing(Attachment(load(first))):
        another = ManagementApi(given.base_url, access=load(second).access)
        with another:
            wait_until(lambda: another.get("connections"), timeout_s=15, what="statistics to tell of the connection")
        as_another_user(tmp_path, monkeypatch)
        with pytest.raises(LockedError, match="another run"):
            Attachment(load(second))


@pytest.mark.parametrize("place", ["given", "/"])
def test_a_connection_that_is_reported_is_no_lock_where_its_queue_would_be_seen(
    cluster: LocalCluster, tmp_path: Path, given: ManagementApi, place: str
) -> None:
    """Brokers may tell of the connection of an earlier run after it has ended."""
    file = written(cluster, tmp_path, besides="virtual_host: given\n" if place == "given" else "")
    given.put("permissions/%2F/mine", ALL)
    parameters = load(file).access.parameters(cluster.amqp_endpoint("a1"))
    name = f"{LOCK}of-an-earlier-run of somebody"
    with closing(
        BlockingConnection(
            ConnectionParameters(**parameters, virtual_host=place, client_properties={"connection_name": name})
        )
    ):
        wait_until(lambda: names_of(given) == [name], timeout_s=15, what="statistics to tell of the connection")
        Attachment(load(file)).close()


def names_of(api: ManagementApi) -> list[str]:
    return [row.get("user_provided_name", "") for row in api.get("connections")]


def test_who_may_not_use_a_virtual_host_learns_nothing_of_its_queues(given: ManagementApi) -> None:
    given.put("users/theirs", {"password": "of mine", "tags": "monitoring"})
    with ManagementApi(given.base_url, access=Access("theirs", "of mine")) as theirs:
        assert not lists_queues(theirs, "given")
        assert lists_queues(theirs, "gone")
        given.put("permissions/given/theirs", ALL)
        assert lists_queues(theirs, "given")


@pytest.mark.parametrize("kept", ["queue", "exchange", "policy", "binding"])
def test_a_given_virtual_host_that_has_something_is_refused(
    cluster: LocalCluster, tmp_path: Path, given: ManagementApi, kept: str
) -> None:
    if kept == "queue":
        given.declare_queue("given", "orders")
    elif kept == "exchange":
        given.declare_exchange("given", "orders")
    elif kept == "policy":
        given.set_policy("given", "orders", {"max-length": 5})
    else:
        given.post("bindings/given/e/amq.topic/e/amq.fanout", {"routing_key": "orders", "arguments": {}})
    file = written(cluster, tmp_path, besides="virtual_host: given\n")
    with pytest.raises(WrongClusterError, match=kept):
        Attachment(load(file))


def test_a_given_virtual_host_is_refused_where_a_broker_reports_no_connection(
    cluster: LocalCluster, tmp_path: Path, given: ManagementApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would see who is connected to it there."""

    def await_told() -> None:
        wait_until(given.silent_nodes, timeout_s=30, what="all nodes to tell", until=lambda names: not names)

    await_told()
    monkeypatch.setattr(attaching, "REPORTED_WITHIN_S", 3.0)
    assert cluster.run_tool("b1", "rabbitmqctl", "eval", END).strip() == "true"
    file = written(cluster, tmp_path, besides="virtual_host: given\n")
    try:
        with pytest.raises(WrongClusterError, match=r"b1@localhost .*given"):
            Attachment(load(file))
    finally:
        await_whole(cluster)
        await_told()
    Attachment(load(file)).close()


def test_only_what_the_run_has_declared_goes_out_of_a_given_virtual_host(
    cluster: LocalCluster, tmp_path: Path, given: ManagementApi
) -> None:
    file = written(cluster, tmp_path, besides="virtual_host: given\n")
    with pytest.warns(UserWarning, match="queue given orders"), closing(Attachment(load(file))) as attachment:
        formed = attachment.form(TOPOLOGY)
        ours = formed.api("a1")
        assert isinstance(ours, GivenVhostApi)
        ours.create_vhost("given")
        ours.declare_queue("given", "q0")
        ours.declare_exchange("given", "x0")
        ours.set_policy("given", "p0", {"max-length": 5})
        given.declare_queue("given", "orders")
        given.set_policy("given", "theirs", {"max-length": 5}, pattern="orders")
        formed.api("b1").delete_vhost("given")
        assert ours.kept_in("given", timeout_s=5) == ["queue orders", "policy theirs"]
        formed.close()


def test_what_a_killed_run_has_left_is_removed_and_what_others_have_made_stays(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, api = written(cluster, tmp_path), cluster.api("a1")
    api.create_vhost("rabbitmq-resilience")  # of whoever likes the name
    with OwnVhostApi(api.base_url, access=Access(), made=Made()) as of_a_run:
        of_a_run.create_vhost("20261125T095000Z-a-node-dies")
    with closing(Attachment(load(file))):
        assert heal([str(file)]) == 1
        assert "of this user" in capsys.readouterr().err
        assert len(marked_vhosts(api)) == 2
    assert heal([str(file)]) == 0
    removed = "removed the virtual host 20261125T095000Z-a-node-dies, which a run has left\n"
    assert capsys.readouterr().out == removed
    assert sorted(api.vhosts()) == ["/", "rabbitmq-resilience"]
    api.delete_vhost("rabbitmq-resilience")


def test_a_run_of_another_user_is_not_healed_beneath(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(cluster, tmp_path)
    with closing(Attachment(load(file))):
        as_another_user(tmp_path, monkeypatch)
        assert heal([str(file)]) == 1
    assert "another run" in capsys.readouterr().err


def test_no_scenario_begins_on_a_cluster_that_is_not_whole(cluster: LocalCluster, tmp_path: Path) -> None:
    """Each is asked for anew: the one before may have left it so."""
    known = load(written(cluster, tmp_path))
    with closing(Attachment(known)) as attachment:
        attachment.form(TOPOLOGY).close()
        cluster.kill("c1")
        try:
            wait_until(
                lambda: len(cluster.api("a1").running_nodes()) == 2, timeout_s=30, what="the others to know of it"
            )
            with pytest.raises(WrongClusterError, match="c1@localhost"):
                attachment.form(TOPOLOGY)
        finally:
            cluster.start("c1")
        await_whole(cluster)
        attachment.form(TOPOLOGY).close()
        journal = Journal(journal_file(known.stated.cluster), nodes=[node.name for node in known.stated.nodes])
        journal.begun("kill", "c1@localhost", heals_by_itself_s=9)
        with pytest.raises(ClusterError, match="kill at c1@localhost"):
            attachment.form(TOPOLOGY)
