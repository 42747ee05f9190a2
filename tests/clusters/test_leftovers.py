"""However a test run ends, nothing of its cluster remains: no process, no port, no folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import psutil
import pytest

from rabbitmq_resilience.sut.containers.engine_client import CLUSTER_LABEL
from rabbitmq_resilience.sut.machine.port_claims import sweep
from rabbitmq_resilience.sut.machine.reaper import MARK
from rabbitmq_resilience.tools.waiting import wait_until

pytestmark = pytest.mark.brokers

CHECKOUT = Path(__file__).resolve().parent.parent.parent
GONE_WITHIN_S = 15.0
#: More than a cluster of three with all its links proxied ever takes.
PORTS = 40

#: Says when its cluster is there; forks a process that inherits all it has; then does as it is told.
RUN = """
import os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs in the background inherits that it is ignored
from rabbitmq_resilience.sut.drivers import DRIVERS
from rabbitmq_resilience.model.topology import Topology
topology = Topology(name="leftovers", zones={"a": 1, "b": 1, "c": 1})
print("starting", flush=True)
form = DRIVERS[sys.argv[2]].open(None).form
with form(topology, proxied=topology.links, root=Path(sys.argv[1])) as cluster:
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    print("formed", flush=True)
    if sys.stdin.readline() == "raise\\n":
        raise RuntimeError("on purpose")
"""


@dataclass(frozen=True)
class Run:
    """A test run in a process of its own, as it would be started from a terminal."""

    process: subprocess.Popen[str]
    root: Path

    def await_line(self, line: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{line}\n"

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def processes(self) -> list[psutil.Process]:
        """Every process that belongs to the run's clusters."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK, "").startswith(str(self.root)):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def base_port(self) -> int:
        return next(int(path.name) for path in self.root.iterdir() if path.is_dir())


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Of the local driver, where the test does not name another one."""
    root = tmp_path / "root"
    root.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(root), getattr(request, "param", "local")],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with process:
        yield Run(process, root)
        if process.poll() is None:
            process.kill()


def taken_ports(base: int) -> list[int]:
    taken = []
    for port in range(base, base + PORTS):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                taken.append(port)
    return taken


def left_ports(base: int) -> list[int]:
    """None where another run has claimed the block: it did so because all ports were free."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as guard:
        try:
            guard.bind(("127.0.0.1", base))
        except OSError:
            return []
        return taken_ports(base)


def await_nothing_left(run: Run, base: int) -> None:
    wait_until(
        lambda: (run.processes(), left_ports(base), list(run.root.iterdir())),
        timeout_s=GONE_WITHIN_S,
        what="every process, port and folder to be gone",
        until=lambda left: not any(left),
    )


def await_swept(run: Run, base: int) -> None:
    """Who was killed holds the claim for another moment."""
    wait_until(
        lambda: sweep(run.root),
        timeout_s=GONE_WITHIN_S,
        what="the claim of a killed run to be free",
        until=lambda swept: swept == [run.root / str(base)],
    )


@pytest.mark.parametrize("end", ["exception", "Ctrl-C", "kill -9"])
def test_nothing_is_left_after(run: Run, end: str) -> None:
    run.await_line("starting")
    run.await_line("formed")
    base = run.base_port()
    assert len(run.processes()) > 3
    assert len(taken_ports(base)) >= 3 * 4 + 1 + 6

    if end == "exception":
        run.tell("raise")
    elif end == "Ctrl-C":
        os.killpg(run.process.pid, signal.SIGINT)
    else:
        run.process.kill()

    run.process.wait(GONE_WITHIN_S)
    await_nothing_left(run, base)


def test_nothing_is_left_after_a_kill_while_it_forms(run: Run) -> None:
    run.await_line("starting")
    wait_until(lambda: len(run.processes()) > 2, timeout_s=60, what="brokers to be started")
    base = run.base_port()

    run.process.kill()

    run.process.wait(GONE_WITHIN_S)
    await_nothing_left(run, base)


def test_the_next_start_removes_what_even_the_reaper_left(run: Run) -> None:
    run.await_line("starting")
    wait_until(lambda: len(run.processes()) > 2, timeout_s=60, what="brokers to be started")
    base = run.base_port()
    reapers = [
        child
        for child in psutil.Process(run.process.pid).children()
        if "rabbitmq_resilience.sut.machine.reaper" in child.cmdline()
    ]

    assert len(reapers) == 1
    reapers[0].kill()
    run.process.kill()
    run.process.wait(GONE_WITHIN_S)

    assert run.processes()
    await_swept(run, base)
    await_nothing_left(run, base)


@pytest.mark.engine
@pytest.mark.parametrize("run", ["docker"], indirect=True)
@pytest.mark.parametrize("reaped", [True, False], ids=["by the reaper", "by the next start"])
def test_no_container_is_left_after_kill_9(run: Run, engine: docker.DockerClient, reaped: bool) -> None:
    run.await_line("starting")
    run.await_line("formed")
    base = run.base_port()
    mine: dict[str, Any] = {"label": f"{CLUSTER_LABEL}={run.root / str(base)}"}
    there = engine.containers.list(filters=mine)
    published = [port["HostIp"] for one in there for ports in one.ports.values() for port in ports or ()]
    if not reaped:
        for child in psutil.Process(run.process.pid).children():
            child.kill()
    run.process.kill()
    run.process.wait(GONE_WITHIN_S)
    if not reaped:
        assert engine.containers.list(filters=mine)
        await_swept(run, base)

    await_nothing_left(run, base)
    assert len(there) == 3 + 1  # the brokers and Toxiproxy
    assert set(published) == {"127.0.0.1"}
    assert not engine.containers.list(all=True, filters=mine)
    assert not engine.networks.list(filters=mine)
