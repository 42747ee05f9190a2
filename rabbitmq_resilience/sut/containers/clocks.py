"""Give a node in a container its own clock, by libfaketime: real time jumps, monotonic time goes on.

Source of the variables: libfaketime's README. libfaketime reads its file again only once a second, because a broker
asks for the time very often.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: The library's place in the images that set-up builds. The official images lack it.
LIBRARY = "/usr/local/lib/libfaketime.so"


class NodeClock:
    """The clock of one node, in a ``file`` that its processes read. Before the file exists, the node has the machine's
    clock."""

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
            "DONT_FAKE_MONOTONIC": "1",  # the same variable before 0.9.10
            "NO_FAKE_STAT": "1",
        }

    def turn(self, *, by_s: float) -> None:
        """Turn the clock forwards, or backwards if ``by_s`` is negative. Repeated turns add up."""
        self._ahead_s += by_s
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{self._ahead_s:+.3f}\n")
        draft.replace(self._file)
