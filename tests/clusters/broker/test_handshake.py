"""When an answer came is told by the kernel's clock, whatever a process has to wait for a processor meanwhile."""

from __future__ import annotations

import itertools
import socket
import struct
import sys
from typing import Any

import pytest

from rabbitmq_resilience.sut.broker import handshake

AHEAD_S = 1_700_000_000.0
#: Of Linux, see socket(7).
SO_TIMESTAMPNS = 35


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


class Answered:
    """A connection with an answer that came at that moment of the monotonic clock; the kernel tells it by the other."""

    family = socket.AF_INET

    def __init__(self, came_s: float) -> None:
        self._came_s = AHEAD_S + came_s

    def recvmsg(self, _bytes_max: int, _notes_max: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        answer = b"\x01\x00\x00" + bytes(4) + b"\x00\x0a\x00\x0a"
        stamp = struct.pack("@ll", int(self._came_s), round(self._came_s % 1 * 1e9))
        return answer, [(socket.SOL_SOCKET, SO_TIMESTAMPNS, stamp)], 0, None

    def setsockopt(self, _level: int, option: int, _value: int) -> None:
        assert option == SO_TIMESTAMPNS

    def settimeout(self, _timeout_s: float) -> None:
        """It has come."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux notes when an answer came")
@pytest.mark.parametrize(
    "lost_s", [(0.0,), (0.03, 0.03, 0.03, 0.0, 0.0), (0.5, 0.0, 0.0, 0.0, 0.04, 0.0, 0.04), (0.0, 0.02, 0.0, 0.0)]
)
def test_time_in_which_a_process_waits_is_no_difference_of_clocks(
    monkeypatch: pytest.MonkeyPatch, lost_s: tuple[float, ...]
) -> None:
    monkeypatch.setattr(handshake, "time", Clocks(*lost_s))
    connected: Any = Answered(99.0)
    with handshake.Probe(connected, handshake.AMQP_GREETING) as probe:
        assert probe.receive(timeout_s=1) == pytest.approx(99.0, abs=1e-6)
