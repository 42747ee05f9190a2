"""What brokers that are not ours have logged since a run began."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from rabbitmq_resilience.clusters.attached.machine import Machine, MachineError

_TIMEOUT_S = 60.0

#: How long the log is, and what it has from there on where it was read last; all of it where it was begun anew.
_SINCE = """
size=$(stat -c %s "$1") || exit 1
from=$2
[ "$size" -lt "$from" ] && from=0
echo "$size"
tail -c +$(( from + 1 )) "$1" | head -c $(( size - from ))
"""


class Log(Protocol):
    """The log of one broker."""

    def begin(self) -> None:
        """What is logged from now on belongs to us."""
        ...

    def more(self) -> str:
        """What was logged since this was asked last. Raises MachineError where that cannot be read."""
        ...


@dataclass
class FileLog:
    """A file of the broker's machine."""

    machine: Machine
    path: str
    _read_bytes: int | None = field(default=None, init=False)

    def begin(self) -> None:
        self._read_bytes = None
        with suppress(MachineError, ValueError):  # it is not there, or not for us
            self._read_bytes = int(self.machine.run('stat -c %s "$1"', self.path))

    def more(self) -> str:
        if self._read_bytes is None:
            raise MachineError(f"{self.machine.told}: {self.path} could not be read when the run began")
        told = self.machine.run(_SINCE, self.path, str(self._read_bytes), timeout_s=_TIMEOUT_S)
        size, _, text = told.partition("\n")
        self._read_bytes = int(size)
        return text
