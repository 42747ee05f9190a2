"""Define what is done to a node through the shell of its machine: this one, a container, a host by ssh, or a pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class MachineShell(Protocol):
    """The shell of one node's machine. Calls may come from several threads at once."""

    @property
    def description(self) -> str:
        """Return how the machine is reached, for people: ``ssh root@host1``."""
        ...

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        """Run a script, and return what it printed. Raise ClusterError if it cannot be run, fails, or takes longer."""
        ...


@dataclass(frozen=True)
class ShellAction:
    """One act on a machine, the same on each: scripts for any POSIX shell, which may be run twice.

    All of them take the same arguments. ``lacks`` prints each reason why the machine cannot do it on a line. ``do``
    begins it, and ``undo`` ends it. ``seen`` prints what is observed of it, for the proof.
    """

    lacks: str
    do: str
    undo: str
    seen: str

    def lacking(self, shell: MachineShell, *arguments: str) -> list[str]:
        """Return, in words, what the machine lacks for it."""
        return shell.run(self.lacks, *arguments).splitlines()
