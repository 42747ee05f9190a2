"""Where publishers await no confirms, those messages alone are in order that were written to one connection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.order import Order
from tests.invariants.literal import cluster, deliver, event, history, phases, publish, queues, us

MESSAGES = 20


def sent_s(sequence: int) -> float:
    return 1 + sequence


def overtaken(order: list[int], connected_s: list[float], *, heeded: bool) -> int:
    """Return how many messages arrive after a higher one of their connection, in the order of arrival."""

    def connection(sequence: int) -> int:
        return 0 if heeded else sum(at_s <= sent_s(sequence) for at_s in connected_s)

    return sum(
        any(other > one and connection(other) == connection(one) for other in order[:place])
        for place, one in enumerate(order)
    )


@given(
    st.permutations(range(MESSAGES)),
    st.lists(st.integers(0, MESSAGES + 1), unique=True, max_size=4),
    st.booleans(),
)
def test_each_message_against_all_that_arrived_before(order: list[int], connected: list[int], heeded: bool) -> None:
    load = event(
        10,
        "load",
        begins_us=us(10),
        rate_per_s=1,
        variable_rate=[],
        publishers=1,
        in_flight=100 if heeded else None,
    )
    connected_s = sorted(at + 0.5 for at in connected)
    links = [event(at_s, "worker", worker="publisher-0", event="connected", node="a1") for at_s in connected_s]
    rows = [publish(n, sent_s(n)) for n in range(MESSAGES)]
    arrived = [deliver(n, 40 + place) for place, n in enumerate(order)]
    finding = Order().check(history(rows, arrived, [cluster(), queues("q1"), phases(), load, *links]))
    assert finding.numbers["overtaken"] == overtaken(order, connected_s, heeded=heeded)


@pytest.mark.parametrize("heeded", [True, False])
def test_two_swapped_over_a_lost_connection(heeded: bool) -> None:
    assert overtaken([0, 1, 3, 2], [0.5, 3.5], heeded=heeded) == int(heeded)
