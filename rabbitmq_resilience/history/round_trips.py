"""Read the raw round trips of a run, way by way."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rabbitmq_resilience.history.events import Event, RoundTripsEvent
from rabbitmq_resilience.model.links import is_balancer, is_client

#: The kinds of ways, by the ends between which they lead.
KINDS = ("clients", "balancers", "brokers")


@dataclass(frozen=True)
class Distribution:
    """The distribution of the round trips over one way. ``lost`` were not answered, ``answered`` were. Only answered
    ones have numbers, all in ms; these are NaN if there is none."""

    answered: int
    lost: int
    least_ms: float
    mean_ms: float
    p99_ms: float
    max_ms: float
    deviation_ms: float

    @classmethod
    def of(cls, trips_ms: Iterable[float | None]) -> Self:
        """Return the distribution of these round trips in ms; None stands for one that was not answered."""
        every = list(trips_ms)
        took = sorted(ms for ms in every if ms is not None)
        lost = len(every) - len(took)
        if not took:
            return cls(0, lost, *[math.nan] * 5)
        p99 = took[math.ceil(0.99 * len(took)) - 1]
        return cls(len(took), lost, took[0], statistics.fmean(took), p99, took[-1], statistics.pstdev(took))


@dataclass(frozen=True)
class RoundTripInterval:
    """The measurements until ``t_us`` since the spell before."""

    t_us: int
    trips_ms: Mapping[str, Sequence[float | None]]


def spells(events: Iterable[Event]) -> list[RoundTripInterval]:
    """Return the spells of a run, in the order of their times."""
    return [RoundTripInterval(event.t_us, event.trips_ms) for event in events if isinstance(event, RoundTripsEvent)]


def distributions(
    series: Iterable[RoundTripInterval], *, from_us: float = -math.inf, until_us: float = math.inf
) -> Mapping[str, Distribution]:
    """Return the distribution of each way, over the spells that ended within that time."""
    every: dict[str, list[float | None]] = {}
    for spell in series:
        if from_us < spell.t_us <= until_us:
            for way, trips_ms in spell.trips_ms.items():
                every.setdefault(way, []).extend(trips_ms)
    return {way: Distribution.of(trips_ms) for way, trips_ms in sorted(every.items())}


def kind_of(way: str) -> str:
    """Return the kind of a way, by its recorded name ("client:all->b1"): clients, balancers or brokers."""
    ends = way.split("->")
    if all(map(is_client, ends)):
        return "clients"
    return next((("balancers" if is_balancer(end) else "clients") for end in ends if is_client(end)), "brokers")


@dataclass(frozen=True)
class RoundTripSample:
    """One round trip over each way at about the moment ``t_us``, in ms; None for one that was not answered."""

    t_us: float
    trips_ms: Mapping[str, float | None]

    def of_kind(self, kind: str) -> list[float | None]:
        return [ms for way, ms in self.trips_ms.items() if kind_of(way) == kind]


def rounds(series: Iterable[RoundTripInterval]) -> Iterator[RoundTripSample]:
    """Yield the rounds in the order of their times. The rounds of a spell are at equal distances since the spell
    before. Those of the first spell, which took hardly any time, are at its end."""
    before_us: int | None = None
    for spell in series:
        count = max(map(len, spell.trips_ms.values()), default=0)
        since_us = spell.t_us if before_us is None else before_us
        for place in range(count):
            trips_ms = {way: trips[place] for way, trips in spell.trips_ms.items() if place < len(trips)}
            yield RoundTripSample(since_us + (spell.t_us - since_us) * (place + 1) / count, trips_ms)
        before_us = spell.t_us
