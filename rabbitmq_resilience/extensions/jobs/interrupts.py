"""Handle signals that ask a command to end: the first one asks for an orderly end, the second one ends it at once."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from rabbitmq_resilience.tools.closing import Closing


class Interrupts(Closing):
    """Handle SIGINT and SIGTERM until ``close``. The first sets ``asked``; the second raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {
            number: signal.signal(number, self._taken) for number in (signal.SIGINT, signal.SIGTERM)
        }

    def close(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def end_if_asked(self) -> None:
        """Raise KeyboardInterrupt if an end was asked for. Call this if nothing runs that needs an orderly end."""
        if self.asked:
            raise KeyboardInterrupt

    def _taken(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
