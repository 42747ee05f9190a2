"""The processes of an application: real programs that end, hang, are killed, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload import application_processes as module
from rabbitmq_resilience.workload.application_model import ApplicationProcess
from rabbitmq_resilience.workload.application_processes import ApplicationInstance, LocalProgram
from rabbitmq_resilience.workload.process_guard import ProcessGuard
from rabbitmq_resilience.workload.work_lines import WORK_VARIABLE, work_path
from rabbitmq_resilience.workload.worker import WorkloadError

pytestmark = pytest.mark.core  # they wait for real processes

#: Ignores SIGTERM, and starts a child that does too; both ids are written.
STUBBORN = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"])
print(os.getpid(), child.pid, flush=True)
child.wait()
"""


class Started:
    """A process of a program, and what is recorded of it."""

    def __init__(self, folder: Path, guard: ProcessGuard, code: str, **stated: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.log = folder / "web-0.log"
        process = ApplicationProcess(name="web", command=("{python}", "-c", code), folder=folder, **stated)
        self.instance = ApplicationInstance("web-0", process, {}, self.log, record=self._record, guard=guard)

    def _record(self, kind: str, **fields: Any) -> None:
        assert kind == "application"
        self.events.append(fields)

    @property
    def said(self) -> list[tuple[str, int]]:
        return [(event["event"], event["life"]) for event in self.events]

    def await_said(self, *said: tuple[str, int]) -> None:
        wait_until(lambda: self.said == [*said], timeout_s=60, what=f"{said}; there are {self.said}")

    def await_written(self, lines: int = 1) -> list[str]:
        """Return what the process wrote, once it has that many lines."""
        wait_until(lambda: len(self.lines) >= lines, timeout_s=60, what="the process to write")
        return self.lines

    @property
    def lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []


@pytest.fixture
def guard() -> Iterator[ProcessGuard]:
    with ProcessGuard() as guard:
        yield guard


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet counts."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in {"Z", "X"}


def await_gone(*pids: int) -> None:
    wait_until(lambda: all(map(is_gone, pids)), timeout_s=60, what=f"the end of {pids}")


def test_a_process_that_ends_by_itself_is_recorded_with_its_own_last_lines(
    tmp_path: Path, guard: ProcessGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second process writes nothing, so that nothing is said of its last lines; it is started again as well."""
    monkeypatch.setattr(module, "RESTART_AFTER_S", 0.01)
    code = "import pathlib, sys; first = pathlib.Path('first'); f = first.exists(); first.touch()\n"
    code += "f or print('\\n'.join(f'line {i}' for i in range(20)))\nsys.exit(0 if f else 7)"
    started = Started(tmp_path, guard, code, restarted=True)
    started.instance.start()
    wait_until(lambda: ("ended", 1) in started.said, timeout_s=60, what="the second end")
    started.instance.close()
    ends = [event for event in started.events if event["event"] == "ended"]
    assert [event["status"] for event in ends][:2] == [7, 0]
    assert ends[0]["detail"].splitlines() == [f"line {i}" for i in range(8, 20)]
    assert ends[1]["detail"] == ""


def test_what_a_process_has_started_ends_with_it(tmp_path: Path, guard: ProcessGuard) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    started = Started(tmp_path, guard, code)
    started.instance.start()
    started.await_said(("started", 0), ("ended", 0))
    await_gone(int(started.lines[0]))
    started.instance.close()


def test_a_process_is_killed_with_its_children_and_started_again(tmp_path: Path, guard: ProcessGuard) -> None:
    """At once, so that what is recorded of the first cannot be taken for the end of the second."""
    started = Started(tmp_path, guard, STUBBORN)
    started.instance.start()
    pids = list(map(int, started.await_written()[0].split()))
    assert started.instance.pid == pids[0]
    started.instance.kill()
    started.instance.start()
    await_gone(*pids)
    started.await_written(2)
    assert started.said == [("started", 0), ("killed", 0), ("started", 1)]
    started.instance.close()
    assert started.said == [("started", 0), ("killed", 0), ("started", 1)]
    assert started.instance.ended
    with pytest.raises(WorkloadError, match="web-0 does not run"):
        started.instance.kill()


def test_a_process_that_is_asked_ends_and_one_that_does_not_is_killed(tmp_path: Path, guard: ProcessGuard) -> None:
    """What a process says at its end is there when ``await_end`` returns."""
    # Where the tests run in the background of a shell, SIGINT is ignored by what they start.
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    polite = Started(tmp_path, guard, f"{heeds}; print(1, flush=True); signal.pause()", stop_signal="INT")
    polite.instance.start()
    polite.await_written()
    polite.instance.ask_to_end()
    assert polite.instance.await_end(timeout_s=60)
    assert polite.said == [("started", 0), ("stopped", 0)]
    (tmp_path / "web-0.log").unlink()
    stubborn = Started(tmp_path, guard, STUBBORN, restarted=True)
    stubborn.instance.start()
    pids = list(map(int, stubborn.await_written()[0].split()))
    stubborn.instance.ask_to_end()
    assert not stubborn.instance.await_end(timeout_s=0.2)
    assert stubborn.said == [("started", 0), ("hung", 0)]
    await_gone(*pids)


def test_a_program_that_cannot_be_run_is_said(tmp_path: Path, guard: ProcessGuard) -> None:
    process = ApplicationProcess(name="web", command=(str(tmp_path / "none"),))
    log = tmp_path / "log"
    instance = ApplicationInstance("web-0", process, {}, log, record=lambda *_, **__: None, guard=guard)
    with pytest.raises(WorkloadError, match="web-0 cannot be run"):
        instance.start()
    assert instance.ended


def test_a_program_of_an_image_gets_its_own_variables_alone_and_a_file_to_write_to(
    tmp_path: Path, guard: ProcessGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is watched as a process of this machine, which stands for it here."""
    monkeypatch.setenv("A_SECRET", "of this machine")
    asked: list[Any] = []

    def run_image(
        image: str, command: list[str], environ: Mapping[str, str], *, folder: Path, writable: list[Path], log: Path
    ) -> LocalProgram:
        asked.append((image, command, environ, folder, writable, log))
        writable[0].write_bytes(b"half")
        return LocalProgram([sys.executable, "-c", "raise SystemExit(5)"], guard=guard)

    process = ApplicationProcess(name="web", image="shop:1", command=("web", "{name}"), environ={"LEVEL": "debug"})
    events: list[dict[str, Any]] = []
    instance = ApplicationInstance(
        "web-0",
        process,
        {"AMQP_HOST": "127.0.0.1"},
        tmp_path / "log",
        record=lambda _, **fields: events.append(fields),
        guard=guard,
        run_image=run_image,
    )
    instance.start()
    wait_until(lambda: len(events) == 2, timeout_s=60, what="the end of the program")
    assert [(event["event"], event.get("status")) for event in events] == [("started", None), ("ended", 5)]
    lines = work_path(tmp_path, "web-0", 0)
    environ = {"AMQP_HOST": "127.0.0.1", "LEVEL": "debug", WORK_VARIABLE: str(lines)}
    assert asked == [("shop:1", ["web", "web-0"], environ, None, [lines], tmp_path / "log")]
    assert stat.S_IMODE(lines.stat().st_mode) == 0o666  # the image decides who writes
    assert lines.read_bytes() == b"half"
    instance.close()


OWNER = """
import subprocess, sys, time
from rabbitmq_resilience.workload.process_guard import ProcessGuard
guard = ProcessGuard()
code = sys.argv[1]
first, second = (subprocess.Popen([sys.executable, "-c", code], process_group=0) for _ in range(2))
guard.add(first.pid); guard.add(second.pid)
print(guard._process.pid, flush=True)
time.sleep(600)
"""


def test_nothing_is_left_of_a_run_that_was_killed() -> None:
    """Neither the programs, nor their children, nor the guard."""
    command = [sys.executable, "-c", OWNER, STUBBORN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for _ in range(3) for pid in owner.stdout.readline().split()]
        assert len(pids) == 5
        assert not any(map(is_gone, pids))
        os.kill(owner.pid, signal.SIGKILL)
        await_gone(*pids)


def test_each_life_of_a_process_says_what_it_works_on_in_a_file_of_its_own(tmp_path: Path, guard: ProcessGuard) -> None:
    """A line that the first one did not finish damages no line of the second."""
    code = f"import os, pathlib, signal; pathlib.Path(os.environ[{WORK_VARIABLE!r}]).write_text('half'); "
    started = Started(tmp_path, guard, code + "print(1, flush=True); signal.pause()", environ={WORK_VARIABLE: "mine"})
    started.instance.start()
    started.await_written()
    started.instance.kill()
    started.instance.start()
    started.await_written(2)
    started.instance.close()
    assert started.instance.lives == 2
    assert [work_path(tmp_path, "web-0", life).read_text(encoding="utf-8") for life in range(2)] == ["half"] * 2
