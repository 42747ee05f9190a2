"""Faults by ssh on machines that are not ours, and what becomes of them when nobody is left to heal them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rabbitmq_resilience.clusters import catalogue
from rabbitmq_resilience.clusters.attached import watchdog
from rabbitmq_resilience.clusters.attached.attaching import Attachment
from rabbitmq_resilience.clusters.attached.cluster_file import load
from rabbitmq_resilience.clusters.attached.command import heal, told
from rabbitmq_resilience.clusters.attached.journal import Journal, journal_file
from rabbitmq_resilience.clusters.attached.lock import LockedError
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.clusters.pool import ClusterPool
from rabbitmq_resilience.clusters.spec import Link
from rabbitmq_resilience.play.run import Testbed, run_scenario
from rabbitmq_resilience.record.events import FaultEvent
from rabbitmq_resilience.scenarios.model import Invariants, Phases, Scenario
from rabbitmq_resilience.scenarios.on_clusters import fitted
from rabbitmq_resilience.tools.locations import IMPORTED_FROM
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workloads.spec import Workload
from tests.clusters.attached.machines import Machines, running_machines

pytestmark = pytest.mark.engine

ALLOWED = "{kill: 1, stop: 1, pause: 1, cut: 1, refuse: 1, lose_packets: 2}"
PROVEN = ["injecting", "injected", "proven", "healing", "healed", "heal_proven"]

#: Cuts host3 off and suspends the broker of host2, then waits to be killed. The watchdogs have no margin.
_LEAVES_IT_BROKEN = """
import sys, time
from pathlib import Path
from rabbitmq_resilience.clusters import catalogue
from rabbitmq_resilience.clusters.attached import watchdog
from rabbitmq_resilience.clusters.attached.attaching import Attachment
from rabbitmq_resilience.clusters.attached.cluster_file import load
watchdog.MARGIN_S = 0.0
topology = catalogue.load("three_nodes_three_zones")
links = [link for link in topology.links if "c1" in link]
attachment = Attachment(load(Path(sys.argv[1])))
cluster = attachment.form(topology, links).lasting(float(sys.argv[2]))
cluster.links.cut(links)
cluster.pause("b1")
print("broken", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with running_machines(3, tmp_path_factory.mktemp("machines")) as found:
        yield found


@pytest.fixture
def file(machines: Machines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MACHINES_USER", "chaos")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = machines.cluster_file("abc", allow=ALLOWED)
    wait_until(lambda: told([str(found)]) == 0, timeout_s=120, what="the cluster to be whole", poll_s=2.0)
    return found


def rules(machines: Machines, name: str) -> str:
    return machines.run(name, "nft list ruleset")


def is_suspended(machines: Machines, name: str) -> bool:
    return "T" in machines.run(name, "ps -o stat= -C beam.smp")


def test_brokers_are_killed_and_cut_off_and_nothing_of_others_is_touched(file: Path, tmp_path: Path) -> None:
    schedule = [
        {"fault": "kill", "at_s": 2, "for_s": 6, "node": "leader:q1"},
        {"fault": "partition", "at_s": 40, "for_s": 20, "between": ["zone:c", "rest"]},
        {"fault": "partition", "at_s": 41, "for_s": 4, "between": ["publisher:0", "a1"]},
        {"fault": "packet_loss", "at_s": 80, "for_s": 20, "links": "zone:a <-> zone:b", "percent": 5},
    ]
    scenario = fitted(
        Scenario.model_validate(
            {
                "title": "On machines of others",
                "topology": "three_nodes_three_zones",
                "workload": Workload(queues=2, publishers=2, consumers=2, rate_per_s=100),
                "phases": Phases(steady_s=2, recovery_s=60, settled_s=3),
                "schedule": schedule,
                "invariants": Invariants.model_validate({"no_loss": {}, "order": {}, "recovery": {"within_s": 60}}),
            }
        ),
        file,
    )
    with closing(Attachment(load(file))) as attachment, ClusterPool(attachment.form, keeps=False) as pool:
        with pytest.raises(LockedError, match="another run has this cluster"):
            Attachment(load(file))
        result = run_scenario(scenario, Testbed(pool, tmp_path, io.StringIO(), driver="attached"))
        pool.close()
        assert attachment.others_changed() == []
    states = defaultdict(list)
    for event in result.run.events():
        if isinstance(event, FaultEvent):
            states[event.step].append(event.state)
    untrue = {name: found for name, found in result.document["invariants"].items() if found["verdict"] != "VALID"}
    assert dict(states) == dict.fromkeys(range(len(schedule)), PROVEN), untrue
    assert result.verdict == "VALID", untrue
    assert Journal(journal_file(load(file).stated.cluster)).unhealed() == []
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and b"of these machines" in path.read_bytes()]
    assert kept == []


def test_no_more_nodes_than_allowed_whatever_draws_them(file: Path) -> None:
    topology = catalogue.load("three_nodes_three_zones")
    with closing(Attachment(load(file))) as attachment:
        with closing(attachment.form(topology, topology.links)) as formed:
            cluster = formed.lasting(5)
            cluster.pause("a1")
            with pytest.raises(ClusterError, match="at up to 2 nodes at once, and allow: has pause: 1"):
                cluster.pause("b1")
            cluster.resume("a1")
            cluster.pause("b1")
            assert cluster.process("b1") == "suspended"
        assert cluster.process("b1") == "running", "closing heals"


def test_a_connection_between_brokers_is_reset_and_refused_for_a_moment(file: Path, machines: Machines) -> None:
    topology = catalogue.load("three_nodes_three_zones")
    pair = [Link("a1", "b1"), Link("b1", "a1")]
    with (
        closing(Attachment(load(file))) as attachment,
        closing(attachment.form(topology, topology.links)) as formed,
    ):
        links = formed.lasting(5).links
        before = [links.connection(link) for link in pair]
        assert None not in before
        assert not any(map(links.refuses, pair))
        links.refuse(pair)
        assert all(map(links.refuses, pair))
        assert not links.refuses(Link("a1", "c1"))
        wait_until(lambda: links.connection(pair[0]) is None, timeout_s=10, what="the connection to end")
        links.accept(pair)
        assert links.probe_ms(pair[0], timeout_s=5) is not None
    assert [name for name in machines.names if "rabbitmq_resilience" in rules(machines, name)] == []


def test_what_nobody_heals_heals_by_itself(file: Path, machines: Machines) -> None:
    broken = subprocess.Popen(
        [sys.executable, "-c", _LEAVES_IT_BROKEN, str(file), "15"],
        cwd=IMPORTED_FROM,
        stdout=subprocess.PIPE,
        text=True,
    )
    with broken:
        assert broken.stdout is not None
        assert broken.stdout.readline() == "broken\n"
        assert "rabbitmq_resilience" in rules(machines, "host3")
        assert is_suspended(machines, "host2")
        os.kill(broken.pid, signal.SIGKILL)
    assert told([str(file)]) == 1  # a node does not answer
    with pytest.raises(ClusterError):
        Attachment(load(file))

    def healed() -> bool:
        packets = [name for name in machines.names if "rabbitmq_resilience" in rules(machines, name)]
        return not packets and not is_suspended(machines, "host2")

    wait_until(healed, timeout_s=40, what="the machines to heal themselves")
    wait_until(lambda: not machines.run("host2", "ls /run/rabbitmq-resilience").split(), timeout_s=10, what="no traces")
    assert heal([str(file)]) == 0
    assert Journal(journal_file(load(file).stated.cluster)).unhealed() == []


def test_heal_does_not_wait_for_that(file: Path, machines: Machines, capsys: pytest.CaptureFixture[str]) -> None:
    broken = subprocess.Popen(
        [sys.executable, "-c", _LEAVES_IT_BROKEN, str(file), "600"],
        cwd=IMPORTED_FROM,
        stdout=subprocess.PIPE,
        text=True,
    )
    with broken:
        assert broken.stdout is not None
        assert broken.stdout.readline() == "broken\n"
        os.kill(broken.pid, signal.SIGKILL)
    assert heal([str(file)]) == 0
    assert "rabbit@host2: healed rabbit-host2-broker" in capsys.readouterr().out
    assert "rabbitmq_resilience" not in rules(machines, "host3")
    assert not is_suspended(machines, "host2")
    assert machines.run("host2", "ps -eo args").count("rabbitmq-resilience/") == 0, "watchdogs are gone"


def test_what_we_cannot_reach_any_more_heals_by_itself(
    file: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our way to two machines is cut while they are broken."""
    monkeypatch.setattr(watchdog, "MARGIN_S", 2.0)
    topology = catalogue.load("three_nodes_three_zones")
    links = [link for link in topology.links if "c1" in link]
    with closing(Attachment(load(file))) as attachment:
        cluster = attachment.form(topology, topology.links).lasting(10)
        cluster.links.cut(links)
        cluster.pause("b1")
        for name in ("host2", "host3"):
            machines.part_from_us(name)
        assert is_suspended(machines, "host2")
        with pytest.raises(ClusterError):
            cluster.resume("b1")

        def healed() -> bool:
            return "rabbitmq_resilience " not in rules(machines, "host3") and not is_suspended(machines, "host2")

        wait_until(healed, timeout_s=40, what="the machines to heal themselves")
        for name in ("host2", "host3"):
            machines.let_us_in(name)
        wait_until(lambda: cluster.process("b1") == "running", timeout_s=30, what="a way to the machine")
        cluster.resume("b1")
        cluster.links.restore(links)
        cluster.close()
    assert Journal(journal_file(load(file).stated.cluster)).unhealed() == []
