"""Draw values for each message from its number alone, so that the checkers know what the load generator drew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_STEPS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST = np.uint64(31)


def draws(publisher: int, sequence: Array, *, seed: int) -> npt.NDArray[np.uint64]:
    """Return a pseudo-random number for each sequence. The method is splitmix64, whose steps mix all bits of a 64-bit
    counter."""
    counter = np.array([seed & 0xFFFF_FFFF_FFFF_FFFF, publisher], np.uint64)
    for _ in range(2):  # so that neighbouring publishers and seeds have nothing in common
        counter = _mixed((counter + np.uint64(1)) * _GOLDEN)
    start = counter[:1] ^ (counter[1:] << np.uint64(1))
    return _mixed((sequence.astype(np.uint64) + start) * _GOLDEN)


def _mixed(number: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    for shift, factor in _STEPS:
        number = (number ^ (number >> shift)) * factor
    return number ^ (number >> _LAST)


@dataclass(frozen=True)
class Weighted:
    """Draw one of several choices, by index, with probabilities in proportion to ``weights``."""

    weights: Sequence[int]
    seed: int

    def of(self, publisher: int, sequence: Array) -> npt.NDArray[np.intp]:
        """Return the index that is drawn for each message."""
        ends = np.cumsum(self.weights).astype(np.uint64)
        drawn = draws(publisher, sequence, seed=self.seed) % ends[-1]
        index: npt.NDArray[np.intp] = np.searchsorted(ends, drawn, "right")
        return index


#: The seed of priorities: they are drawn independently of other draws, and equally in each run.
_OF_PRIORITIES = 0x7072696F


@dataclass(frozen=True)
class Priorities:
    """Draw the priorities of messages. ``values``: the priorities; one that occurs twice is drawn twice as often."""

    values: tuple[int, ...]

    def of(self, publisher: int, sequence: Array) -> npt.NDArray[np.uint8]:
        """Return the priority of each message."""
        drawn = Weighted((1,) * len(self.values), _OF_PRIORITIES).of(publisher, sequence)
        return np.array(self.values, np.uint8)[drawn]


#: The seed of rejections: they are drawn in the same way.
_OF_REJECTIONS = 0x72656A65


@dataclass(frozen=True)
class Rejections:
    """Draw the messages that consumers reject: about one in ``one_in``."""

    one_in: int

    def of(self, publisher: int, sequence: Array) -> npt.NDArray[np.bool_]:
        """Return whether each message is rejected."""
        drawn: npt.NDArray[np.bool_] = draws(publisher, sequence, seed=_OF_REJECTIONS) % np.uint64(self.one_in) == 0
        return drawn
