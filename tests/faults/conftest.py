"""What tests of steps share."""

from __future__ import annotations

import pytest

from tests.clock import Clock, waits_by_clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Give ``wait_until`` a clock of the test's own."""
    return waits_by_clock(monkeypatch)
