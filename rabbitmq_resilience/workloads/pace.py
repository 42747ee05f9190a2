"""How fast a publisher may send, and when each of its messages was due."""

from __future__ import annotations

import math

#: How much of its rate a publisher may make up for after a pause, for instance of the scheduler.
BURST_S = 0.25


class Pace:
    """A token bucket: which messages the target rate allows now, and when each of them was due.

    Tokens come at equal distances. A full bucket takes no more: what would have come then is forgotten, and never due.
    A rate of None allows any number, each due when it is sent.

    ``ahead``: by which part of that distance the first token comes sooner, from 0 to less than 1. Publishers that begin
    together would else all be due at the same moments.
    """

    def __init__(self, rate_per_s: float | None, *, now_us: int, ahead: float = 0.0) -> None:
        self._ahead = ahead
        self.change(rate_per_s, now_us=now_us)

    def change(self, rate_per_s: float | None, *, now_us: int) -> None:
        """Keep another rate from now on; what was saved up at the old one is forgotten."""
        self._limited = rate_per_s is not None
        self._every_us = 1e6 / rate_per_s if rate_per_s else math.inf
        self._room = max(1, int((rate_per_s or 0) * BURST_S))
        self._next_us = now_us + self._every_us * (1 - self._ahead)
        self._due_us: list[int] = []  # of the tokens that are there

    def take(self, wanted: int, *, now_us: int) -> list[int]:
        """When each of at most ``wanted`` messages was due; fewer if there are fewer tokens."""
        if not self._limited:
            return [now_us] * wanted
        if self._next_us <= now_us:
            self._fill(now_us)
        taken = self._due_us[:wanted]
        del self._due_us[:wanted]
        return taken

    @property
    def next_us(self) -> int | None:
        """When the next message may be sent, which is over where that is so now; None while nothing may be sent."""
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
