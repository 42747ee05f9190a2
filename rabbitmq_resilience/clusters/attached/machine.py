"""A machine on which a broker runs, as far as its shell reaches: where all that is done to it goes through.

Scripts are for any POSIX shell, run as root, and get what varies as arguments.
"""

from __future__ import annotations

import shlex
import socket
from typing import Protocol

from rabbitmq_resilience.clusters.errors import ClusterError


class MachineError(ClusterError):
    """A machine could not be reached, or did not do what it was asked; the text has its words."""


class AbsentError(MachineError):
    """There is no such machine now, and none was made."""


class ForcedError(MachineError):
    """What was asked for is so, but came about otherwise than it should have; the text tells how."""


def tool_script(node: str, tool: str, *arguments: str) -> str:
    """For the machine of the node of that Erlang name: one of RabbitMQ's command line tools, told to act on it."""
    command = " ".join(map(shlex.quote, [tool, "-q", "-n", node, *arguments]))
    return f"exec {command} < /dev/null"


class Machine(Protocol):
    """The machine of one node. Calls may come from several threads at once."""

    @property
    def state(self) -> str:
        """The folder where its watchdogs keep what they know."""
        ...

    @property
    def told(self) -> str:
        """By what it is reached, for people: ``ssh root@host1``."""
        ...

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        """What the script printed. Raises MachineError where it cannot be run, fails, or takes longer, and AbsentError
        where there is no machine."""
        ...

    def connect(self, host: str, port: int, *, timeout_s: float | None) -> socket.socket:
        """A connection that the machine itself opens, to what it knows as that host. Raises OSError. Without
        ``timeout_s`` it is not waited for: what is written goes on its way once the machine has it, and it closes where
        the machine gets none."""
        ...
