"""Let the disk of one broker fail: take away what was not flushed, make it slow, and let its calls fail.

A library that is preloaded into the broker records, before each write, how to undo it until it is flushed. The program
``disk-faults`` reads and changes that record. Both work on folders, so it makes no difference whether the broker is a
process or runs in a container that shares the cluster's folder. But preloaded programs hold locks by the numbers of
their threads, so all that use one record while its broker runs must run where the broker does.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.broker.files import BrokerFiles
from rabbitmq_resilience.sut.preload.library import DiskFaultsBuild, find_build
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: What survives a power cut, see ``nemesis.power_cut``.
FileSystem = Literal["ordered", "ext4", "posix"]
Call = Literal["write", "flush", "both"]

_ANSWERS_WITHIN_S = 60.0
#: Programs that a broker had started end a moment after it was killed; on a busy machine it can be seconds.
_CHILDREN_END_WITHIN_S = 15.0
#: The exit status of ``disk-faults cut`` if they have not.
_IN_USE = 3


class DiskInUseError(ClusterError):
    """A process that writes to the disk is alive."""


@dataclass(frozen=True)
class TakenAway:
    """What a power cut took from a disk: the number of files that lost data, the bytes, and the names (new, renamed or
    removed files and folders) that are as before. ``paths`` has the numbers of each path, of 200 at most.

    ``not_found``: files below the broker's data that lost too little, as something else than the broker had moved or
    removed them before the cut."""

    files: int
    bytes: int
    names: int
    paths: Sequence[Mapping[str, Any]]
    not_found: Sequence[str] = ()


@dataclass(frozen=True)
class DiskCounters:
    """What a broker's processes did to their disk since the cluster was formed: calls, their whole time in seconds, and
    the errors that they got. ``not_followed`` names calls that the library cannot follow, with their number."""

    writes: int
    flushes: int
    write_s: float
    flush_s: float
    write_errors: int
    flush_errors: int
    not_followed: Mapping[str, int]

    @property
    def errors(self) -> int:
        return self.write_errors + self.flush_errors


@dataclass(frozen=True)
class PreloadedDisk:
    """The disk of ``node``. Its files are below ``data``; ``state`` is the folder of the library's record. Methods
    raise ``ClusterError``."""

    node: str
    data: Path
    state: Path
    library: Path
    program: Path
    #: Gets a line of JSON with each path that a power cut took something from.
    log: Path

    @property
    def environ(self) -> Mapping[str, str]:
        """Return the variables with which the broker's process starts."""
        return DiskFaultsBuild(self.library, self.program).environment(self.data, state=self.state)

    def prepare(self) -> None:
        """Begin an empty record, or go on with the one that is there; to be called before each start of the broker."""
        self.data.mkdir(parents=True, exist_ok=True)
        self._run("prepare")

    def settle(self) -> None:
        """Let all that is stored count as flushed. The broker must be gone."""
        self._run("settle")

    def cut_power(self, model: FileSystem, *, torn_seed: int | None = None) -> TakenAway:
        """Take away what was not flushed, once the programs that the broker had started are gone, too. The broker must
        be gone.

        ``torn_seed``: keep a part of it, chosen by that seed, see ``nemesis.power_cut``.
        """
        torn = [] if torn_seed is None else ["--torn", str(torn_seed)]
        taken = self._cut("--model", model, *torn)
        with self.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(taken) + "\n")
        root = f"{self.data.absolute()}/"
        not_found = sorted({path.removeprefix(root) for path in taken["not_found"]})
        return TakenAway(taken["files"], taken["bytes"], taken["names"], taken["paths"], not_found)

    def slow(self, *, write_ms: float, flush_ms: float) -> None:
        """Let each write and each flush take so much longer."""
        self._run("set", "slow", "--write-ms", f"{write_ms:g}", "--flush-ms", f"{flush_ms:g}")

    def fail(self, errno: Literal["EIO", "ENOSPC"], *, on: Call, one_in: int, files: str) -> None:
        """Let one of ``one_in`` calls fail on files whose path below ``data`` matches the pattern ``files``."""
        self._run("set", "errors", "--errno", errno, "--on", on, "--one-in", str(one_in), "--files", files)

    def clear(self) -> None:
        """Undo ``slow`` and ``fail``."""
        self._run("clear")

    def counters(self) -> DiskCounters:
        seen = self._json("show")
        writes, flushes = seen["writes"], seen["flushes"]
        return DiskCounters(
            writes["calls"],
            flushes["calls"],
            writes["ns"] / 1e9,
            flushes["ns"] / 1e9,
            writes["errors"],
            flushes["errors"],
            seen["not_followed"],
        )

    def _cut(self, *arguments: str) -> dict[str, Any]:
        refused: list[DiskInUseError] = []

        def cut() -> dict[str, Any] | None:
            try:
                return self._json("cut", *arguments)
            except DiskInUseError as error:
                refused.append(error)
                return None

        try:
            taken = wait_until(cut, timeout_s=_CHILDREN_END_WITHIN_S, what="the programs of a broker to end")
        except WaitTimeout:
            raise refused[-1] from None
        assert taken is not None
        return taken

    def _json(self, verb: str, *arguments: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._run(verb, *arguments))
        return answer

    def _run(self, verb: str, *arguments: str) -> str:
        name, command = f"{self.program.name} {verb}", [str(self.program), verb, str(self.state), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWERS_WITHIN_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ClusterError(f"{name} for the disk of {self.node} failed: {error}") from error
        if done.returncode != 0:
            failed = DiskInUseError if done.returncode == _IN_USE else ClusterError
            raise failed(f"{name} for the disk of {self.node} failed: {done.stderr.strip()}")
        return done.stdout


def preloaded_disk(node: str, files: BrokerFiles) -> PreloadedDisk:
    """Return the disk of a node with these files, which no broker uses yet.

    A container sees only the cluster's folder, so the library is copied there. Raise ``ToolMissingError`` if it is
    missing.
    """
    found = find_build()
    library = files.folder.parent / found.library.name
    if not library.exists():
        shutil.copy(found.library, library)
    log = files.log.with_name(f"{node}-power.jsonl")
    return PreloadedDisk(node, files.data, files.disk_faults, library, found.program, log)
