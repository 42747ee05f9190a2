"""What asks a command to end: the first time in order, the second time at once."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from rabbitmq_resilience.tools.closing import Closing


class Interrupts(Closing):
    """SIGINT and SIGTERM until ``close``. The second raises KeyboardInterrupt wherever the program is."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {
            number: signal.signal(number, self._taken) for number in (signal.SIGINT, signal.SIGTERM)
        }

    def close(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def end_if_asked(self) -> None:
        """Where nothing has begun that could end in order."""
        if self.asked:
            raise KeyboardInterrupt

    def _taken(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
