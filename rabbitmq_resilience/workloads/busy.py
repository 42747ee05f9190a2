"""How busy this machine is."""

from __future__ import annotations

import psutil


class BusySince:
    """How busy this machine has been since this was made."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()

    @property
    def ratio(self) -> float:
        """The part of all processors' time that was used."""
        spent = [now - before for now, before in zip(psutil.cpu_times(), self._before, strict=True)]
        whole = sum(spent)
        return 1 - (psutil.cpu_times().idle - self._before.idle) / whole if whole else 0.0
