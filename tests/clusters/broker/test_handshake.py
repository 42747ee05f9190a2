"""When an answer came is told by the kernel's clock, whatever a process has to wait for a processor meanwhile."""

from __future__ import annotations

import itertools

import pytest

from rabbitmq_resilience.clusters.broker import handshake

AHEAD_S = 1_700_000_000.0


class Clocks:
    """Two clocks that are ``AHEAD_S`` apart; between two readings passes what ``lost_s`` says, again and again."""

    def __init__(self, *lost_s: float) -> None:
        self._now_s = 100.0
        self._lost_s = itertools.cycle(lost_s)

    def monotonic(self) -> float:
        self._now_s += next(self._lost_s)
        return self._now_s

    def time(self) -> float:
        return self.monotonic() + AHEAD_S


@pytest.mark.parametrize(
    "lost_s", [(0.0,), (0.03, 0.03, 0.03, 0.0, 0.0), (0.5, 0.0, 0.0, 0.0, 0.04, 0.0, 0.04), (0.0, 0.02, 0.0, 0.0)]
)
def test_time_in_which_a_process_waits_is_no_difference_of_clocks(
    monkeypatch: pytest.MonkeyPatch, lost_s: tuple[float, ...]
) -> None:
    monkeypatch.setattr(handshake, "time", Clocks(*lost_s))
    assert handshake._wall_ahead_s() == pytest.approx(AHEAD_S, abs=1e-6)
