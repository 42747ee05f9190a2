"""What tests of steps share."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rabbitmq_resilience.tools import waiting


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give ``wait_until`` a clock of the test's own: to wait is to move it on."""
    now_s = [1000.0]

    def sleep(seconds_s: float) -> None:
        now_s[0] += seconds_s

    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
