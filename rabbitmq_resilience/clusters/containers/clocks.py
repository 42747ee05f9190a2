"""A clock of its own for a node in a container, by libfaketime: real time jumps, monotonic time goes on.

Source of the variables: libfaketime's README. It is asked to look at its file again each second, as a broker asks for
the time too often for every time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: Where the images that set-up builds have it; the official ones have none.
LIBRARY = "/usr/local/lib/libfaketime.so"


class Clock:
    """The clock of one node, in a ``file`` that its processes read; until that is there they have the machine's."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ahead_s = 0.0

    @property
    def environ(self) -> Mapping[str, str]:
        return {
            "LD_PRELOAD": LIBRARY,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",  # as it was called before 0.9.10
            "NO_FAKE_STAT": "1",
        }

    def turn(self, *, by_s: float) -> None:
        """Forwards, or backwards if negative; turned twice, it is ahead by the sum."""
        self._ahead_s += by_s
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{self._ahead_s:+.3f}\n")
        draft.replace(self._file)
