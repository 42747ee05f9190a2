"""Faults in a real Kubernetes on brokers in pods, and what becomes of them when nobody is left to heal them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rabbitmq_resilience.command import main as command
from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_command import describe, heal
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.history.events import FaultEvent
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.errors import WrongClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.tools.locations import IMPORTED_FROM
from rabbitmq_resilience.tools.waiting import wait_until
from tests.clusters.attached.played_on_pods import await_whole, played, untrue
from tests.clusters.attached.pods import BrokersInPods, brokers_in_pods

pytestmark = pytest.mark.kubernetes

ALLOWED = "{kill: 1, stop: 1, pause: 1, cut: 1, refuse: 1, lose_packets: 2}"

#: Cuts c1 off and suspends the broker of b1, then waits to be killed. The watchdogs have no margin.
_LEAVES_IT_BROKEN = """
import sys, time
from pathlib import Path
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_file import load
watchdog.MARGIN_S = 0.0
topology = topology_catalogue.load("three_nodes_three_zones")
links = [link for link in topology.links if "c1" in link]
attachment = Attachment(load(Path(sys.argv[1])))
cluster = attachment.form(topology, links).lasting(float(sys.argv[2]))
cluster.links.cut(links)
cluster.pause("b1")
print("broken", flush=True)
time.sleep(600)
"""


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


def test_containers_are_killed_paused_and_cut_off(pods: BrokersInPods, tmp_path: Path) -> None:
    file = pods.cluster_file("containers", allow=ALLOWED)
    schedule = [
        {"fault": "kill", "at_s": 2, "for_s": 10, "node": "leader:q1"},
        {"fault": "partition", "at_s": 50, "for_s": 20, "between": ["zone:c", "rest"]},
        {"fault": "netem", "at_s": 100, "for_s": 20, "links": "zone:a <-> zone:b", "loss_percent": 5, "by": "iptables"},
        {"fault": "pause", "at_s": 140, "for_s": 3, "node": "b1"},
    ]
    result = played(file, tmp_path, schedule)
    assert untrue(result, len(schedule)) == {}
    assert result.verdict == "VALID"
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and b"an-example-of-a-password" in path.read_bytes()]
    assert kept == []


def test_pods_are_deleted_with_and_without_their_grace(pods: BrokersInPods, tmp_path: Path) -> None:
    file = pods.cluster_file("pods", allow=ALLOWED, kill="pod", stop="pod")
    schedule = [
        {"fault": "kill", "at_s": 2, "for_s": 20, "node": "leader:q1"},
        {"fault": "stop", "at_s": 70, "for_s": 20, "node": "a1"},
    ]
    result = played(file, tmp_path, schedule)
    assert untrue(result, len(schedule)) == {}
    assert result.verdict == "VALID"


def broken_by_one_who_is_killed(file: Path, for_s: float) -> None:
    command = [sys.executable, "-c", _LEAVES_IT_BROKEN, str(file), f"{for_s:g}"]
    with subprocess.Popen(command, cwd=IMPORTED_FROM, stdout=subprocess.PIPE, text=True) as broken:
        assert broken.stdout is not None
        assert broken.stdout.readline() == "broken\n"
        os.kill(broken.pid, signal.SIGKILL)


def test_what_no_one_heals_heals_by_itself(pods: BrokersInPods) -> None:
    file = pods.cluster_file("alone", allow=ALLOWED)
    broken_by_one_who_is_killed(file, 20)
    assert describe([str(file)]) == 1, "a broker does not answer"
    await_whole(file)
    assert heal([str(file)]) == 0


def test_heal_does_not_wait_for_that(pods: BrokersInPods, capsys: pytest.CaptureFixture[str]) -> None:
    file = pods.cluster_file("healed", allow=ALLOWED)
    broken_by_one_who_is_killed(file, 600)
    assert heal([str(file)]) == 0
    said = capsys.readouterr().out
    assert said.count(":broker") == 1
    assert said.count(":packets") == 3
    await_whole(file)


def test_a_connection_between_brokers_is_reset_and_refused_for_a_moment(pods: BrokersInPods) -> None:
    topology = topology_catalogue.load("three_nodes_three_zones")
    pair = [Link("a1", "b1"), Link("b1", "a1")]
    file = pods.cluster_file("refused", allow=ALLOWED)
    with (
        closing(Attachment(load(file))) as attachment,
        closing(attachment.form(topology, topology.links)) as formed,
    ):
        links = formed.lasting(5).links
        assert not any(map(links.refuses, pair))
        links.refuse(pair)
        assert all(map(links.refuses, pair))
        assert not links.refuses(Link("a1", "c1"))
        links.accept(pair)
        wait_until(lambda: links.probe_ms(pair[0], timeout_s=5) is not None, timeout_s=20, what="an answer")


def test_a_network_policy_that_no_one_enforces_is_reported_and_deleted(pods: BrokersInPods, tmp_path: Path) -> None:
    """So it is where `make kubernetes` has brought up the cluster."""
    file = pods.cluster_file("policy", allow="{cut: 1}", cut_by="network_policy")
    schedule = [{"fault": "partition", "at_s": 2, "for_s": 20, "between": ["zone:c", "rest"]}]
    result = played(file, tmp_path, schedule)
    assert result.verdict == "UNKNOWN"
    states = [event.state for event in result.run.events() if isinstance(event, FaultEvent)]
    assert states == ["injecting", "injected", "unproven", "healing", "healed", "heal_proven"]
    assert pods.network_policies() == []


def test_a_first_cluster_file_is_found(
    pods: BrokersInPods, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["app=rabbit", "--namespace", pods.namespace, "--kubeconfig", str(pods.kubeconfig)]
    capsys.readouterr()
    assert command(["find-pods", *asked]) == 0
    written = tmp_path / "found.cluster.yaml"
    written.write_text(capsys.readouterr().out, encoding="utf-8")
    monkeypatch.setenv("RABBITMQ_USER", "chaos")
    monkeypatch.setenv("RABBITMQ_PASSWORD", "an-example-of-a-password")
    assert describe([str(written)]) == 0
    stated, by_hand = load(written).stated, load(pods.cluster_file("by-hand", allow="{}")).stated
    assert [(node.name, node.zone) for node in stated.nodes] == [(node.name, node.zone) for node in by_hand.nodes]
    assert (
        command(["find-pods", "app=nothing", "--namespace", pods.namespace, "--kubeconfig", str(pods.kubeconfig)]) == 1
    )


def test_addresses_may_be_ports_of_pods(pods: BrokersInPods, tmp_path: Path) -> None:
    file = pods.cluster_file("forwarded", allow="{kill: 1}", forwarded=True, kill="pod")
    result = played(file, tmp_path, [{"fault": "kill", "at_s": 2, "for_s": 20, "node": "b1"}])
    assert untrue(result, 1) == {}


def test_what_the_file_states_otherwise_is_reported_and_nothing_is_begun(pods: BrokersInPods, tmp_path: Path) -> None:
    file = pods.cluster_file("contrary", allow="{kill: 1}")
    moved = tmp_path / "moved.cluster.yaml"
    (tmp_path / "password").write_text("an-example-of-a-password\n", encoding="utf-8")
    moved.write_text(file.read_text(encoding="utf-8").replace("zone-2", "zone-9"), encoding="utf-8")
    with pytest.raises(WrongClusterError, match=r"zone-2.*zone-9"):
        Attachment(load(moved))
