import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.machine.port_claims import FIRST_BASES, Claim, sweep, take_claim
from rabbitmq_resilience.sut.machine.reaper import Reaper, marked
from rabbitmq_resilience.tools.waiting import wait_until
from tests.messages import Messages


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def drop(claim: Claim) -> None:
    """As if the run that holds it had died."""
    for descriptor in claim.claim_fds:
        os.close(descriptor)


def sleeper(claim: Claim) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    process = subprocess.Popen(command, env=marked(os.environ, claim.folder), stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.stdout.close()
    return process


@pytest.mark.core
def test_two_claims_never_meet(root: Path) -> None:
    one, other = take_claim(root, ports=5), take_claim(root, ports=5)

    assert abs(one.base_port - other.base_port) >= 200
    assert one.folder != other.folder
    drop(one)
    drop(other)


@pytest.mark.core
def test_two_claims_of_different_roots_never_meet(root: Path, tmp_path: Path) -> None:
    """As of two users: the ports of a paused broker look free to the other one."""
    one, other = take_claim(root, ports=5), take_claim(tmp_path, ports=5)
    drop(one)
    again = take_claim(tmp_path, ports=5)

    assert abs(one.base_port - other.base_port) >= 200
    assert again.base_port == one.base_port
    drop(other)
    drop(again)


@pytest.mark.core
def test_a_port_in_use_is_passed_over(root: Path) -> None:
    first = take_claim(root, ports=5)
    drop(first)
    with socket.create_server(("127.0.0.1", first.base_port + 4)):
        second = take_claim(root, ports=5)
    drop(second)

    assert second.base_port != first.base_port
    assert second.base_port in FIRST_BASES


def test_too_many_ports_are_refused(root: Path, message: Messages) -> None:
    with message.of(ClusterError):
        take_claim(root, ports=201)


@pytest.mark.core
def test_sweep_leaves_what_is_in_use(root: Path) -> None:
    claim = take_claim(root, ports=1)
    process = sleeper(claim)

    assert sweep(root) == []
    assert process.poll() is None
    assert claim.folder.is_dir()
    process.kill()
    process.wait()
    drop(claim)


@pytest.mark.core
def test_sweep_removes_what_a_dead_run_left(root: Path) -> None:
    claim = take_claim(root, ports=1)
    (claim.folder / "data").mkdir()
    process = sleeper(claim)
    drop(claim)

    assert sweep(root) == [claim.folder]
    assert process.wait(10) != 0
    assert list(root.iterdir()) == []


@pytest.mark.core
def test_reaper_removes_all_when_asked(root: Path) -> None:
    claim = take_claim(root, ports=1)
    reaper = Reaper(claim.folder, claim.lock_file, claim.claim_fds)
    process = sleeper(claim)

    reaper.close()

    assert process.wait(10) != 0
    assert list(root.iterdir()) == []


@pytest.mark.core
def test_a_dead_reaper_is_stood_in_for(root: Path) -> None:
    claim = take_claim(root, ports=1)
    reaper = Reaper(claim.folder, claim.lock_file, claim.claim_fds)
    psutil.Process(reaper.pid).kill()
    process = sleeper(claim)

    reaper.close()

    assert process.wait(10) != 0
    wait_until(lambda: list(root.iterdir()) == [], timeout_s=60, what="an empty root")
