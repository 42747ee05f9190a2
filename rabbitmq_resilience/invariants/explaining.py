"""Which side of each split was trusted in the end, by what that explains."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]

#: So many ways to choose one side of each split are all looked at.
CHOICES_MAX = 256


def most_explained(choices: Sequence[Sequence[Flags]]) -> tuple[Flags, ...]:
    """``choices``: of each split the sets of what is explained if one or another side was trusted, as flags of equal
    length. Returns one of each split, so that together they explain the most; nearly the most, where there are many."""
    choices = [list({flags.tobytes(): flags for flags in sets}.values()) for sets in choices]
    if math.prod(map(len, choices)) <= CHOICES_MAX:
        return max(itertools.product(*choices), key=_size)
    chosen: list[Flags] = []
    for sets in choices:
        chosen.append(max(sets, key=lambda more: _size([*chosen, more])))
    return tuple(chosen)


def _size(sets: Sequence[Flags]) -> int:
    return int(np.count_nonzero(np.logical_or.reduce(sets))) if sets else 0
