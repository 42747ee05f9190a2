"""Wait until a condition holds: the only waiting loop of the project."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

Seen = TypeVar("Seen")


class _OfThread(threading.local):
    check: Callable[[], None] | None = None


_OF_THREAD = _OfThread()


class WaitTimeout(Exception):
    """A condition did not hold in time. ``last_seen``: the last value that ``look`` returned."""

    def __init__(self, what: str, timeout_s: float, last_seen: object) -> None:
        super().__init__(f"waited {timeout_s:g} s for {what}; last seen: {last_seen!r}")
        self.what = what
        self.timeout_s = timeout_s
        self.last_seen = last_seen


def wait_until(
    look: Callable[[], Seen],
    *,
    timeout_s: float,
    what: str,
    poll_s: float = 0.1,
    until: Callable[[Seen], bool] = bool,
) -> Seen:
    """Call ``look`` until ``until`` holds for its result (by default: until the result is true), and return the result.

    ``what`` completes the sentence "waited n s for ...". ``look`` is called at least once, and there is no sleep after
    success. Raise ``WaitTimeout`` with the last result. Errors of ``look``, and of the check of ``interrupted_by``,
    pass through.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        if _OF_THREAD.check is not None:
            _OF_THREAD.check()
        seen = look()
        if until(seen):
            return seen
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise WaitTimeout(what, timeout_s, seen)
        time.sleep(min(poll_s, left_s))


def let_pass(for_s: float) -> None:
    """Wait for a fixed time, whose end no state shows; errors of the check of ``interrupted_by`` pass through."""
    with suppress(WaitTimeout):
        wait_until(lambda: False, timeout_s=for_s, poll_s=0.02, what="a fixed time")


@contextmanager
def interrupted_by(check: Callable[[], None]) -> Iterator[None]:
    """Call ``check`` before each look of this thread's waits in the block; what it raises ends the wait.

    Other threads are not affected, as those that heal must go on; nor are waits outside of the block, as in a clean-up.
    """
    before, _OF_THREAD.check = _OF_THREAD.check, check
    try:
        yield
    finally:
        _OF_THREAD.check = before
