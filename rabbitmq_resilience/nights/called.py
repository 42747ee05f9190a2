"""pytest, called by a command: it ends in order whatever ends the command."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

LIMIT_REACHED = 124
#: After the limit: for scenarios to heal what they broke and for brokers to end.
ENDS_WITHIN_S = 120.0


def run_pytest(command: Sequence[str], *, limit_s: float | None) -> int:
    """Its exit status, LIMIT_REACHED, or 128 and the number of the signal that killed it. Passes on what asks it to
    end, so that scenarios heal what they broke; ends what does not end by itself."""
    # Else pytest would inherit that it ignores SIGINT where this is a background job of a shell.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # In a group of its own, so that what a terminal sends to all comes once.
    with subprocess.Popen(command, process_group=0) as process, _passed_on(process):
        try:
            status = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()  # brokers end with it
            return LIMIT_REACHED
    return 128 - status if status < 0 else status


@contextmanager
def _passed_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """CI services send SIGINT or SIGTERM where a job is cancelled; pytest ends in order by the first only."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
