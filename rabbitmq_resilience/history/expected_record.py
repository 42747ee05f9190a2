"""Describe what a record has to hold if it is complete, as known from outside the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Account:
    """The counts of a publisher or a consumer, of all its lives together, from memory that outlives it.

    ``sent``, ``confirmed``, ``refused`` and ``unknown`` are a publisher's. ``recorded`` is the number of written rows.
    A life that is killed may have written up to ``rows_a_write`` more. ``settled`` rows were added for lives that were
    killed. ``streams``: by life, whether its stream has its end mark.
    """

    worker: str
    index: int
    recorded: int
    rows_a_write: int
    streams: Mapping[int, bool]
    publishes: bool = False
    sent: int = 0
    confirmed: int = 0
    refused: int = 0
    unknown: int = 0
    settled: int = 0


@dataclass(frozen=True)
class Recorded:
    """What a record has to hold. ``complete``: whether the run recorded that nothing more was to come. ``troubles``:
    the problems of the files themselves, for people. ``steps``: the faults of the schedule, in its order. ``accounts``:
    one for each worker of the load."""

    complete: bool = True
    troubles: Sequence[str] = ()
    steps: Sequence[str] = ()
    accounts: Sequence[Account] = ()
