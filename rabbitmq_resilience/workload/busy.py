"""Measure how busy this machine is."""

from __future__ import annotations

import psutil


class BusySince:
    """Measure how busy this machine has been since this object was created."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    @property
    def ratio(self) -> float:
        """Return the used share of all processors' time, from 0 to 1."""
        spent = [now - before for now, before in zip(psutil.cpu_times(), self._before, strict=True)]
        whole = sum(spent)
        return 1 - (psutil.cpu_times().idle - self._before.idle) / whole if whole else 0.0
