"""Histories of a load that is taken and delivered at rates that are curves over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rabbitmq_resilience.checkers.flow import SteadyFlow
from rabbitmq_resilience.checkers.verdict import Finding, History, Verdict
from tests.invariants import literal
from tests.invariants.literal import cluster, deliver, event, phases, queues, us

STEADY_S, DRAIN_S = 1.0, 31.0
TARGET = 100
IN_FLIGHT = 30

#: A number of messages a second at a moment in s since the load began, and how long one takes in s.
Curve = Callable[[float], float]


def load(rate_per_s: float | None = TARGET, *, in_flight: int | None = IN_FLIGHT, **fields: Any) -> Any:
    told = {"rate_per_s": rate_per_s, "variable_rate": [], "publishers": 1, "in_flight": in_flight, **fields}
    return event(11, "load", begins_us=us(11), **told)


CONNECTED = event(0.5, "worker", worker="publisher-0", event="connected", node="a1", detail="", life=0)


def history(
    taken: Curve,
    latency: Curve = lambda _: 0.02,
    *events: Any,
    delivered: Curve | None = None,
    in_flight_s: float = 0.4,
    told: Any = None,
    lanes: int = 1,
    end_s: float = DRAIN_S,
) -> History:
    """Messages are confirmed at the rate ``taken``, each ``in_flight_s`` after it was sent, and received after
    ``latency``; or, where it is stated, at the rate ``delivered``, the oldest first."""
    moments = spread(taken, end_s)
    rows = [
        {
            **literal.publish(n, publisher=0, queue=lane, lane=lane),
            "due_us": us(at_s - in_flight_s),
            "sent_us": us(at_s - in_flight_s),
            "outcome_us": us(at_s),
        }
        for n, at_s in enumerate(moments)
        for lane in range(lanes)
    ]
    if delivered is None:
        received = [at_s - in_flight_s + latency(at_s - STEADY_S) for at_s in moments]
    else:
        received = [max(at_s, sent_s) for at_s, sent_s in zip(spread(delivered, end_s), moments, strict=False)]
    got = [deliver(n, at_s, queue=lane) for n, at_s in enumerate(received) for lane in range(lanes)]
    whole = [
        cluster(),
        queues(*[f"q{i}" for i in range(lanes)]),
        phases(steady=STEADY_S, chaos=11, recovery=15, drain=end_s, end=end_s + 5),
        CONNECTED,
        told or load(),
    ]
    return literal.history(rows, got, [*whole, *events])


def spread(curve: Curve, end_s: float = DRAIN_S) -> list[float]:
    """Moments as dense as the curve is high."""
    moments, owed, at_s = [], 0.0, STEADY_S
    while at_s < end_s - 0.0025:
        owed += curve(at_s - STEADY_S) / 200
        while owed >= 1:
            moments.append(at_s)
            owed -= 1
        at_s += 0.005
    return moments


def check(past: History, **bounds: Any) -> Finding:
    return SteadyFlow.model_validate(bounds).check(past)


def answer(past: History, **bounds: Any) -> tuple[Verdict, str]:
    finding = check(past, **bounds)
    return finding.verdict, str(finding.numbers["answer"])


def in_turn(high: float, low: float, every_s: float) -> Curve:
    return lambda at_s: low if (at_s // every_s) % 2 else high
