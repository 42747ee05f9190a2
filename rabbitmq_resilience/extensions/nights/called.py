"""Run pytest from a command, so that pytest ends cleanly even if a signal or the time limit ends the command."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

LIMIT_REACHED = 124
#: How long pytest may go on after the limit, to heal faults and to end brokers.
ENDS_WITHIN_S = 120.0


def run_pytest(command: Sequence[str], *, limit_s: float | None) -> int:
    """Run pytest; return its exit status, LIMIT_REACHED, or 128 plus the number of the signal that killed it.

    Pass on signals that ask to end, so that scenarios heal their faults. Kill pytest if it does not end in time."""
    # As a background job of a shell this process ignores SIGINT, and without the default handler pytest would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # pytest has its own process group, so that a signal of the terminal arrives there once.
    with subprocess.Popen(command, process_group=0) as process, _passed_on(process):
        try:
            status = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()  # the brokers end with pytest
            return LIMIT_REACHED
    return 128 - status if status < 0 else status


@contextmanager
def _passed_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Send pytest a SIGINT for each SIGINT and SIGTERM of this process.

    CI services send either one to cancel a job, but pytest ends cleanly only after SIGINT."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
