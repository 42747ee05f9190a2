"""Read what brokers that are not ours have logged since a run began."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError

_TIMEOUT_S = 60.0

#: Prints the size of the log $1, and its text from byte $2 on; all of its text if the log was rotated.
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
        """Begin to read: what is logged from now on belongs to this run."""
        ...

    def more(self) -> str:
        """Return what was logged since the last call. Raise MachineError if the log cannot be read."""
        ...


@dataclass
class FileLog:
    """A log file on the broker's machine."""

    machine: Machine
    path: str
    _read_bytes: int | None = field(default=None, init=False)

    def begin(self) -> None:
        self._read_bytes = None
        with suppress(MachineError, ValueError):  # the file is missing, or we may not read it
            self._read_bytes = int(self.machine.run('stat -c %s "$1"', self.path))

    def more(self) -> str:
        if self._read_bytes is None:
            raise MachineError(f"{self.machine.description}: {self.path} could not be read when the run began")
        printed = self.machine.run(_SINCE, self.path, str(self._read_bytes), timeout_s=_TIMEOUT_S)
        size, _, text = printed.partition("\n")
        self._read_bytes = int(size)
        return text
