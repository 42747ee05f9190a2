"""Faults by ssh on machines that are not ours."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached import identity
from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_command import describe
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.lock import LockedError
from rabbitmq_resilience.model.errors import ClusterError, WrongClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.waiting import wait_until
from tests.clusters.attached import acts
from tests.clusters.attached.acts import TOPOLOGY
from tests.clusters.attached.machines import Machines
from tests.clusters.attached.playing import played, played_and_proven, unhealed
from tests.statistics_ended import END

pytestmark = pytest.mark.engine


def test_brokers_are_killed_and_cut_off_and_nothing_of_others_is_touched(file: Path, tmp_path: Path) -> None:
    schedule = [
        {"fault": "kill", "at_s": 2, "for_s": 6, "node": "leader:q1"},
        {"fault": "partition", "at_s": 40, "for_s": 20, "between": ["zone:c", "rest"]},
        {"fault": "partition", "at_s": 41, "for_s": 4, "between": ["publisher:0", "a1"]},
        {"fault": "netem", "at_s": 80, "for_s": 20, "links": "zone:a <-> zone:b", "loss_percent": 5, "by": "iptables"},
    ]
    with (
        closing(Attachment(load(file))),
        pytest.raises(LockedError, match="another run"),
    ):
        Attachment(load(file))
    played_and_proven(schedule, file, tmp_path)
    assert unhealed(file) == []
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and b"of these machines" in path.read_bytes()]
    assert kept == []


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
    if "no sch_netem" not in machines.ask("host1", "[ -d /sys/module/sch_netem ] || echo no sch_netem"):
        pytest.skip("the kernel has netem")
    slow = machines.cluster_file("abc", allow="{delay: 3}", name="slow.yaml")
    missing = "the kernel has no sch_netem"
    assert describe([str(slow)]) == 1
    assert f"delay: rabbit@host1 (ssh root@{machines.address('host1')}): {missing}" in capsys.readouterr().err
    step = {"fault": "latency", "at_s": 2, "for_s": 10, "links": "zone:a <-> zone:b", "latency_ms": 50}
    with pytest.raises(ToolMissingError, match=rf"rabbit@host1 .*{missing}"):
        played([step], slow, tmp_path)
    assert list(tmp_path.rglob("events.jsonl")) == []


def test_a_broker_that_shows_nothing_of_itself_is_refused_until_it_is_started_again(
    file: Path, machines: Machines, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "REPORTED_WITHIN_S", 5.0)
    assert machines.ask("host2", f"rabbitmqctl -q eval '{END}'").strip() == "true"
    assert describe([str(file)]) == 1
    assert "rabbit@host2 does not" in capsys.readouterr().err
    with pytest.raises(WrongClusterError, match="started again"):
        Attachment(load(file))


def test_no_more_nodes_than_allowed_whatever_draws_them(file: Path) -> None:
    with closing(Attachment(load(file))) as attachment:
        with closing(attachment.form(TOPOLOGY, TOPOLOGY.links)) as formed:
            cluster = formed.lasting(5)
            cluster.pause("a1")
            with pytest.raises(ClusterError, match="pause: 1"):
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
        wait_until(lambda: links.connection(pair[0]) is None, timeout_s=30, what="the connection to end")
        links.accept(pair)
        assert links.probe_ms(pair[0], timeout_s=5) is not None
    assert [name for name in machines.names if "rabbitmq_resilience" in acts.rules(machines, name)] == []
