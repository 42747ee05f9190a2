"""Compute how many messages an application with one thread has processed, without a timer for each message."""

from __future__ import annotations

from dataclasses import replace

from rabbitmq_resilience.history.variation import Variation


class Processing:
    """The processing of one channel's deliveries, one after another. Deliveries are numbered from 1.

    ``time_ms`` is the time for one delivery. The time between two calls of ``done`` goes to the deliveries that waited
    at the first call. So call it at each arrival, and now and then: idle time is not saved up.
    """

    def __init__(self, time_ms: Variation, *, now_us: int) -> None:
        self._time_ms = time_ms
        self._seen_us = now_us
        self.restart()

    def restart(self) -> None:
        """Begin with another channel: deliveries of the lost one come again, with new numbers."""
        self._received = 0
        self._done = 0
        self._share = 0.0  # of the delivery in hand

    def vary(self, begins_us: int) -> None:
        self._time_ms = replace(self._time_ms, begins_us=begins_us)

    def done(self, received: int, *, now_us: int) -> int:
        """Return how many of the ``received`` deliveries are processed by now."""
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
