"""What stress-ng is to take of a machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stressors:
    """How many processes spin, how much memory one of them writes to again and again, and how many write files."""

    cpu_workers: int = 0
    memory_bytes: int = 0
    io_workers: int = 0

    def words(self, *, for_s: float, mark: int) -> tuple[str, ...]:
        """stress-ng's arguments. ``mark`` is the seed of what it draws, of which it makes no use that matters here."""
        cpu = ("--cpu", str(self.cpu_workers)) if self.cpu_workers else ()
        memory = ("--vm", "1", "--vm-bytes", f"{self.memory_bytes}b", "--vm-keep") if self.memory_bytes else ()
        io = ("--hdd", str(self.io_workers), "--hdd-bytes", "64m") if self.io_workers else ()
        return (*cpu, *memory, *io, "--timeout", f"{for_s:.0f}s", "--seed", str(mark))
