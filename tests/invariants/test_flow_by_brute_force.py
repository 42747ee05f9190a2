"""What a cluster does with too much: generated shapes of known answers, and a slow second way to the same answer."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.flow import Answer
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.history import Outcome
from tests.invariants import literal
from tests.invariants.flowing import Curve, check, history, in_turn, load
from tests.invariants.literal import Row


def slowly(past: History, *, window_s: float = 1) -> str:  # noqa: C901 - all in one place, to be read from top to end
    """A second way, message by message: the answer of a history without faults whose load does not vary."""
    starts = {e.phase: e.t_us for e in past.events if e.kind == "phase"}  # type: ignore[attr-defined]
    target = next(e.rate_per_s for e in past.events if e.kind == "load")  # type: ignore[attr-defined]
    count = int((starts["drain"] - starts["steady"]) / (window_s * 1e6))
    taken, owed, got = [0] * count, [0] * count, [0] * count
    took: list[list[float]] = [[] for _ in range(count)]

    def place(t_us: int) -> int | None:
        which = math.floor((t_us - starts["steady"]) / (window_s * 1e6))
        return which if 0 <= which < count else None

    sent = {}
    for row in (row for batch in past.publishes() for row in batch.to_pylist()):
        sent[row["publisher"], row["sequence"], row["queue"]] = row["sent_us"]
        at = place(row["outcome_us"])
        if row["outcome"] == Outcome.CONFIRMED and at is not None:
            owed[at] += 1
            taken[at] += row["lane"] == 0
    first: dict[Any, int] = {}
    for row in (row for batch in past.deliveries() for row in batch.to_pylist()):
        key = row["publisher"], row["sequence"], row["queue"]
        if key in sent and row["intact"]:
            first[key] = min(first.get(key, row["received_us"]), row["received_us"])
    for key, received_us in first.items():
        at = place(received_us)
        if at is not None:
            got[at] += 1
            took[at].append((received_us - sent[key]) / 1000)
    third = count // 3
    if max(returns(taken), returns(got)) >= 3:
        return Answer.SWINGS.value
    best = max(mean(got[:third]), mean(got[third : count - third]))
    if mean(owed[count - third :]) < best / 2 or mean(got[count - third :]) < best / 2:
        return Answer.COLLAPSES.value
    medians = [statistics.median(part) if part else None for part in took]
    before = sorted(value for value in medians[:third] if value is not None)
    after = sorted(value for value in medians[count - third :] if value is not None)
    grows = False
    if before and after:
        old, new = statistics.median(before), statistics.median(after)
        three_quarters, a_quarter = before[math.ceil(0.75 * len(before)) - 1], after[math.ceil(len(after) / 4) - 1]
        grows = new >= 2 * old and new >= old + 100 and a_quarter > three_quarters
    if grows or sum(got) < 0.95 * sum(owed):
        return Answer.GROWS.value
    whole = target is not None and sum(taken) >= 0.95 * target * count * window_s
    return (Answer.HOLDS if whole else Answer.SLOWS).value


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def returns(counts: Sequence[float]) -> int:
    """High, low and high again: read off as a word."""
    most = sorted(counts)[math.ceil(0.9 * len(counts)) - 1]
    levels = ["H" if 3 * n > 2 * most else "L" if 3 * n < most else "" for n in counts]
    word = "".join(levels).lstrip("L")
    return sum(1 for part in word.split("H")[1:-1] if part)


@st.composite
def shapes(draw: st.DrawFn) -> History:
    """Rates and latencies that change at random every few seconds, some of which fall apart."""
    chance = random.Random(draw(st.integers(0, 2**32)))  # noqa: S311
    levels = draw(st.lists(st.sampled_from([0, 20, 50, 90, 100, 130]), min_size=1, max_size=8))
    out = draw(st.one_of(st.none(), st.lists(st.sampled_from([0, 30, 60, 90, 110]), min_size=1, max_size=8)))
    slow_s = draw(st.lists(st.sampled_from([0.01, 0.1, 0.3, 1.0, 3.0]), min_size=1, max_size=4))
    end_s = draw(st.integers(16, 26))

    def of(values: Sequence[float]) -> Curve:
        return lambda at_s: values[min(len(values) - 1, int(at_s / (end_s - 1) * len(values)))]

    past = history(
        of(levels),
        of(slow_s),
        delivered=None if out is None else of(out),
        told=load(draw(st.sampled_from([None, 50, 100, 150]))),
        lanes=draw(st.integers(1, 2)),
        end_s=end_s,
    )
    rows = [row for batch in past.publishes() for row in batch.to_pylist()]
    got: list[Row] = [row for batch in past.deliveries() for row in batch.to_pylist()]
    got += [{**row, "received_us": row["received_us"] + 2_000_000} for row in chance.sample(got, len(got) // 10)]
    chance.shuffle(got)
    for row in chance.sample(rows, len(rows) // 20):
        row["outcome"] = Outcome.NACKED
    return literal.history(rows, got, past.events)


@given(shapes())
def test_the_same_as_slowly(past: History) -> None:
    finding = check(past)
    assert finding.numbers["answer"] == slowly(past)


@given(
    shape=st.sampled_from(["collapses", "swings", "slows", "grows", "holds"]),
    seed=st.integers(0, 2**32),
    noise=st.floats(0, 0.15),
    length_s=st.integers(24, 48),
)
def test_known_shapes(shape: str, seed: int, noise: float, length_s: int) -> None:
    """Each with a rate that is off by as much as ``noise``, window by window."""
    chance = random.Random(seed)  # noqa: S311
    off = [1 + chance.uniform(-noise, noise) for _ in range(60)]
    every_s = chance.uniform(2.0, length_s / 12 + 1)
    rate: Curve = {
        "collapses": lambda at_s: 80 if at_s < length_s / 2 else 15,
        "swings": in_turn(85, 8, every_s),
        "slows": lambda _: 60,
        "grows": lambda _: 60,
        "holds": lambda _: 116,
    }[shape]
    latency: Curve = (lambda at_s: 0.1 + at_s / 8) if shape == "grows" else lambda _: 0.02
    past = history(lambda at_s: rate(at_s) * off[int(at_s)], latency, told=load(in_flight=10), end_s=1 + length_s)
    expected = {
        "collapses": Answer.COLLAPSES,
        "swings": Answer.SWINGS,
        "slows": Answer.SLOWS,
        "grows": Answer.GROWS,
        "holds": Answer.HOLDS,
    }
    assert check(past).numbers["answer"] == expected[shape].value
