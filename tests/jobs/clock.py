"""A clock for code that waits: its time passes only while that code sleeps."""

from __future__ import annotations

from types import ModuleType

import pytest

from rabbitmq_resilience.tools import waiting


class Clock:
    """What code under test calls instead of the module ``time``."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, wait_s: float) -> None:
        self.now_s += wait_s


def let_time_pass_at_once(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Give the waiting loop and ``modules`` a clock of their own, so that they wait for no real time."""
    clock = Clock()
    for module in (waiting, *modules):
        monkeypatch.setattr(module, "time", clock)
