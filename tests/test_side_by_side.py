"""Scenarios in several processes at once: their order, who has the machine, what the session says of all of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from rabbitmq_resilience.plugin import side_by_side
from rabbitmq_resilience.plugin.session_pace import PlayedRun, SessionPace
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.tools.waiting import wait_until
from tests.play.test_interrupted_runs import PYTEST

STATED = """
version: 1
title: {title}
topology: three_nodes_three_zones
workload: {{queues: 2, publishers: 2, consumers: 2, rate_per_s: 100}}
phases: {{steady_s: 2, recovery_s: 60, settled_s: 2}}
schedule:
  - {{at_s: 1, for_s: {for_s}, fault: kill, node: b1}}
invariants: {{no_loss: {{}}{more}}}
"""


@dataclass
class Process:
    """As much of pytest's configuration as a process needs to find the others."""

    folder: Path

    @property
    def workerinput(self) -> dict[str, Any]:
        return {side_by_side.FOLDER: str(self.folder), side_by_side.COUNT: 2}


@dataclass
class Scenario:
    """One that is played until ``ends``, in a thread."""

    config: Any
    alone: bool
    began: threading.Event = field(default_factory=threading.Event)
    ends: threading.Event = field(default_factory=threading.Event)

    def play(self) -> threading.Thread:
        thread = threading.Thread(target=self._play, daemon=True)
        thread.start()
        return thread

    def _play(self) -> None:
        with side_by_side.turn(self.config, alone=self.alone):
            self.began.set()
            self.ends.wait()


def waits_for_a_lock(scenario: Scenario) -> bool:
    """Whether the kernel has it wait: nothing else can be seen of that."""
    waiting = [
        line for line in Path("/proc/locks").read_text().splitlines() if "->" in line and str(os.getpid()) in line
    ]
    return bool(waiting) and not scenario.began.is_set()


def test_what_takes_the_machine_is_played_alone(tmp_path: Path) -> None:
    config = Process(tmp_path)
    first, second = Scenario(config, alone=False), Scenario(config, alone=False)
    threads = [first.play(), second.play()]
    assert first.began.wait(5)
    assert second.began.wait(5), "side by side"
    greedy, last = Scenario(config, alone=True), Scenario(config, alone=False)
    threads += [greedy.play()]
    wait_until(lambda: waits_for_a_lock(greedy), timeout_s=5, what="it to wait for the machine")
    threads += [last.play()]
    first.ends.set()
    second.ends.set()
    assert greedy.began.wait(5)
    assert not last.began.is_set(), "it came later, and does not overtake"
    greedy.ends.set()
    assert last.began.wait(5)
    last.ends.set()
    for thread in threads:
        thread.join(5)


def test_one_process_waits_for_no_one() -> None:
    with side_by_side.turn(SimpleNamespace(), alone=True):  # type: ignore[arg-type]
        pass


def test_the_longest_come_first_and_files_stay_together() -> None:
    tests = [SimpleNamespace(nodeid=name, path=Path(name[0])) for name in ("a1", "a2", "b1", "b2", "c1")]
    expected = {"a1": 50.0, "a2": 60.0, "b1": 10.0, "b2": 90.0, "c1": 5.0}
    ordered = side_by_side.longest_first(tests, expected.__getitem__)  # type: ignore[arg-type]
    assert [test.nodeid for test in ordered] == ["b1", "b2", "a1", "a2", "c1"]


def test_several_that_are_played_at_once_are_counted_each() -> None:
    known = {name: PlayedRun(took_s=60.0, at_s=0.0) for name in "abcd"}
    pace = SessionPace(known, at_once=2)
    pace.begin(list("abcd"))
    assert [pace.progress("a"), pace.progress("b")] == [f"{n} of 4, about 2 min 00 s to go" for n in (1, 2)]
    pace.ended("b", 60.0)
    assert pace.progress("c") == "3 of 4, about 1 min 30 s to go"
    assert pace.progress("c") == "3 of 4, about 1 min 30 s to go", "a second run of the same"


def test_stress_takes_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "some.fault.yaml"
    file.write_text(STATED.format(title="Some", for_s=4, more=""))
    assert not fault_file.load(file).takes_the_machine
    file.write_text(file.read_text().replace("fault: kill, node: b1", "fault: stress, node: b1, cpu_workers: 2"))
    assert fault_file.load(file, driver="docker").takes_the_machine


@dataclass(frozen=True)
class Session:
    """``pytest -n 2`` in a process of its own, as from a terminal; everything of it lies in ``folder``."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def said(self) -> str:
        return (self.folder / "output").read_text()

    def verdicts(self) -> dict[str, str]:
        found = [json.loads(path.read_text()) for path in (self.folder / "runs").glob("*/verdict.json")]
        return {document["title"]: document["verdict"] for document in found}

    def await_faults(self) -> None:
        """Wait until both scenarios have killed their broker."""

        def killed() -> int:
            assert self.process.poll() is None, self.said
            logs = (self.folder / "runs").glob("*/events.jsonl")
            return sum('"state":"injected"' in log.read_text().replace(" ", "") for log in logs)

        wait_until(lambda: killed() == 2, timeout_s=180, what="both faults to be injected")

    def left(self) -> list[str]:
        """Return the processes that belong to it, and do not end with it."""
        found = []
        for process in psutil.process_iter():
            try:
                told = [*process.environ().values(), *process.cmdline()]
            except psutil.Error:
                continue
            if any(str(self.folder) in text for text in told) and process.pid not in (self.process.pid, os.getpid()):
                found.append(str(process))
        return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    return tmp_path


def started(folder: Path, *, for_s: float = 4, more: str = "") -> Session:
    for name in ("one", "two"):
        text = STATED.format(title=name.title(), for_s=for_s, more=more if name == "two" else "")
        (folder / f"{name}.fault.yaml").write_text(text)
    options = ["-n", "2", "-p", "rabbitmq_resilience.plugin", "-p", "no:cacheprovider", f"--rootdir={folder}"]
    options += [f"--resilience-runs-dir={folder / 'runs'}", f"--resilience-nights-dir={folder / 'nights'}"]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", PYTEST, *options, f"--junitxml={folder / 'junit.xml'}", "."],
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder / "tmp")},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Session(process, folder)


@pytest.fixture
def lasting(folder: Path) -> Iterator[Session]:
    """Two scenarios at once, whose faults go on."""
    session = started(folder, for_s=120)
    try:
        session.await_faults()
        yield session
    finally:
        session.process.kill()
        session.process.wait()


@pytest.mark.plays
def test_one_session_says_what_two_processes_play(folder: Path) -> None:
    session = started(folder, more=", uptime: {outage_s_max: 1}")
    assert session.process.wait(300) == pytest.ExitCode.TESTS_FAILED, session.said
    assert session.verdicts() == {"One": "VALID", "Two": "INVALID"}
    assert "1 of 2" in session.said
    assert "2 of 2" in session.said
    assert "2 scenarios: 1 VALID, 1 INVALID" in session.said
    (night,) = (folder / "nights").glob("*.jsonl")
    lines = [json.loads(line) for line in night.read_text().splitlines()]
    assert sorted(line["is"] for line in lines) == ["ended", "night", "played", "played", "tested", "tested"]
    assert len(lines[0]["planned"]) == 2
    junit = (folder / "junit.xml").read_text()
    assert 'name="verdict" value="VALID"' in junit
    assert 'name="verdict" value="INVALID"' in junit
    index = (folder / "runs" / "index.html").read_text()
    assert all(run.parent.name in index for run in (folder / "runs").glob("*/verdict.json"))


@pytest.mark.plays
def test_ctrl_c_ends_all_of_them(lasting: Session) -> None:
    os.killpg(lasting.process.pid, signal.SIGINT)
    assert lasting.process.wait(60) == pytest.ExitCode.INTERRUPTED
    wait_until(lasting.left, until=lambda left: not left, timeout_s=60, what="nothing to be left")
    assert lasting.verdicts() == {"One": "UNKNOWN", "Two": "UNKNOWN"}


@pytest.mark.plays
def test_a_process_that_is_killed_leaves_nothing_and_the_others_go_on(folder: Path) -> None:
    session = started(folder, for_s=20)
    session.await_faults()
    workers = [p for p in psutil.Process(session.process.pid).children() if "-u" in p.cmdline()]
    workers[0].kill()
    assert session.process.wait(300) == pytest.ExitCode.TESTS_FAILED, session.said
    wait_until(session.left, until=lambda left: not left, timeout_s=60, what="nothing to be left")
    assert list(session.verdicts().values()) == ["VALID"]
    assert "crashed while running" in session.said
