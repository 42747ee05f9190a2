"""Which process of a machine is the broker's, and what becomes of it: processes of this machine in the place of
brokers, by the very scripts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from rabbitmq_resilience.extensions.attached import foreign_broker as brokers
from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.commanded import OurMachine
from rabbitmq_resilience.extensions.attached.foreign_broker import RemoteBroker
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.offers import BrokerService
from rabbitmq_resilience.tools.waiting import wait_until
from tests.messages import Messages

pytestmark = pytest.mark.core

NODE = "rabbit@h1"
PIDS = {r"\b\d{2,}\b": "PID"}
#: What an Erlang machine that boots a broker has on its command line.
BOOTS = ("-noinput", "-s", "rabbit", "boot")

SLEEPS = "import time; time.sleep(120)"


@dataclass(frozen=True)
class ShowsSome(OurMachine):
    """This machine, of which scripts that look for brokers see the processes in ``proc`` only."""

    proc: Path

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        script, *arguments_ = (self._seeing(text) for text in (script, *arguments))
        return super().run(script, *arguments_, timeout_s=timeout_s)

    def _seeing(self, text: str) -> str:
        looks = "find_broker" in text or "PPid:" in text
        return text.replace("/proc/", f"{self.proc}/") if looks else text


@dataclass
class Place:
    """Of all processes of this machine ``proc`` shows those that a test has started. ``programs``: first in PATH."""

    folder: Path
    proc: Path
    machine: OurMachine
    stack: ExitStack
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def programs(self) -> Path:
        return self.folder / "bin"

    def runs(self, *arguments: str, environ: Mapping[str, str] | None = None) -> int:
        """The number of a process that looks like a broker's."""
        sleeps = [sys.executable, "-c", SLEEPS, *BOOTS, *arguments]
        process = self.stack.enter_context(subprocess.Popen(sleeps, env={**(environ or {})}))
        self.stack.callback(process.kill)
        self.running[process.pid] = process
        (self.proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        return process.pid

    def lives(self, pid: int) -> bool:
        return self.running[pid].poll() is None

    def program(self, name: str, text: str) -> None:
        self.programs.mkdir(exist_ok=True)
        (self.programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.programs / name).chmod(0o755)

    def broker(self, *, start: str = "", stop: str = "false", node: str = NODE) -> RemoteBroker:
        return RemoteBroker(self.machine, BrokerService(start=start or self.starts(), stop=stop), node=node, key="h1")

    def starts(self) -> str:
        """A command, by which the node has a process. It is part of a script that looks, see ``ShowsSome``."""
        arguments = " ".join((*BOOTS, "-sname", NODE))
        return (
            f"setsid {sys.executable} -c '{SLEEPS}' {arguments} > /dev/null 2>&1 &\n"
            f'ln -s "/proc""/$!" "{self.proc}/$!"; echo "$!" >> {self.folder}/started'
        )

    @property
    def started(self) -> list[int]:
        path = self.folder / "started"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    proc = tmp_path / "shown"
    proc.mkdir()
    monkeypatch.setattr(brokers, "ENDED_WITHIN_S", 5.0)
    monkeypatch.setattr(brokers, "BACK_WITHIN_S", 3.0)
    monkeypatch.setattr(brokers, "STARTED_WITHIN_S", 3)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with ExitStack() as stack:
        found = Place(tmp_path, proc, ShowsSome(str(tmp_path / "state"), proc), stack)
        yield found
        for key in watchdog.armed(found.machine):
            os.kill(int((tmp_path / "state" / key / "pid").read_text()), 9)
        for pid in found.started:
            os.kill(pid, 9)


def test_another_nodes_broker_is_never_taken_for_ours(place: Place, message: Messages) -> None:
    ours, theirs = place.runs("-sname", NODE), place.runs("-sname", "other@h1")
    broker = place.broker()
    broker.kill(for_s=60)
    assert not place.lives(ours)
    assert broker.state() == "gone"
    with message.of(MachineError):
        broker.kill(for_s=60)
    broker.give_back()
    found = broker.process()
    assert found is not None
    assert [found.pid] == place.started
    assert place.lives(theirs)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, and unshare of util-linux")
def test_a_broker_in_a_container_on_the_machine_is_another_machines(place: Place) -> None:
    """As the default start has it, it tells no name."""
    (place.proc / "self").symlink_to("/proc/self")
    with subprocess.Popen(["unshare", "--pid", "--fork", sys.executable, "-c", SLEEPS, *BOOTS]) as outer:
        try:
            inside = psutil.Process(outer.pid)
            wait_until(inside.children, timeout_s=30, what="the process in the namespace")
            (pid,) = (child.pid for child in inside.children())
            (place.proc / str(pid)).symlink_to(f"/proc/{pid}")
            wait_until(lambda: b"boot" in Path(f"/proc/{pid}/cmdline").read_bytes(), timeout_s=30, what="its arguments")
            assert place.broker().process() is None
            ours = place.runs()
            found = place.broker().process()
            assert found is not None
            assert found.pid == ours
            os.kill(pid, signal.SIGKILL)
        finally:
            outer.kill()


def test_a_watchdog_starts_ours_where_another_broker_runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "MARGIN_S", 0.0)
    place.runs("-sname", NODE)
    place.runs("-name", "other@h1")
    place.broker().kill(for_s=1)
    wait_until(lambda: watchdog.armed(place.machine) == [], timeout_s=15, what="it to be healed")
    assert len(place.started) == 1


@pytest.mark.parametrize("name", [NODE, "rabbit"])
def test_a_name_may_be_reported_by_the_environment(place: Place, name: str) -> None:
    place.runs(environ={"RABBITMQ_NODENAME": "other@h1"})
    ours = place.runs(environ={"RABBITMQ_NODENAME": name})
    found = place.broker().process()
    assert found is not None
    assert found.pid == ours


def test_one_that_shows_no_name_is_ours_only_where_there_is_no_other_that_may_be(
    place: Place, message: Messages
) -> None:
    ours = place.runs()
    found = place.broker().process()
    assert found is not None
    assert found.pid == ours
    other = place.runs("-sname", NODE)
    with message.of(MachineError, hide=PIDS) as told:
        place.broker().process()
    assert str(other) in str(told.value)


def test_a_signal_is_for_the_process_that_was_found(
    place: Place, message: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one may have its number by then."""
    pid = place.runs("-sname", NODE)
    broker = place.broker()
    found = broker.process()
    assert found is not None
    other = brokers.MachineProcess(found.pid, found.started + 1, found.state)
    monkeypatch.setattr(broker, "process", lambda: other)
    with message.of(MachineError, hide=PIDS) as told:
        broker.kill(for_s=60)
    assert str(pid) in str(told.value)
    assert place.lives(pid)


@pytest.mark.attached
def test_a_stop_that_outlives_our_patience_is_not_healed_until_the_broker_is_back(
    place: Place, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    """It was told to end, and is about to."""
    monkeypatch.setattr(watchdog, "DONE_WITHIN_S", 1.0)
    monkeypatch.setattr(watchdog, "MARGIN_S", 0.0)
    pid = place.runs("-sname", NODE)
    place.program("rabbitmqctl", "echo false")
    broker = place.broker(stop=f"setsid sh -c 'sleep 4; kill {pid}' & sleep 60")
    with message.of(MachineError):
        broker.stop(for_s=1)
    with message.of(MachineError, hide=PIDS) as told:
        broker.give_back()
    assert str(pid) in str(told.value)
    wait_until(lambda: place.started, timeout_s=15, what="its watchdog to start it")
    broker.give_back()
    assert broker.state() == "running"
    assert len(place.started) == 1


def test_a_stop_that_fails_leaves_the_broker_and_is_healed_where_it_says_that_it_runs(place: Place) -> None:
    place.runs("-sname", NODE)
    place.program("rabbitmqctl", "echo true")
    broker = place.broker(stop="exit 3")
    with pytest.raises(MachineError):
        broker.stop(for_s=60)
    broker.give_back()
    assert place.started == []


@pytest.mark.attached
def test_what_is_not_started_is_not_healed_and_is_tried_again(place: Place, message: Messages) -> None:
    place.runs("-sname", NODE)
    broker = place.broker(start="true")
    broker.kill(for_s=60)
    with message.of(MachineError):
        broker.give_back()
    assert watchdog.armed(place.machine) == ["h1:broker"]


def test_where_no_one_watches_any_more_it_is_started_all_the_same(place: Place) -> None:
    place.runs("-sname", NODE)
    broker = place.broker()
    broker.kill(for_s=60)
    folder = Path(place.machine.state) / "h1:broker"
    os.kill(int((folder / "pid").read_text()), 9)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    broker.give_back()
    assert len(place.started) == 1


def test_one_that_was_suspended_goes_on(place: Place) -> None:
    place.runs("-sname", NODE)
    broker = place.broker()
    broker.pause(for_s=60)
    wait_until(lambda: broker.state() == "suspended", timeout_s=30, what="it to be suspended")
    broker.give_back()
    assert broker.state() == "running"
    assert place.started == []


@pytest.mark.parametrize("signal_sent", [signal.SIGSTOP, signal.SIGKILL])
def test_what_a_run_has_left_of_which_nothing_else_is_known_is_given_back(place: Place, signal_sent: int) -> None:
    os.kill(place.runs("-sname", NODE), signal_sent)
    broker = place.broker()
    wait_until(lambda: broker.state() != "running", timeout_s=30, what="it to be taken")
    broker.give_back()
    assert broker.state() == "running"
    assert len(place.started) == (signal_sent == signal.SIGKILL)


def test_only_the_process_that_says_so_is_killed_for_its_metadata(place: Place) -> None:
    ours, theirs = place.runs("-sname", NODE), place.runs("-sname", "other@h1")
    for told, dead in (("false", False), (str(theirs), False), (str(ours), True)):
        place.program("rabbitmqctl", f"echo {told}")
        place.machine.run(place.broker().killed_where("true"))
        assert place.lives(theirs)
        assert place.lives(ours) != dead


@pytest.mark.parametrize(
    ("unit", "told"),
    [
        ("echo loaded MAIN", []),
        ("echo not-found 0", ["LoadState=not-found", "broker: {unit: NAME}"]),
        ("echo loaded 0", ["is 0", "is PID"]),
        ("echo loaded OTHER", ["is OTHER", "is PID"]),
    ],
)
def test_a_unit_must_run_the_broker(place: Place, unit: str, told: list[str], message: Messages) -> None:
    """systemd is the first process of few machines on which this is developed."""
    pid, other = place.runs("-sname", NODE), place.runs("-sname", "other@h1")
    (place.proc / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    unit = unit.replace("MAIN", str(os.getpid())).replace("OTHER", str(other))
    place.program("systemctl", f'set -- "$3" $({unit})\n[ "$1" = LoadState ] && echo "$2" || echo "$3"')
    found = RemoteBroker(place.machine, BrokerService(unit="rabbitmq"), node=NODE, key="h1").lacking()
    assert len(found) == bool(told)
    for text in found:
        assert all(each.replace("OTHER", str(other)).replace("PID", str(pid)) in text for each in told)
        message(text, hide={rf"\b{pid}\b": "PID", rf"\b{other}\b": "OTHER"})


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("true", None),
        ("MODE=quick true", None),
        ("no-such-program --now", "no-such-program"),
        ("if true", "if true"),
    ],
)
def test_of_a_command_is_known_what_can_be_known(place: Place, start: str, told: str | None, message: Messages) -> None:
    place.runs("-sname", NODE)
    found = place.broker(start=start).lacking()
    assert len(found) == (told is not None)
    for text in found:
        assert text.startswith("start: ")
        assert text.endswith(str(told))
        message(text)
