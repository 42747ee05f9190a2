"""Decide how many messages a publisher may send now, and when each of them was due."""

from __future__ import annotations

import math

#: The length of a pause, for instance of the scheduler, after which a publisher catches up with its rate.
BURST_S = 0.25


class TokenBucket:
    """A token bucket: one token for each message that the target rate allows, with the time when it was due.

    Tokens come at equal distances. A full bucket drops further tokens; their messages are never due. A rate of None
    allows any number of messages, each due when it is sent.

    ``ahead``: the part of that distance by which the first token comes sooner, from 0 to less than 1. Otherwise the
    messages of publishers that begin together would all be due at the same moments.
    """

    def __init__(self, rate_per_s: float | None, *, now_us: int, ahead: float = 0.0) -> None:
        self._ahead = ahead
        self.change(rate_per_s, now_us=now_us)

    def change(self, rate_per_s: float | None, *, now_us: int) -> None:
        """Keep another rate from now on, and drop the tokens of the old one."""
        self._limited = rate_per_s is not None
        self._every_us = 1e6 / rate_per_s if rate_per_s else math.inf
        self._room = max(1, int((rate_per_s or 0) * BURST_S))
        self._next_us = now_us + self._every_us * (1 - self._ahead)
        self._due_us: list[int] = []  # of the tokens in the bucket

    def take(self, wanted: int, *, now_us: int) -> list[int]:
        """Take up to ``wanted`` tokens, and return when the message of each was due."""
        if not self._limited:
            return [now_us] * wanted
        if self._next_us <= now_us:
            self._fill(now_us)
        taken = self._due_us[:wanted]
        del self._due_us[:wanted]
        return taken

    @property
    def next_us(self) -> int | None:
        """Return when the next message may be sent, a past time if now; None while the rate is 0."""
        if not self._limited:
            return 0
        if self._due_us:
            return self._due_us[0]
        return math.ceil(self._next_us) if self._next_us < math.inf else None

    def _fill(self, now_us: int) -> None:
        first_us, every_us = self._next_us, self._every_us
        come = int((now_us - first_us) / every_us) + 1
        self._next_us = first_us + come * every_us
        kept = min(come, self._room - len(self._due_us))
        self._due_us += [int(first_us + i * every_us) for i in range(kept)]
