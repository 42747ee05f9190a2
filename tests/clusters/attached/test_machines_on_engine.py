"""Faults by ssh on machines that are not ours, and what becomes of them when nobody is left to heal them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.clusters.attached import watchdog
from rabbitmq_resilience.clusters.attached.attaching import Attachment
from rabbitmq_resilience.clusters.attached.cluster_file import load
from rabbitmq_resilience.clusters.attached.command import heal, told
from rabbitmq_resilience.clusters.attached.lock import LockedError
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.clusters.spec import Link
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.locations import IMPORTED_FROM
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until
from tests.clusters.attached import acts
from tests.clusters.attached.acts import KINDS, TOPOLOGY
from tests.clusters.attached.machines import Machines, running_machines
from tests.clusters.attached.playing import played, played_and_proven, unhealed

pytestmark = pytest.mark.engine

#: Each takes a minute or more, so CI tries two of them.
OF_EACH_KIND = [pytest.param(kind, marks=() if kind in ("pause", "cut") else pytest.mark.slow) for kind in KINDS]
HEALED_AT_ONCE = ("pause", "cut", "fill_disk", "memory_alarm")

ALLOWED = "{kill: 1, stop: 1, pause: 1, cut: 1, refuse: 1, lose_packets: 3, fill_disk: 1, alarm: 1, drain: 1}"

#: For the broker of a machine that is busy to be whole again.
WHOLE_WITHIN_S = 180.0


def seen(look: Callable[[], bool], *, timeout_s: float, what: str) -> None:
    """A look at a machine costs it something."""
    wait_until(look, timeout_s=timeout_s, what=what, poll_s=1.0)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with running_machines(3, tmp_path_factory.mktemp("machines")) as found:
        yield found


@pytest.fixture
def file(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MACHINES_USER", "chaos")
    found = machines.cluster_file("abc", allow=ALLOWED)

    def whole() -> bool:
        return told([str(found)]) == 0

    with suppress(WaitTimeout):
        wait_until(whole, timeout_s=WHOLE_WITHIN_S / 2, what="the cluster to be whole", poll_s=2.0)
        return found
    # One that was suspended for longer than net_ticktime may stay parted from its peers: they were back when it looked.
    machines.run("host2", "pkill -KILL beam.smp; sleep 1; rabbitmq-server -detached")
    wait_until(whole, timeout_s=WHOLE_WITHIN_S, what="the cluster to be whole", poll_s=2.0)
    return found


def test_brokers_are_killed_and_cut_off_and_nothing_of_others_is_touched(file: Path, tmp_path: Path) -> None:
    schedule = [
        {"fault": "kill", "at_s": 2, "for_s": 6, "node": "leader:q1"},
        {"fault": "partition", "at_s": 40, "for_s": 20, "between": ["zone:c", "rest"]},
        {"fault": "partition", "at_s": 41, "for_s": 4, "between": ["publisher:0", "a1"]},
        {"fault": "packet_loss", "at_s": 80, "for_s": 20, "links": "zone:a <-> zone:b", "percent": 5},
    ]
    with (
        closing(Attachment(load(file))),
        pytest.raises(LockedError, match="another run has this cluster"),
    ):
        Attachment(load(file))
    played_and_proven(schedule, file, tmp_path)
    assert unhealed(file) == []
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and b"of these machines" in path.read_bytes()]
    assert kept == []


@pytest.mark.slow
def test_a_disk_is_full_an_alarm_goes_off_and_a_node_is_drained(file: Path, tmp_path: Path) -> None:
    """Whoever frees a disk has to start the broker again, as its Raft log may have ended of it (3.10.8)."""
    after = [{"after_step": {"step": step, "wait_s": wait_s}} for step, wait_s in enumerate((5, 30, 30))]
    schedule: list[dict[str, Any]] = [
        {"fault": "disk_full", "at_s": 2, "for_s": 40, "node": "b1"},
        {"fault": "stop", "when": after[0], "for_s": 10, "node": "b1"},
        {"fault": "alarm", "when": after[1], "for_s": 20, "node": "a1", "resource": "memory"},
        {"fault": "stop", "when": after[2], "for_s": 10, "node": "c1", "drain": True},
    ]
    played_and_proven(schedule, file, tmp_path)
    assert unhealed(file) == []


@pytest.mark.usefixtures("file")
def test_latency_is_refused_before_anything_is_started_where_the_kernel_has_no_netem(
    machines: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "no sch_netem" not in machines.run("host1", "[ -d /sys/module/sch_netem ] || echo no sch_netem"):
        pytest.skip("the kernel has netem")
    slow = machines.cluster_file("abc", allow="{delay: 3}", name="slow.yaml")
    missing = "the kernel has no sch_netem"
    assert told([str(slow)]) == 1
    assert f"delay: rabbit@host1 (ssh root@{machines.address('host1')}): {missing}" in capsys.readouterr().err
    step = {"fault": "latency", "at_s": 2, "for_s": 10, "links": "zone:a <-> zone:b", "latency_ms": 50}
    with pytest.raises(ToolMissingError, match=rf"rabbit@host1 .*{missing}"):
        played([step], slow, tmp_path)
    assert list(tmp_path.rglob("events.jsonl")) == []


def test_no_more_nodes_than_allowed_whatever_draws_them(file: Path) -> None:
    with closing(Attachment(load(file))) as attachment:
        with closing(attachment.form(TOPOLOGY, TOPOLOGY.links)) as formed:
            cluster = formed.lasting(5)
            cluster.pause("a1")
            with pytest.raises(ClusterError, match="at up to 2 nodes at once, and allow: has pause: 1"):
                cluster.pause("b1")
            cluster.resume("a1")
            cluster.pause("b1")
            assert cluster.process("b1") == "suspended"
        assert cluster.process("b1") == "running", "closing heals"


def test_a_connection_between_brokers_is_reset_and_refused_for_a_moment(file: Path, machines: Machines) -> None:
    pair = [Link("a1", "b1"), Link("b1", "a1")]
    with (
        closing(Attachment(load(file))) as attachment,
        closing(attachment.form(TOPOLOGY, TOPOLOGY.links)) as formed,
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
    assert [name for name in machines.names if "rabbitmq_resilience" in acts.rules(machines, name)] == []


@contextmanager
def left_broken(file: Path, kind: str, *, for_s: float) -> Iterator[None]:
    """By a process of its own, which is killed then."""
    command = [sys.executable, "-m", acts.__name__, str(file), kind, str(for_s)]
    with subprocess.Popen(command, cwd=IMPORTED_FROM, stdout=subprocess.PIPE, text=True) as broken:
        assert broken.stdout is not None
        try:
            assert broken.stdout.readline() == "broken\n"
            yield
        finally:
            os.kill(broken.pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_what_nobody_heals_heals_by_itself(kind: str, file: Path, machines: Machines) -> None:
    """pytest is killed in the middle of it."""
    is_on, lasts_s = KINDS[kind].is_on, KINDS[kind].lasts_s
    assert not is_on(machines)
    with left_broken(file, kind, for_s=lasts_s):
        seen(lambda: is_on(machines), timeout_s=lasts_s, what=f"{kind} to be in effect")
    assert unhealed(file)
    with pytest.raises(ClusterError):
        Attachment(load(file))
    seen(lambda: not is_on(machines), timeout_s=lasts_s + 60, what="the machines to heal themselves")
    seen(lambda: not machines.run("host2", "ls /run/rabbitmq-resilience").split(), timeout_s=20, what="no traces")
    assert heal([str(file)]) == 0
    assert unhealed(file) == []


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_what_we_cannot_reach_any_more_heals_by_itself(
    kind: str, file: Path, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our way to two machines is cut while they are broken."""
    monkeypatch.setattr(watchdog, "MARGIN_S", 2.0)
    act = KINDS[kind]
    with closing(Attachment(load(file))) as attachment:
        cluster = attachment.form(TOPOLOGY, TOPOLOGY.links).lasting(act.lasts_s)
        act.do(cluster)
        seen(lambda: act.is_on(machines), timeout_s=act.lasts_s, what=f"{kind} to be in effect")
        for name in ("host2", "host3"):
            machines.part_from_us(name)
        try:
            with pytest.raises(ClusterError):
                act.undo(cluster)
            seen(lambda: not act.is_on(machines), timeout_s=act.lasts_s + 60, what="the machines to heal")
        finally:
            for name in ("host2", "host3"):
                machines.let_us_in(name)
        seen(lambda: cluster.process("b1") == "running", timeout_s=60, what="a way to the machine")
        act.undo(cluster)
        cluster.close()
    assert unhealed(file) == []


@pytest.mark.parametrize("kind", [one for one in OF_EACH_KIND if one.values[0] in HEALED_AT_ONCE])
def test_heal_does_not_wait_for_that(
    kind: str, file: Path, machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    is_on = KINDS[kind].is_on
    with left_broken(file, kind, for_s=600):
        seen(lambda: is_on(machines), timeout_s=40, what=f"{kind} to be in effect")
    assert heal([str(file)]) == 0
    assert "rabbit@host2: healed rabbit@host2-" in capsys.readouterr().out
    seen(lambda: not is_on(machines), timeout_s=20, what="the machines to be healed")
    assert machines.run("host2", "ps -eo args").count("rabbitmq-resilience") == 0, "watchdogs are gone"
