"""The one waiting loop of the project."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Seen = TypeVar("Seen")


class _OfThread(threading.local):
    check: Callable[[], None] | None = None


_OF_THREAD = _OfThread()


class WaitTimeout(Exception):
    """Something awaited did not come in time. ``last_seen`` is the last state that was looked at."""

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
    """Call ``look`` until ``until`` holds for what it saw (by default: until it is true), and return that.

    ``what`` completes the sentence "waited n s for ...". It looks at least once, and does not sleep
    after success. Raises ``WaitTimeout`` with the last state seen; errors of ``look`` pass through, and what
    ``interrupted_by`` says.
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


@contextmanager
def interrupted_by(check: Callable[[], None]) -> Iterator[None]:
    """Whatever this thread waits for in the block ends by what ``check`` raises, which is called each time it looks.
    Other threads go on, as those that heal must, and so does what is cleaned up outside of the block."""
    before, _OF_THREAD.check = _OF_THREAD.check, check
    try:
        yield
    finally:
        _OF_THREAD.check = before
