"""Judge over many nights how often known violations occur that happen in some runs only, and whether that changed.

The test is a stratified exact test of Fisher. It asks how many of the latest runs would be hits if the hits of each
scenario were distributed over its runs at random (R. A. Fisher, The Design of Experiments, 1935; N. Mantel and
W. Haenszel, Journal of the National Cancer Institute 22, 1959). So a night that plays other scenarios than the night
before is no change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from math import comb

import numpy as np

from rabbitmq_resilience.extensions.nights.night_file import Night
from rabbitmq_resilience.report.rate import Rate

#: The fewest runs on either side of a change. The latest tenth of all runs is tested, then more in steps of a fifth;
#: fewer runs would be another random draw each night.
RUNS_MIN = 5
LATEST_MIN = 0.1
MORE_BY = 1.2
#: The highest probability of a false alarm for one rate at one moment. Many moments are tested, and again each night.
#: With this value, fewer than one of a hundred series of 30 nights has a false alarm (tests/nights/test_rates.py).
CHANCE_MAX = 0.0003


@dataclass(frozen=True, order=True)
class Where:
    """The platform of a rate: a version, a driver and a machine. Rates of different platforms are not mixed."""

    broker_version: str
    driver: str
    machine: str


@dataclass(frozen=True)
class NightOutcome:
    """A run that came to a verdict. ``night``: when its night began. ``hit``: whether the violation was seen."""

    night: str
    scenario: str
    hit: bool


@dataclass(frozen=True)
class RateChange:
    """A change of a rate from the night ``since`` on. ``chance``: the probability of such a difference by chance."""

    since: str
    before: Rate
    after: Rate
    chance: float

    @property
    def is_more(self) -> bool:
        """Return whether the violation is more frequent than before."""
        return self.after.hits * self.before.runs > self.before.hits * self.after.runs


@dataclass(frozen=True)
class KnownRate:
    """How often a known violation was seen on a platform.

    ``runs``: all runs with a verdict of the scenarios that have shown it there. ``change``: the change of the rate;
    None if there is none."""

    known: str
    where: Where
    runs: Sequence[NightOutcome]
    change: RateChange | None

    @property
    def overall(self) -> Rate:
        """Return the rate of all runs."""
        return rate(self.runs)

    def of_night(self, night: str) -> Rate | None:
        """Return the rate of one night; None if none of the scenarios came to a verdict in it."""
        played = [run for run in self.runs if run.night == night]
        return rate(played) if played else None


def rate(runs: Sequence[NightOutcome]) -> Rate:
    """Return the rate of hits in ``runs``."""
    return Rate(sum(run.hit for run in runs), len(runs))


def known_rates(nights: Iterable[Night]) -> list[KnownRate]:
    """Return the rate of each known violation that was seen, on each platform. ``nights``: oldest first."""
    by_violation = dict(_by_violation(list(nights)))
    found = []
    for (known, where), runs in sorted(by_violation.items()):
        found.append(KnownRate(known, where, runs, change(runs, looks=len(by_violation))))
    return found


def change(runs: Sequence[NightOutcome], *, looks: int = 1) -> RateChange | None:
    """Return the likeliest change of the rate in ``runs`` (oldest first); None if chance may be the cause.

    ``looks``: how many rates are tested together."""
    splits = [(chance(runs[:i], runs[i:]), i) for i in _splits(runs)]
    least, i = min(splits, default=(1.0, 0))
    return RateChange(runs[i].night, rate(runs[:i]), rate(runs[i:]), least) if least * looks <= CHANCE_MAX else None


def chance(before: Sequence[NightOutcome], after: Sequence[NightOutcome]) -> float:
    """Return the two-sided probability that as many of the hits, or as few, fall on ``after`` by chance."""
    strata = [_stratum(before, after, scenario) for scenario in {run.scenario for run in after}]
    dealt = reduce(np.convolve, strata, np.ones(1))
    hits = sum(run.hit for run in after)
    return float(min(1.0, 2 * min(dealt[: hits + 1].sum(), dealt[hits:].sum())))


def _stratum(
    before: Sequence[NightOutcome], after: Sequence[NightOutcome], scenario: str
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the probabilities that 0, 1, 2 ... of a scenario's hits fall on its runs in ``after``: hypergeometric."""
    late = [run.hit for run in after if run.scenario == scenario]
    every = [*late, *(run.hit for run in before if run.scenario == scenario)]
    hits, runs = sum(every), len(every)
    dealings = comb(runs, len(late))
    return np.array([comb(hits, x) * comb(runs - hits, len(late) - x) / dealings for x in range(len(late) + 1)])


def _splits(runs: Sequence[NightOutcome]) -> Iterator[int]:
    """Yield the indexes at which the latest runs may begin: always with a night."""
    begins = [i for i in range(1, len(runs)) if runs[i].night != runs[i - 1].night]
    at_least = max(RUNS_MIN, LATEST_MIN * len(runs))
    for i in takewhile(lambda i: i >= RUNS_MIN, reversed(begins)):
        if len(runs) - i >= at_least:
            yield i
            at_least = MORE_BY * (len(runs) - i)


def _by_violation(nights: Sequence[Night]) -> Iterator[tuple[tuple[str, Where], list[NightOutcome]]]:
    runs: dict[Where, list[tuple[str, NightOutcome]]] = {}
    for night in nights:
        for played in night.played:
            where = Where(played.broker_version or "?", played.driver or "?", night.header.machine.id)
            if played.verdict != "UNKNOWN":
                run = NightOutcome(night.header.night, played.scenario, hit=played.known is not None)
                runs.setdefault(where, []).append((played.known or "", run))
    for where, every in runs.items():
        shown: Mapping[str, set[str]] = {
            known: {run.scenario for name, run in every if name == known} for known, _ in every if known
        }
        for known, scenarios in shown.items():
            own = [
                NightOutcome(run.night, run.scenario, hit=name == known)
                for name, run in every
                if run.scenario in scenarios
            ]
            yield (known, where), own
