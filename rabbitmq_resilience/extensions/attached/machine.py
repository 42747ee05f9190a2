"""Define what a broker's machine offers: all acts on the machine go through its shell.

Scripts are for any POSIX shell, run as root, and take what varies as arguments.
"""

from __future__ import annotations

import shlex
import socket
from typing import Protocol

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.machine.machine_shell import MachineShell


class MachineError(ClusterError):
    """A machine could not be reached, or a script failed there; the text has the machine's output."""


class NoAnswerError(MachineError):
    """A script gave no answer: it took too long, could not be run, or did not reach the node."""


class AbsentError(MachineError):
    """The machine does not exist now, and was not made for this call."""


class ForcedError(MachineError):
    """The wanted state was reached, but only by force; the text says how."""


def tool_script(node: str, tool: str, *arguments: str) -> str:
    """Return a script that runs one of RabbitMQ's command line tools for the node of that Erlang name."""
    command = " ".join(map(shlex.quote, [tool, "-q", "-n", node, *arguments]))
    return f"exec {command} < /dev/null"


class Machine(MachineShell, Protocol):
    """The machine of one node, with room for watchdogs, and a way into its network."""

    @property
    def state(self) -> str:
        """Return the folder in which watchdogs keep their files."""
        ...

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        """Run a script, and return what it printed.

        Raise MachineError if it cannot be run, fails, or takes longer, and AbsentError if there is no machine.
        """
        ...

    def connect(self, host: str, port: int, *, timeout_s: float | None) -> socket.socket:
        """Return a connection that the machine itself opens, to what it knows as that host. Raise OSError if it fails.

        Without ``timeout_s`` the call does not wait: bytes are sent on once the machine has a connection, and the
        returned one closes if the machine gets none.
        """
        ...
