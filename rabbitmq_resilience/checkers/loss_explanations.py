"""Choose which side of each split was trusted in the end: the one that explains the most."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]

#: Up to this number, all ways to choose one side of each split are tried.
CHOICES_MAX = 256


def most_explained(choices: Sequence[Sequence[Flags]]) -> tuple[Flags, ...]:
    """Return one set of each split, so that together they explain the most; nearly the most, if there are many ways.

    ``choices`` has, for each split, one set for each side that may have been trusted: flags of equal length, set for
    what that side explains.
    """
    choices = [list({flags.tobytes(): flags for flags in sets}.values()) for sets in choices]
    if math.prod(map(len, choices)) <= CHOICES_MAX:
        return max(itertools.product(*choices), key=_size)
    chosen: list[Flags] = []
    for sets in choices:
        chosen.append(max(sets, key=lambda more: _size([*chosen, more])))
    return tuple(chosen)


def _size(sets: Sequence[Flags]) -> int:
    return int(np.count_nonzero(np.logical_or.reduce(sets))) if sets else 0
