"""Watchdogs: when they heal, as they are told, and what becomes of them on a machine, which is this one."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.commanded import OurMachine
from rabbitmq_resilience.extensions.attached.machine import AbsentError, Machine, MachineError
from rabbitmq_resilience.tools.waiting import wait_until


class Shell:
    """A machine that notes what it is asked."""

    state = "/run/rabbitmq-resilience"

    def __init__(self) -> None:
        self.after_s = list[int]()

    def run(self, _script: str, folder: str, after_s: str, *_arguments: str) -> str:
        assert folder == "/run/rabbitmq-resilience/h1-broker"
        self.after_s.append(int(after_s))
        return ""


def test_what_takes_its_time_is_not_healed_before_it_is_done() -> None:
    shell = Shell()
    machine = cast(Machine, cast(Any, shell))
    with watchdog.doing(machine, "h1-broker", heal="start", for_s=5):
        assert shell.after_s == [5 + 120 + 30]
    assert shell.after_s == [155, 35], "from now on"


def test_where_it_fails_somebody_still_watches() -> None:
    shell = Shell()
    with (
        pytest.raises(RuntimeError),
        watchdog.doing(cast(Machine, cast(Any, shell)), "h1-broker", heal="start", for_s=5),
    ):
        raise RuntimeError
    assert shell.after_s == [155]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OurMachine:
    monkeypatch.setattr(watchdog, "MARGIN_S", 0.0)
    return OurMachine(str(tmp_path / "state"))


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def dog_of(machine: OurMachine, key: str) -> int:
    return int((Path(machine.state) / key / "pid").read_text())


@pytest.mark.attached
def test_one_whose_sleep_is_ended_goes_on(here: OurMachine, tmp_path: Path) -> None:
    watchdog.arm(here, "one", heal=f"touch {tmp_path}/healed", after_s=5)
    dog = dog_of(here, "one")

    def sleep() -> str:
        children = psutil.Process(dog).children()
        return next((str(child.pid) for child in children if child.name() == "sleep"), "")

    os.kill(int(wait_until(sleep, timeout_s=30, what="it to sleep", poll_s=0.02)), signal.SIGTERM)
    wait_until((tmp_path / "healed").exists, timeout_s=30, what="it to heal")


@pytest.mark.attached
def test_one_whose_folder_is_gone_ends(here: OurMachine) -> None:
    watchdog.arm(here, "one", heal="true", after_s=60)
    dog = dog_of(here, "one")
    shutil.rmtree(Path(here.state) / "one")
    wait_until(lambda: not lives(dog), timeout_s=30, what="it to end")


@pytest.mark.core
def test_whether_there_was_something_to_heal_is_reported(here: OurMachine) -> None:
    watchdog.arm(here, "one", heal="true", after_s=60)
    assert watchdog.heal(here, "one")
    assert not watchdog.heal(here, "one")


@pytest.mark.attached
def test_one_that_is_healing_while_another_takes_its_place_takes_nothing_of_it_away(
    here: OurMachine, tmp_path: Path
) -> None:
    watchdog.arm(here, "one", heal=f"touch {tmp_path}/healing; sleep 1", after_s=0)
    wait_until((tmp_path / "healing").exists, timeout_s=30, what="it to heal")
    old = dog_of(here, "one")
    watchdog.arm(here, "one", heal=f"touch {tmp_path}/healed", after_s=60)
    wait_until(lambda: not lives(old), timeout_s=30, what="the one before to end")
    assert watchdog.armed(here) == ["one"]
    assert watchdog.heal(here, "one")
    assert (tmp_path / "healed").exists()


@pytest.mark.attached
def test_one_that_is_healing_is_waited_for(here: OurMachine, tmp_path: Path) -> None:
    """Two at once would do each other's half, and the first to end would take the folder from under the other."""
    heal = f"echo begun >> {tmp_path}/healing; sleep 2; echo ended >> {tmp_path}/healing"
    watchdog.arm(here, "one", heal=heal, after_s=0)
    wait_until((tmp_path / "healing").exists, timeout_s=30, what="it to heal")
    assert not watchdog.heal(here, "one")
    assert (tmp_path / "healing").read_text().split() == ["begun", "ended"]
    assert watchdog.armed(here) == []


@pytest.mark.attached
def test_one_that_fails_to_heal_is_not_in_the_way_of_who_can(here: OurMachine, tmp_path: Path) -> None:
    fails = f"touch {tmp_path}/tried; sleep 1; [ -e {tmp_path}/can ]"
    watchdog.arm(here, "one", heal=fails, after_s=0)
    wait_until((tmp_path / "tried").exists, timeout_s=30, what="it to heal")
    with pytest.raises(MachineError):
        watchdog.heal(here, "one")
    (tmp_path / "can").touch()
    wait_until(lambda: watchdog.armed(here) == [], timeout_s=30, what="it to try again")


@pytest.mark.attached
def test_one_that_was_killed_as_it_was_healing_is_not_waited_for(here: OurMachine, tmp_path: Path) -> None:
    watchdog.arm(here, "one", heal=f"echo begun >> {tmp_path}/healing; sleep 1", after_s=0)
    wait_until((tmp_path / "healing").exists, timeout_s=30, what="it to heal")
    os.killpg(dog_of(here, "one"), signal.SIGKILL)
    assert watchdog.heal(here, "one")
    assert (tmp_path / "healing").read_text().split() == ["begun", "begun"]


@pytest.mark.core
def test_what_is_still_being_done_is_ended_before_it_is_healed(here: OurMachine, tmp_path: Path) -> None:
    """Otherwise it would be done afterwards."""
    failed = list[BaseException]()

    def slow() -> None:
        try:
            with watchdog.doing(here, "one", heal=f"touch {tmp_path}/healed", for_s=60) as do:
                do(f"(echo > {tmp_path}/begun; exec sleep 60) & echo $! > {tmp_path}/pid; wait")
        except BaseException as error:
            failed.append(error)

    doing = threading.Thread(target=slow)
    doing.start()
    wait_until(lambda: all((tmp_path / name).exists() for name in ("begun", "pid")), timeout_s=30, what="it to begin")
    assert watchdog.heal(here, "one")
    doing.join()
    assert failed
    wait_until(lambda: not lives(int((tmp_path / "pid").read_text())), timeout_s=30, what="it to be ended")
    assert watchdog.armed(here) == []


def test_where_there_is_no_machine_no_one_watches_and_nothing_is_healed() -> None:
    class Gone:
        state = "/tmp/state"  # noqa: S108 - of no machine

        def run(self, *_: Any, **__: Any) -> str:
            raise AbsentError("it is no more")

    gone = cast(Machine, cast(Any, Gone()))
    assert watchdog.armed(gone) == []
    with pytest.raises(AbsentError):
        watchdog.heal(gone, "one")
