"""How far an application with one thread has got with its messages: by arithmetic, without a timer for each."""

from __future__ import annotations

from dataclasses import replace

from rabbitmq_resilience.record.variation import Variation


class Processing:
    """Deliveries of one channel are worked on one after another; they are told by number, counted from 1.

    ``time_ms`` is what one takes. What was waiting at the last look is worked on until the next, so looking at each
    arrival, and now and then, keeps the pace: idle time is not saved up.
    """

    def __init__(self, time_ms: Variation, *, now_us: int) -> None:
        self._time_ms = time_ms
        self._seen_us = now_us
        self.begin_anew()

    def begin_anew(self) -> None:
        """Another channel: what the lost one had delivered comes again, with new numbers."""
        self._received = 0
        self._done = 0
        self._share = 0.0  # of the one in hand

    def vary(self, begins_us: int) -> None:
        self._time_ms = replace(self._time_ms, begins_us=begins_us)

    def done(self, received: int, *, now_us: int) -> int:
        """How many are processed, of ``received`` so far."""
        each_us = (self._time_ms.at(now_us) or 0) * 1000
        elapsed_us, self._seen_us = now_us - self._seen_us, now_us
        if each_us == 0:
            self._done, self._share = received, 0.0
        else:
            self._share += elapsed_us / each_us
            finished = min(int(self._share), self._received - self._done)
            self._done += finished
            self._share = self._share - finished if self._done < self._received else 0.0
        self._received = received
        return self._done
