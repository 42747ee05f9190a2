"""Measure how often the trend finds a change although there is none, and how soon it finds a real one.

The series are made: noise of several kinds, and real numbers of one scenario that was played again and again
(`benchmarks/recorded_nights.json`), in random order. A false alarm is a change that is found in 30 nights of the same
level: after the last night, and also after any of the nights, as users look at the trend each morning. A step of 30 %
upwards in recovery is found if the trend reports a change at its night, or at most two nights away.

    .venv/bin/python -m benchmarks.change_points [--series 100]

The exit status is 1 if there are more false alarms than chance explains at one in a hundred. It is also 1 if a step
with noise of at most 8 % and 20 nights before it is not found within five nights in nine of ten series.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.extensions.nights.change_points import NIGHTS_MIN, change_points

NIGHTS = 30
STEP = 1.3
WITHIN_NIGHTS = 5
ASIDE_NIGHTS = 2
FALSE_ALARMS_MAX = 0.01
FOUND_MIN = 0.9
HELD_NOISE_MAX = 0.08
HELD_BEFORE = 20
RECORDED = Path(__file__).parent / "recorded_nights.json"

Floats = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Floats]


def _heavy(random: np.random.Generator, nights: int) -> Floats:
    return 10 + random.standard_t(2.5, nights)


def _outliers(random: np.random.Generator, nights: int) -> Floats:
    return random.normal(10, 1, nights) * np.where(random.random(nights) < 0.05, 4, 1)


def _mostly_nothing(random: np.random.Generator, nights: int) -> Floats:
    return np.asarray(np.where(random.random(nights) < 0.8, 0.0, random.uniform(1, 5, nights)))


def recorded() -> Mapping[str, Floats]:
    """Return {measurement: the numbers of all runs of the scenario}."""
    numbers = json.loads(RECORDED.read_text(encoding="utf-8"))["numbers"]
    return {name: np.array([value for value in values if value is not None]) for name, values in numbers.items()}


def noises() -> dict[str, Noise]:
    def shuffled(values: Floats) -> Noise:
        return lambda random, nights: random.permutation(values)[:nights]

    simulated: dict[str, Noise] = {
        "normal, 10 %": lambda random, nights: random.normal(10, 1, nights),
        "skewed (lognormal, 30 %)": lambda random, nights: random.lognormal(2, 0.3, nights),
        "heavy tails (Student, 2.5)": _heavy,
        "one night in 20 four times as long": _outliers,
        "four nights in five are 0": _mostly_nothing,
    }
    return simulated | {f"real {name}, shuffled": shuffled(values) for name, values in recorded().items()}


def false_alarms(noise: Noise, random: np.random.Generator, *, series: int) -> tuple[float, float]:
    """Return the shares of series in which a change is found after the last night, and after any night."""
    last = ever = 0
    for _ in range(series):
        values = noise(random, NIGHTS)
        looks = [bool(change_points(values[:nights])) for nights in range(NIGHTS_MIN, NIGHTS + 1)]
        last += looks[-1]
        ever += any(looks)
    return last / series, ever / series


def found_after(values: Floats, before: int) -> int | None:
    """Return the number of nights at the new level until the trend reports the change; None if it never does."""
    for after in range(1, len(values) - before + 1):
        if any(abs(change.first - before) <= ASIDE_NIGHTS for change in change_points(values[: before + after])):
            return after
    return None


def found(noise: Noise, random: np.random.Generator, *, before: int, series: int) -> tuple[float, float]:
    """Return the shares of steps that are found within WITHIN_NIGHTS, and within twice that."""
    taken = []
    for _ in range(series):
        values = noise(random, before + 2 * WITHIN_NIGHTS)
        values[before:] *= STEP
        taken.append(found_after(values, before) or math.inf)
    within = [sum(n <= limit for n in taken) / series for limit in (WITHIN_NIGHTS, 2 * WITHIN_NIGHTS)]
    return within[0], within[1]


def _spread(values: Floats) -> float:
    return float(1.4826 * np.median(np.abs(values / np.median(values) - 1)))


def _allowed(series: int) -> float:
    """Return the share of false alarms among ``series`` that a rate of one in 100 exceeds once in 1,000 times."""
    part, most = 0.0, 0
    for most in range(series + 1):
        chance = math.comb(series, most) * FALSE_ALARMS_MAX**most * (1 - FALSE_ALARMS_MAX) ** (series - most)
        part += chance
        if part >= 0.999:
            break
    return most / series


def _print_false_alarms(random: np.random.Generator, series: int) -> Iterator[bool]:
    print(f"False alarms, {series} series of {NIGHTS} nights each\n")
    print("| noise | found after the last night | found after any night |\n| --- | ---: | ---: |")
    for name, noise in noises().items():
        last, ever = false_alarms(noise, random, series=series)
        print(f"| {name} | {last:.1%} | {ever:.1%} |", flush=True)
        yield last <= _allowed(series) and ever <= _allowed(series)


def _row(cells: Iterable[str]) -> None:
    print("|", " | ".join(cells), "|", flush=True)


def _print_found(random: np.random.Generator, series: int) -> Iterator[bool]:
    befores = (10, 15, HELD_BEFORE, 25)
    print(f"\nA step of {STEP - 1:.0%}: found within {WITHIN_NIGHTS} nights (within twice as many), {series} series\n")
    _row(["noise", *(f"{before} nights before" for before in befores)])
    _row(["---", *("---:" for _ in befores)])
    for spread in (0.03, 0.05, HELD_NOISE_MAX, 0.1, 0.15, 0.2):

        def normal(random: np.random.Generator, nights: int, spread: float = spread) -> Floats:
            return random.normal(10, 10 * spread, nights)

        parts = [found(normal, random, before=before, series=series) for before in befores]
        _row([f"normal, {spread:.0%}", *(f"{five:.0%} ({ten:.0%})" for five, ten in parts)])
        if spread <= HELD_NOISE_MAX:
            yield parts[befores.index(HELD_BEFORE)][0] >= FOUND_MIN
    values = recorded()["recovery"]
    drawn = [found(lambda r, n: r.choice(values, n), random, before=before, series=series) for before in befores]
    _row([f"real recovery, {_spread(values):.0%}", *(f"{five:.0%} ({ten:.0%})" for five, ten in drawn)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=100)
    series = parser.parse_args().series
    random = np.random.default_rng(1)
    held = [*_print_false_alarms(random, series), *_print_found(random, series)]
    print(f"\n{sum(held)} of {len(held)} bounds are held")
    return 0 if all(held) else 1


if __name__ == "__main__":
    raise SystemExit(main())
