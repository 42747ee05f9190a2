"""A clock for code that waits: its time passes only while that code sleeps."""

from __future__ import annotations

from types import ModuleType

import pytest

from rabbitmq_resilience.tools import waiting


class Clock:
    """Stands in for the module ``time``: a sleep only moves it on."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def waits_by_clock(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> Clock:
    """Give ``wait_until`` and ``modules`` one clock of their own, and return it."""
    clock = Clock()
    for module in (waiting, *modules):
        monkeypatch.setattr(module, "time", clock)
    return clock
