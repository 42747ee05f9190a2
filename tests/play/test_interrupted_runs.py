"""However a run ends, its faults are healed and nothing is left behind: no process, port or folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from rabbitmq_resilience.history.event_log import read_events
from rabbitmq_resilience.history.events import Event, FaultEvent
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.sut.machine.port_claims import BLOCK_PORTS
from rabbitmq_resilience.tools.waiting import wait_until

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("prometheus")]

CHECKOUT = Path(__file__).resolve().parents[2]
FORMED_WITHIN_S = 120.0
GONE_WITHIN_S = 60.0

FAULT_FILE = """
version: 1
title: Interrupted
topology: three_nodes_three_zones
metrics: true
workload: {queues: 2, publishers: 2, consumers: 2, rate_per_s: 200}
phases: {steady_s: 1, recovery_s: 30, settled_s: 0, drain_s: 30}
schedule:
  - {at_s: 0, for_s: 60, fault: partition, between: ["zone:c", rest]}
  - {at_s: 0, for_s: 60, fault: pause, node: b1}
invariants: {no_loss: {}}
"""


@dataclass(frozen=True)
class PytestRun:
    """``pytest --fault-file`` in a process of its own, as from a terminal; everything of it lies in ``folder``."""

    process: subprocess.Popen[bytes]
    folder: Path

    def directory(self) -> RunDirectory | None:
        found = sorted((self.folder / "runs").glob("*-interrupted"))
        return RunDirectory(found[0]) if found else None

    def events(self) -> list[Event]:
        run = self.directory()
        return list(read_events(run.events_file)) if run and run.events_file.exists() else []

    def await_faults(self) -> None:
        def injected() -> bool:
            assert self.process.poll() is None, (self.folder / "output").read_text()
            return len([e for e in self.events() if isinstance(e, FaultEvent) and e.state == "injected"]) == 2

        wait_until(injected, timeout_s=FORMED_WITHIN_S, what="both faults to be injected")

    def processes(self) -> list[psutil.Process]:
        """Every process but pytest's own that belongs to the run: their folders are in their environment or command."""
        found = []
        for process in psutil.process_iter():
            try:
                told = [*process.environ().values(), *process.cmdline()]
            except psutil.Error:
                continue
            if any(str(self.folder) in text for text in told) and process.pid not in (self.process.pid, os.getpid()):
                found.append(process)
        return found

    def base_ports(self) -> list[int]:
        return [int(path.stem) for path in self.folder.glob("tmp/rabbitmq-resilience-*/*.lock")]

    def await_nothing_left(self, ports: list[int]) -> None:
        def left() -> list[str]:
            folders = [str(path) for path in self.folder.glob("tmp/rabbitmq-resilience-*/*/")]
            return [*map(str, self.processes()), *folders, *(f"port {p}" for p in ports if is_open(p))]

        wait_until(left, until=lambda found: not found, timeout_s=GONE_WITHIN_S, what="nothing to be left")


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


#: pytest as a person starts it: whoever runs in the background inherits that Ctrl-C is ignored.
PYTEST = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.fixture
def interrupted(tmp_path: Path) -> Iterator[PytestRun]:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "fault.yaml").write_text(FAULT_FILE)
    command = [sys.executable, "-c", PYTEST, f"--fault-file={tmp_path / 'fault.yaml'}"]
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [*command, f"--runs-dir={tmp_path / 'runs'}", "-p", "no:cacheprovider"],
            cwd=CHECKOUT,
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    run = PytestRun(process, tmp_path)
    try:
        run.await_faults()
        yield run
    finally:
        process.kill()
        process.wait()


def open_ports(run: PytestRun) -> list[int]:
    """The ports of the run's block that something listens on: brokers, their management, the proxies."""
    found = [port for base in run.base_ports() for port in range(base, base + BLOCK_PORTS) if is_open(port)]
    assert len(found) > 6
    return found


def healed_steps(run: PytestRun) -> set[int]:
    return {event.step for event in run.events() if isinstance(event, FaultEvent) and event.state == "healed"}


def verdict(run: PytestRun) -> str:
    directory = run.directory()
    assert directory is not None
    assert_measured(directory)
    assert directory.report.exists()
    return str(directory.read_verdict()["verdict"])


def assert_measured(run: RunDirectory) -> None:
    """What the brokers said until then is kept, and no server's files any more."""
    assert set(run.metrics()["node"].to_pylist()) == {"a1", "b1", "c1"}
    assert not run.scraped.exists()


def test_ctrl_c(interrupted: PytestRun) -> None:
    ports = open_ports(interrupted)
    interrupted.process.send_signal(signal.SIGINT)
    interrupted.process.wait(GONE_WITHIN_S)
    assert interrupted.process.returncode == pytest.ExitCode.INTERRUPTED
    interrupted.await_nothing_left(ports)
    assert healed_steps(interrupted) == {0, 1}
    assert verdict(interrupted) == "UNKNOWN"


@pytest.mark.plays
def test_a_worker_dies_by_itself(interrupted: PytestRun) -> None:
    """That is an exception in the middle of the run: its history would lack what the worker saw."""
    ports = open_ports(interrupted)
    next(p for p in interrupted.processes() if "rabbitmq_resilience.workload.consumer" in p.cmdline()).kill()
    interrupted.process.wait(2 * GONE_WITHIN_S)
    assert "consumer-" in (interrupted.folder / "output").read_text()
    interrupted.await_nothing_left(ports)
    assert healed_steps(interrupted) == {0, 1}
    assert verdict(interrupted) == "UNKNOWN"


@pytest.mark.plays
def test_kill_9(interrupted: PytestRun) -> None:
    """Nobody is left to heal or to judge, so all processes must end by themselves; the record can still be judged."""
    ports = open_ports(interrupted)
    interrupted.process.kill()
    interrupted.process.wait()
    interrupted.await_nothing_left(ports)
    directory = interrupted.directory()
    assert directory is not None
    again = subprocess.run(
        [sys.executable, "-m", "pytest", f"--recheck={directory.path}", "-p", "no:cacheprovider"],
        cwd=CHECKOUT,
        capture_output=True,
        check=False,
    )
    assert again.returncode == 10, again.stdout
    assert json.loads(directory.verdict_file.read_text())["verdict"] == "UNKNOWN"
    assert_measured(directory)
