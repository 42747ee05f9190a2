"""A clock on which waiting takes no time."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.tools import waiting


class Clock:
    """Stands for the module ``time``: a sleep only moves it on."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def waits_by_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let ``wait_until`` use such a clock, and return it."""
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    return clock
