"""Was it the network, or RabbitMQ? Literal records, and generated ones against a slow way to the same."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.consequences import consequences
from rabbitmq_resilience.checkers.network import network
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.report.impact import network_text
from tests.invariants import literal
from tests.invariants.literal import cluster, event, phases, publish, queues, us
from tests.messages import Messages

Trips = Sequence[float | None]


def told(at_s: float, clients: Trips, brokers: Trips = ()) -> Any:
    trips = {"client:all->a1": list(clients), **({"a1->b1": list(brokers)} if brokers else {})}
    return event(at_s, "round_trips", trips_ms=trips)


def regularly(clients: float | None, brokers: float | None = 1.0, *, until_s: int = 96) -> list[Any]:
    return [told(0.5, [1.0] * 4), *(told(at_s, [clients] * 10, [brokers] * 10) for at_s in range(5, until_s, 5))]


def history(took_ms: Mapping[int, float], *events: Any, count: int = 100) -> History:
    """A message each half second, confirmed within 10 ms but for those in ``took_ms``."""
    rows = []
    for n in range(count):
        sent_us = us(1 + n / 2)
        rows.append({**publish(n), "sent_us": sent_us, "outcome_us": sent_us + round(1000 * took_ms.get(n, 10))})
    whole = [cluster(), queues("q1"), phases()]
    return literal.history(rows, (), [*whole, *events])


def measured(past: History) -> dict[str, Any]:
    found = network(past)
    assert found is not None
    return found


def test_nothing_is_reported_where_no_one_measured() -> None:
    assert network(history({})) is None
    assert network(literal.history()) is None
    assert "network" not in (consequences(history({})) or {})


def test_rabbitmq_was_slow(message: Messages) -> None:
    found = measured(history({40: 500}, regularly(2, 3)))
    assert (found["median_ms"], found["slowest_ms"], found["network_ratio"]) == (10, 500, 0.01)
    two = history({40: 500, 41: 400}, regularly(2, 3), count=150)
    slow = measured(two)
    assert (slow["slowest_ms"], slow["network_ratio"]) == (400, pytest.approx((5 / 500 + 5 / 400) / 2, abs=1e-4))
    message(network_text(slow))
    assert (consequences(two) or {})["network"] == slow


def test_the_network_was_slow_then(message: Messages) -> None:
    """By the round trips of the same time, and no others."""
    spells = [told(0.5, [1.0] * 4), *(told(at_s, [300.0 if at_s == 25 else 1.0] * 10) for at_s in range(5, 96, 5))]
    found = measured(history({40: 400, 41: 400}, *spells))
    assert found["network_ratio"] == 0.75
    message(network_text(found))
    assert "75%" in network_text(found)
    assert "clients 16" in network_text(found)
    assert measured(history({60: 400, 61: 400}, *spells))["network_ratio"] == pytest.approx(0.0025)


def test_without_round_trips_at_that_time_the_cause_is_not_known(message: Messages) -> None:
    found = measured(history({95: 400}, regularly(1, until_s=30)))
    assert (found["slowest_ms"], found["network_ratio"], found["network_ratio_max"]) == (400, None, None)
    message(network_text(found))


def test_a_single_slow_round_trip_leaves_the_cause_open(message: Messages) -> None:
    spells = [
        told(0.5, [1.0] * 4),
        *(told(at_s, [300.0 if at_s == 25 else 1.0, *[1.0] * 9]) for at_s in range(5, 96, 5)),
    ]
    found = measured(history({39: 400}, *spells))
    assert (found["network_ratio"], found["network_ratio_max"]) == (pytest.approx(0.0025), 0.75)
    message(network_text(found))


def test_where_a_way_did_not_answer_it_was_the_network(message: Messages) -> None:
    spells = [told(0.5, [1.0] * 4), *(told(at_s, [None if at_s == 25 else 1.0] * 10) for at_s in range(5, 96, 5))]
    found = measured(history({40: 9000, 41: 9000}, *spells))
    assert found["network_ratio"] == pytest.approx(10 / 21, abs=0.03)
    assert found["round_trips"]["clients"]["lost"] == 10
    message(network_text(found))
    assert "10 lost" in network_text(found)


def test_a_way_that_took_longer_than_the_confirm_was_none_of_its_ways() -> None:
    assert measured(history({40: 500, 41: 500}, regularly(100, 501)))["network_ratio"] == 0.2
    assert measured(history({40: 500, 41: 500}, regularly(100, None)))["network_ratio"] == 0.2
    assert measured(history({40: 1999, 41: 1999}, regularly(1, None)))["network_ratio"] == pytest.approx(0.0005)
    assert measured(history({40: 2000, 41: 2000}, regularly(1, None)))["network_ratio"] == 1


def test_the_way_between_brokers_counts_too() -> None:
    found = measured(history({40: 500, 41: 500}, regularly(1, 400)))
    assert found["network_ratio"] == pytest.approx(401 / 500)
    assert found["round_trips"]["brokers"] == {
        "answered": 190,
        "lost": 0,
        "mean_ms": 400,
        "p99_ms": 400,
        "max_ms": 400,
        "deviation_ms": 0,
    }


def test_nothing_was_confirmed(message: Messages) -> None:
    found = measured(history({}, regularly(1, None), count=0))
    assert (found["median_ms"], found["slowest_ms"], found["network_ratio"]) == (None, None, None)
    message(network_text(found))
    assert "190 lost" in network_text(found)


def slowly(past: History) -> tuple[float, float | None, float | None]:
    """The least of the slowest hundredth, ms, and the network's usual and largest part of them: message by message."""
    rows = [row for batch in past.publishes() for row in batch.to_pylist()]
    waits = [(row["sent_us"], row["outcome_us"]) for row in rows if row["outcome"] == Outcome.CONFIRMED]
    waits = [(sent, done) for sent, done in waits if us(10) - 9_000_000 <= sent < us(90)]
    took = sorted(done - sent for sent, done in waits)
    least = took[-math.ceil(len(took) / 100)]
    looks: list[tuple[float, str, float]] = []
    before = None
    for spell in (e for e in past.events if e.kind == "round_trips"):
        ways: Mapping[str, Trips] = spell.trips_ms  # type: ignore[attr-defined]
        since = spell.t_us if before is None else before
        for way, trips in ways.items():
            for place, ms in enumerate(trips):
                looks.append((since + (spell.t_us - since) * (place + 1) / 10, way, math.inf if ms is None else ms))
        before = spell.t_us
    ratios: list[float] = []
    largest: list[float] = []
    unknown = 0
    for sent, done in (wait for wait in waits if wait[1] - wait[0] >= least):
        took_ms = (done - sent) / 1000
        near = [(way, ms) for t_us, way, ms in looks if sent - 750_000 <= t_us <= done + 750_000]
        unknown += not near
        usual = {way: sorted(ms for name, ms in near if name == way) for way, _ in near}
        ways_ms, most_ms = {}, {}
        for way, trips in usual.items():
            ways_ms[way] = trips[(len(trips) - 1) // 2]
            most_ms[way] = max((ms for ms in trips if ms <= took_ms), default=0)
            if math.inf in trips:
                silent = sum(ms == math.inf for ms in trips) / len(trips)
                ways_ms[way] = silent * took_ms if took_ms >= 2000 else math.inf
                most_ms[way] = max(most_ms[way], silent * took_ms if took_ms >= 2000 else 0)
        for of, found in ((ways_ms, ratios), (most_ms, largest)) if near else ():
            clients = [ms for way, ms in of.items() if "client" in way and ms <= took_ms]
            brokers = [ms for way, ms in of.items() if "client" not in way and ms <= took_ms]
            found.append(min(1.0, (max(clients, default=0) + max(brokers, default=0)) / max(took_ms, 0.001)))
    if unknown >= len(ratios):
        return least / 1000, None, None
    return least / 1000, statistics.median(ratios), statistics.median(largest)


TRIP = st.one_of(st.none(), st.floats(0.1, 400))


@given(
    took_ms=st.dictionaries(st.integers(0, 99), st.integers(0, 3000), max_size=20),
    ways=st.lists(st.tuples(*[st.lists(TRIP, min_size=10, max_size=10)] * 2), min_size=1, max_size=12),
)
def test_the_same_as_slowly(took_ms: Mapping[int, float], ways: Sequence[tuple[Trips, Trips]]) -> None:
    spells = [told(5 * place + 2, clients, brokers) for place, (clients, brokers) in enumerate(ways)]
    past = history(took_ms, *spells)
    found = measured(past)
    least_ms, *ratios = slowly(past)
    assert found["slowest_ms"] == pytest.approx(least_ms)
    for name, ratio in zip(("network_ratio", "network_ratio_max"), ratios, strict=True):
        assert found[name] == (None if ratio is None else pytest.approx(ratio, abs=1e-4))
