"""What is known of a record from outside of it: what it has to hold, if all of it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Account:
    """What a publisher or a consumer counted, in memory that outlives it, of all its lives together.

    ``sent``, ``confirmed``, ``refused`` and ``unknown`` are a publisher's. ``recorded`` is the number of rows that were
    written, None where nobody counted them; a life that is killed may have written up to ``rows_a_write`` more.
    ``settled`` rows were added for lives that were killed. ``streams`` has each life's stream, and whether it has its
    end mark.
    """

    worker: str
    index: int
    recorded: int | None
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
    """``complete``: whether the run came to write that nothing was to come. ``troubles``: what is wrong with the files
    themselves, for people. ``steps``: the faults of the schedule, in its
    order. ``accounts``: one of each worker of the load."""

    version: int
    complete: bool = True
    troubles: Sequence[str] = ()
    steps: Sequence[str] = ()
    accounts: Sequence[Account] = ()
