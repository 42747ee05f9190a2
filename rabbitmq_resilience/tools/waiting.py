"""The one waiting loop of the project."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


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
    after success. Raises ``WaitTimeout`` with the last state seen; errors of ``look`` pass through.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        seen = look()
        if until(seen):
            return seen
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise WaitTimeout(what, timeout_s, seen)
        time.sleep(min(poll_s, left_s))
