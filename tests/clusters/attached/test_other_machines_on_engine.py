"""Machines of other kinds and in other numbers: sudo, systemd, iptables alone, brokers that speak TLS only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_command import describe
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.tools.waiting import wait_until
from tests.clusters.attached.machines import DISK, USER, Machines, running_machines
from tests.clusters.attached.playing import played_and_proven

pytestmark = pytest.mark.engine

BY_SUDO = f"user: {USER}, sudo: true, cut: distribution, disk: {DISK}"


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACHINES_USER", "chaos")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with running_machines(2, tmp_path_factory.mktemp("two"), tls=True, systemd=True) as machines:
        for name in machines.names:
            machines.run(name, "mv /usr/sbin/nft /root/nft")
        yield machines


def whole(file: Path) -> None:
    wait_until(lambda: describe([str(file)]) == 0, timeout_s=180, what="the cluster to be whole", poll_s=2.0)


def test_two_machines_with_sudo_systemd_iptables_and_tls(
    two: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever frees a disk has to start the broker again, as its Raft log may have ended of it (3.10.8)."""
    file = two.cluster_file("ab", allow="{kill: 1, cut: 1, fill_disk: 1, stop: 1}", ssh_more=BY_SUDO)
    whole(file)
    said = capsys.readouterr().out
    assert f"rabbit@host2 by ssh {USER}@" in said
    assert "packets by iptables" in said
    schedule = [
        {"fault": "kill", "at_s": 2, "for_s": 6, "node": "b1"},
        {"fault": "partition", "at_s": 70, "for_s": 20, "between": ["zone:a", "zone:b"]},
        {"fault": "disk_full", "at_s": 150, "for_s": 40, "node": "a1"},
        {"fault": "stop", "when": {"after_step": {"step": 2, "wait_s": 5}}, "for_s": 10, "node": "a1"},
    ]
    played_and_proven(schedule, file, tmp_path, topology="two_nodes_two_zones")
    for name in two.names:
        assert two.ask(name, "systemctl is-active rabbitmq-server") == "active\n"
        assert "rabbitmq-resilience" not in two.ask(name, "systemctl list-units --all --no-legend --no-pager")


def test_only_the_port_between_brokers_is_cut_where_that_is_stated(two: Machines) -> None:
    file = two.cluster_file("ab", allow="{cut: 1}", ssh_more=BY_SUDO)
    whole(file)
    topology = topology_catalogue.load("two_nodes_two_zones")
    knock = (
        f"timeout 3 bash -c 'exec 3<> /dev/tcp/{two.address('host1')}/PORT' 2> /dev/null && echo open || echo closed"
    )

    def port(number: int) -> str:
        return two.ask("host2", knock.replace("PORT", str(number))).strip()

    with (
        closing(Attachment(load(file))) as attachment,
        closing(attachment.form(topology, topology.links)) as formed,
    ):
        assert (port(5671), port(25672)) == ("open", "open")
        cluster = formed.lasting(30)
        cluster.links.cut(topology.links)
        assert (port(22), port(25672)) == ("open", "closed")
        assert "--dport 25672 -j DROP" in two.ask("host1", "iptables -S rabbitmq_resilience")
        cluster.links.restore(topology.links)
        assert port(25672) == "open"
        assert "rabbitmq_resilience" not in two.ask("host1", "iptables -S")


@contextmanager
def described(count: int, folder: Path, zones: str, allow: str) -> Iterator[Path]:
    with running_machines(count, folder) as machines:
        file = machines.cluster_file(zones, allow=allow)
        whole(file)
        yield file


def test_one_machine(tmp_path: Path) -> None:
    schedule = [
        {"fault": "kill", "at_s": 2, "for_s": 6, "node": "a1"},
        {"fault": "alarm", "at_s": 70, "for_s": 20, "node": "a1", "resource": "disk"},
    ]
    with described(1, tmp_path, "a", "{kill: 1, alarm: 1}") as file:
        played_and_proven(schedule, file, tmp_path, topology="one_node")


def test_five_machines(tmp_path: Path) -> None:
    schedule = [
        {"fault": "kill", "at_s": 2, "for_s": 6, "node": "zone:b"},
        {"fault": "partition", "at_s": 90, "for_s": 20, "between": ["zone:a", "rest"]},
    ]
    with described(5, tmp_path, "aabbc", "{kill: 2, cut: 2}") as file:
        played_and_proven(schedule, file, tmp_path, topology="five_nodes_three_zones")
