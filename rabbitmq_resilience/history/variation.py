"""Represent a number of the load that changes in steps, such as the target rate, and give its value at any moment."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

#: Start and end (monotonic us), and the value between them.
Piece = tuple[float, float, float | None]


@dataclass(frozen=True)
class Variation:
    """A value that changes in steps. ``plain`` holds outside the ``steps`` (value, seconds). The steps are played once,
    one after another, from ``begins_us`` on (monotonic; None: they have not begun). A value of None means no limit."""

    plain: float | None
    steps: tuple[tuple[float | None, float], ...] = ()
    begins_us: float | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any], plain: str, steps: str, *, begins_us: float | None = None) -> Self:
        """Build the variation from the fields of those names: the plain value, and its steps as ``[{plain: ...,
        "for_s": ...}]``."""
        return cls(values[plain], tuple((step[plain], step["for_s"]) for step in values[steps]), begins_us)

    @property
    def varies(self) -> bool:
        return bool(self.steps)

    @cached_property
    def _edges_us(self) -> list[float]:
        """Return the beginning of each step, and the end of the last one."""
        if self.begins_us is None:
            return []
        lengths_us = (for_s * 1e6 for _, for_s in self.steps)
        return list(itertools.accumulate(lengths_us, initial=self.begins_us))

    def at(self, t_us: float) -> float | None:
        """Return the value at that moment."""
        begun = bisect_right(self._edges_us, t_us)
        return self.steps[begun - 1][0] if 0 < begun < len(self._edges_us) else self.plain

    def pieces(self, start_us: float, end_us: float) -> Iterator[Piece]:
        """Yield the pieces of that time in which the value does not change; neighbours may have equal values."""
        inside = [edge for edge in self._edges_us if start_us < edge < end_us]
        for start, end in itertools.pairwise([start_us, *inside, end_us]):
            yield start, end, self.at(start)
