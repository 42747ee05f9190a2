"""End process groups when the run that started them is gone: ``python -m rabbitmq_resilience.workload.process_guard``.

The guard is a process of its own session, so that ``kill -9`` of the run does not reach it. Lines on its standard input
name groups: ``+ 123`` is one to end, ``- 123`` has ended. When the input ends, all that are left get SIGKILL.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

from rabbitmq_resilience.tools.closing import Closing
from rabbitmq_resilience.tools.locations import IMPORTED_FROM


class ProcessGuard(Closing):
    """The run's handle of its guard."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=IMPORTED_FROM,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )

    def add(self, group: int) -> None:
        """Let the guard end this group if the run ends before it."""
        self._order(f"+ {group}\n")

    def remove(self, group: int) -> None:
        self._order(f"- {group}\n")

    def close(self) -> None:
        """End all groups that are left, and the guard."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait()

    def _order(self, line: str) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.write(line.encode())


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        sign, _, group = line.strip().partition(" ")
        (groups.add if sign == "+" else groups.discard)(int(group))
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
