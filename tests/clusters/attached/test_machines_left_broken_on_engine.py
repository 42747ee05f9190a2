"""What becomes of faults on machines that are not ours when nobody is left to heal them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_command import heal
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.tools.locations import IMPORTED_FROM
from rabbitmq_resilience.tools.waiting import wait_until
from tests.clusters.attached import acts
from tests.clusters.attached.acts import KINDS, TOPOLOGY
from tests.clusters.attached.machines import Machines
from tests.clusters.attached.playing import unhealed

pytestmark = pytest.mark.engine

HEALED_AT_ONCE = ("pause", "cut", "fill_disk", "memory_alarm")


def seen(look: Callable[[], bool], *, timeout_s: float, what: str) -> None:
    """A look at a machine costs it something."""
    wait_until(look, timeout_s=timeout_s, what=what, poll_s=1.0)


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


@pytest.mark.parametrize("kind", KINDS)
def test_what_no_one_heals_heals_by_itself(kind: str, file: Path, machines: Machines) -> None:
    """pytest is killed in the middle of it."""
    is_on, lasts_s = KINDS[kind].is_on, KINDS[kind].lasts_s
    assert not is_on(machines)
    with left_broken(file, kind, for_s=lasts_s):
        seen(lambda: is_on(machines), timeout_s=lasts_s, what=f"{kind} to be in effect")
    assert unhealed(file)
    with pytest.raises(ClusterError):
        Attachment(load(file))
    seen(lambda: not is_on(machines), timeout_s=lasts_s + 60, what="the machines to heal themselves")
    seen(lambda: not machines.ask("host2", "ls /run/rabbitmq-resilience").split(), timeout_s=20, what="no traces")
    assert heal([str(file)]) == 0
    assert unhealed(file) == []


@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("kind", HEALED_AT_ONCE)
def test_heal_does_not_wait_for_that(
    kind: str, file: Path, machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    is_on = KINDS[kind].is_on
    with left_broken(file, kind, for_s=600):
        seen(lambda: is_on(machines), timeout_s=40, what=f"{kind} to be in effect")
    assert heal([str(file)]) == 0
    assert "rabbit@host2: healed rabbit@host2:" in capsys.readouterr().out
    seen(lambda: not is_on(machines), timeout_s=20, what="the machines to be healed")
    assert machines.ask("host2", "ps -eo args").count("rabbitmq-resilience") == 0, "watchdogs are gone"


@pytest.mark.parametrize("kind", ["memory_alarm", "drain"])
def test_what_has_lost_its_watchdog_is_not_said_to_be_healed(
    kind: str, file: Path, machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    is_on = KINDS[kind].is_on
    with left_broken(file, kind, for_s=600):
        seen(lambda: is_on(machines), timeout_s=40, what=f"{kind} to be in effect")
    undo = machines.ask("host2", "cat /run/rabbitmq-resilience/*/heal")
    machines.ask("host2", "kill -KILL -- -$(cat /run/rabbitmq-resilience/*/pid); rm -r /run/rabbitmq-resilience/*")
    try:
        assert heal([str(file)]) == 1
        assert "rabbit@host2" in capsys.readouterr().err
        assert is_on(machines)
    finally:
        machines.ask("host2", undo)
    assert heal([str(file)]) == 0
    assert unhealed(file) == []
