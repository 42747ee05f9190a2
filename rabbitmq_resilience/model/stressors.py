"""Describe the load that stress-ng puts on a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stressors:
    """The load of stress-ng: how many processes use CPU, how much memory one process keeps writing to, and how many
    processes write files."""

    cpu_workers: int = 0
    memory_bytes: int = 0
    io_workers: int = 0

    def words(self, *, for_s: float, mark: int) -> tuple[str, ...]:
        """Return the arguments of stress-ng. ``mark`` identifies the processes. It is passed as the random seed, which
        has no other effect that matters here."""
        cpu = ("--cpu", str(self.cpu_workers)) if self.cpu_workers else ()
        memory = ("--vm", "1", "--vm-bytes", f"{self.memory_bytes}b", "--vm-keep") if self.memory_bytes else ()
        io = ("--hdd", str(self.io_workers), "--hdd-bytes", "64m") if self.io_workers else ()
        return (*cpu, *memory, *io, "--timeout", f"{for_s:.0f}s", "--seed", str(mark))
