"""The proof of a power cut, with the library itself: a small program writes the canaries as a broker does."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from rabbitmq_resilience.nemesis.fault import FaultContext, Proof
from rabbitmq_resilience.nemesis.power_cut import PowerCut, PowerCutInjection
from rabbitmq_resilience.nemesis.preloading import Canaries
from rabbitmq_resilience.sut.preload.preloaded_disk import PreloadedDisk
from tests.preload.sequences import Disk

WRITES = """
import os
for name in ("flushed", "unflushed", "new"):
    file = os.open(f"canaries/{name}", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, b"after!", 0)
    if name == "flushed":
        os.fsync(file)
"""


class Writer:
    """A cluster of one node: ``run_tool`` writes the canaries, and ``kill`` removes the files in ``removed`` as a
    program without the library does."""

    restarts_brokers = False

    def __init__(self, disk: Disk, removed: tuple[str, ...]) -> None:
        self.disk, self.removed = disk, removed
        self.running = True

    def run_tool(self, *_: str, timeout_s: float) -> str:  # noqa: ARG002 - as brokers have it
        subprocess.run([sys.executable, "-c", WRITES], cwd=self.disk.root, env=self.disk.environment, check=True)
        return "{10,20}"

    def life(self, _: str) -> str | None:
        return "process 7" if self.running else None

    def process(self, _: str) -> str:
        return "running" if self.running else "gone"

    def exit_status(self, _: str) -> int:
        return -9

    def kill(self, _: str) -> None:
        self.running = False
        for name in self.removed:
            (self.disk.root / "canaries" / name).unlink()


def proof_of(disk: Disk, *, removed: tuple[str, ...] = ()) -> Proof:
    """Cut the power of a node under which ``removed`` were removed after its end, and return the proof."""
    cluster, unused = Writer(disk, removed), SimpleNamespace()
    log = disk.state.with_name("power.jsonl")
    own = PreloadedDisk("a1", disk.root, disk.state, disk.built.library, disk.built.control, log)
    parts: Any = (cluster, unused, unused)
    context = FaultContext(*parts)
    canaries = {"a1": Canaries(context.cluster, "a1", own, new="new")}
    stated = PowerCut(at_s=0, for_s=1, node="a1")
    cut = PowerCutInjection(context, ("a1",), cluster.kill, cluster.kill, "gone", canaries, stated, None)
    cut.inject()
    return cut.prove(timeout_s=0)


def test_a_cut_that_found_all_is_proven(disk: Disk) -> None:
    proof = proof_of(disk)
    assert proof.proven, proof.detail
    assert "a1 lost 12 bytes of 2 files, and 1 names" in proof.detail


def test_a_cut_that_did_not_find_a_file_is_not_proven(disk: Disk) -> None:
    """What it would have taken from the file may live on under another name."""
    proof = proof_of(disk, removed=("unflushed",))
    assert not proof.proven
    assert proof.detail.startswith("a1 may have kept what was not flushed of canaries/unflushed: the cut did not find")
