"""Brokers that are taken away and given back by commands of those who run them: a cluster of processes of others."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_command import describe, heal
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.journal import Journal, journal_file
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.on_clusters import check, fitted
from rabbitmq_resilience.history.events import FaultEvent
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.locations import IMPORTED_FROM
from rabbitmq_resilience.tools.waiting import wait_until
from tests.clusters.attached.processes import TOPOLOGY, written
from tests.run_scenarios import run_validated
from tests.whole import assert_valid, await_whole

pytestmark = pytest.mark.attached

PROVEN = ["injecting", "injected", "proven", "healing", "healed", "heal_proven"]
SCENARIO = """\
version: 1
title: Taken by commands
topology: three_nodes_three_zones
workload: {queue_type: quorum, queues: 2, publishers: 2, consumers: 2, rate_per_s: 100}
phases: {steady_s: 2, recovery_s: 60}
schedule:
  - {at_s: 1, fault: kill, node: "leader:q1", for_s: 5}
  - {at_s: 40, fault: pause, node: c1, for_s: 1.5}
  - {at_s: 60, fault: partition, between: ["zone:c", rest], for_s: 20}
  - {at_s: 65, fault: partition, between: ["publisher:0", a1], for_s: 4}
invariants: {no_loss: {}, order: {}, recovery: {}}
"""

#: ``known``: a folder in which the one who runs the brokers keeps what is known of them, by name: the pid of its
#: process in ``pids``, which are to be started in ``wanted``, and who is to hear, or hears, nothing of whom.
WAY = """\
allow: {{kill: 1, pause: 1, stop: 1, cut: 1}}
offers:
  commands:
    process: 'cat "{known}/pids/$NODE" 2> /dev/null || true'
    kill:
      do: 'kill -KILL $(cat "{known}/pids/$NODE")'
      proof: '! test -e "{known}/pids/$NODE"'
      heal: 'touch "{known}/wanted/$NODE"'
    pause:
      do: 'kill -STOP $(cat "{known}/pids/$NODE")'
      proof: 'grep -q "^State:.T" /proc/$(cat "{known}/pids/$NODE")/status'
      heal: 'kill -CONT $(cat "{known}/pids/$NODE")'
    cut:
      do: 'touch "{known}/deaf/$NODE.$PEER"'
      proof: 'test -e "{known}/cut/$NODE.$PEER"'
      heal: 'rm -f "{known}/deaf/$NODE.$PEER"'
{more}"""

_LEAVES_IT_SUSPENDED = """
import sys, time
from pathlib import Path
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_file import load
watchdog.MARGIN_S = 0.0
attachment = Attachment(load(Path(sys.argv[1])))
attachment.form(topology_catalogue.load("three_nodes_three_zones"), ()).lasting(3).pause("b1")
print("suspended", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster.form(TOPOLOGY, proxied=TOPOLOGY.links) as formed:
        formed.api("a1").put("users/mine", {"password": "of mine", "tags": "administrator"})
        yield formed


@pytest.fixture
def known(cluster: LocalCluster, tmp_path: Path) -> Iterator[Path]:
    """Somebody runs the brokers."""
    await_whole(cluster)
    over = threading.Event()
    broken: list[Exception] = []
    for name in ("pids", "wanted", "deaf", "cut"):
        (tmp_path / name).mkdir()

    def keep() -> None:
        try:
            while not over.wait(0.1):
                look(cluster, tmp_path)
        except Exception as error:  # for the test to tell; it would end with this thread
            broken.append(error)

    look(cluster, tmp_path)
    keeping = threading.Thread(target=keep)
    keeping.start()
    yield tmp_path
    over.set()
    keeping.join()
    assert not broken


def look(cluster: LocalCluster, known: Path) -> None:
    """Do what is wanted, and write down what is so."""
    for node in TOPOLOGY.node_names:
        name = cluster.broker_name(node)
        pids, wanted = known / "pids" / name, known / "wanted" / name
        if wanted.exists():
            wanted.unlink()
            cluster.start(node)
        life = cluster.life(node)
        if life is None:
            pids.unlink(missing_ok=True)
        else:
            (known / "pid").write_text(life.removeprefix("process "))
            (known / "pid").replace(pids)
    for link in TOPOLOGY.links:
        name = f"{cluster.broker_name(link.target)}.{cluster.broker_name(link.source)}"
        deaf, cut = (known / "deaf" / name).exists(), known / "cut" / name
        if deaf and not cut.exists():
            cluster.links.cut([link])
            cut.touch()
        elif cut.exists() and not deaf:
            cluster.links.restore([link])
            cut.unlink()


def file_of(cluster: LocalCluster, known: Path, *, more: str = "") -> Path:
    return written(cluster, known, besides=WAY.format(known=known, more=more))


def test_brokers_are_killed_suspended_and_cut_off(
    cluster: LocalCluster, known: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_of(cluster, known)
    assert describe([str(file)]) == 0
    assert "pause: healed" in capsys.readouterr().out
    scenario = fitted(fault_file.parse(SCENARIO, driver="attached"), file)
    assert_proven(scenario, cluster, file, known)


def assert_proven(scenario: Scenario, cluster: LocalCluster, file: Path, known: Path) -> None:
    with closing(Attachment(load(file))) as attachment, ClusterPool(attachment.form, keeps=False) as pool:
        result = run_validated(scenario, RunContext(pool, known / "runs", io.StringIO(), driver="attached"))
        assert attachment.others_changed() == []
    states = defaultdict(list)
    for event in result.run.events():
        if isinstance(event, FaultEvent):
            states[event.step].append(event.state)
    assert dict(states) == dict.fromkeys(range(len(scenario.schedule)), PROVEN), result.document["invariants"]
    assert_valid(result, cluster)
    assert Journal(journal_file(load(file).stated.cluster)).unhealed() == []


def test_a_broker_that_comes_back_before_its_time_leaves_the_next_one_to_be_killed(
    cluster: LocalCluster, known: Path
) -> None:
    """One at once is allowed."""
    away = f"""\
      do: |
        kill -KILL $(cat "{known}/pids/$NODE")
        (sleep 3; touch "{known}/wanted/$NODE") > /dev/null 2>&1 &
      proof: '! test -e "{known}/pids/$NODE"'
      ends: itself
"""
    before, _, after = WAY.format(known=known, more="").partition("    kill:\n")
    pause = after[after.index("    pause:") :]
    file = written(cluster, known, besides=f"{before}    kill:\n{away}{pause}")
    steps = "schedule:\n" + "".join(
        f"  - {{at_s: {at_s}, fault: kill, node: {node}, for_s: 8}}\n" for at_s, node in ((1, "a1"), (40, "b1"))
    )
    text = f"{SCENARIO.partition('schedule:')[0]}{steps}invariants: {{no_loss: {{}}, recovery: {{}}}}\n"
    assert_proven(fitted(fault_file.parse(text, driver="attached"), file), cluster, file, known)


def test_what_no_one_heals_is_healed_from_this_machine(cluster: LocalCluster, known: Path) -> None:
    file = file_of(cluster, known)
    broken = subprocess.Popen(
        [sys.executable, "-c", _LEAVES_IT_SUSPENDED, str(file)], cwd=IMPORTED_FROM, stdout=subprocess.PIPE, text=True
    )
    with broken:
        assert broken.stdout is not None
        assert broken.stdout.readline() == "suspended\n"
        assert cluster.process("b1") == "suspended"
        os.kill(broken.pid, signal.SIGKILL)
    wait_until(lambda: cluster.process("b1") == "running", timeout_s=20, what="the command that heals")
    with pytest.raises(ClusterError, match="pause at b1@localhost"):
        Attachment(load(file))
    assert heal([str(file)]) == 0
    await_whole(cluster)
    with closing(Attachment(load(file))):
        pass


def test_what_is_not_offered_is_refused_with_what_would_offer_it(cluster: LocalCluster, known: Path) -> None:
    file = file_of(cluster, known)
    for fault in (
        "{at_s: 1, fault: stop, node: a1, for_s: 5}",
        "{at_s: 1, fault: disconnect, between: [a1, b1], for_s: 9}",
    ):
        text = SCENARIO.partition("schedule:")[0] + f"schedule: [{fault}]\ninvariants: {{no_loss: {{}}}}\n"
        scenario = fault_file.parse(text, driver="attached")
        with pytest.raises(FaultFileError, match=r"offers: .*ssh"):
            check(scenario, file, source="x")


def test_what_does_not_happen_is_reported_and_healed_all_the_same(cluster: LocalCluster, known: Path) -> None:
    more = "    stop: {do: 'true', proof: 'echo there it runs >&2; false', heal: 'touch WANTED/healed-$NODE'}\n"
    file = file_of(cluster, known, more=more.replace("WANTED", str(known)))
    with closing(Attachment(load(file))) as attachment, closing(attachment.form(TOPOLOGY, ())) as formed:
        with pytest.raises(MachineError, match=r"b1@localhost: .*the proof"):
            formed.lasting(3).stop("b1")
        formed.lasting(3).start("b1")
    assert (known / "healed-b1@localhost").exists()


def test_what_never_ends_says_so(cluster: LocalCluster, known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = file_of(cluster, known, more="    stop: {do: 'true', proof: 'true', ends: never}\n")
    assert describe([str(file)]) == 0
    assert "stop: does not end" in capsys.readouterr().out
    with closing(Attachment(load(file))) as attachment:
        formed = attachment.form(TOPOLOGY, ())
        formed.lasting(3).stop("b1")
        with pytest.raises(MachineError, match="b1@localhost is not given back"):
            formed.close()
    with pytest.raises(ClusterError, match="stop at b1@localhost"):
        Attachment(load(file))
    assert heal([str(file)]) == 0
