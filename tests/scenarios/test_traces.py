"""What is told of a known defect by times in a log: lines as brokers wrote them, and the same in another order."""

from __future__ import annotations

import itertools

import pytest

from rabbitmq_resilience.scenarios.traces import leads_while_pausing

#: Of 3.10.8, which lost nine confirmed messages.
LOST = "node c1@localhost down: connection_closed"
PAUSES = "Cluster minority/secondary status detected - awaiting recovery"
ASKED = "RabbitMQ is asked to stop..."
LEADS = "Mirrored queue 'q1' in vhost '/': Promoting mirror <a2@localhost.184915367.1337.0> to leader"
BACK = "node c1@localhost up"
STOPPED = "Successfully stopped RabbitMQ and its dependencies"
STARTS = " Starting RabbitMQ 3.10.8 on Erlang 25.2.3 [jit]"


def log(*lines: str) -> str:
    return "".join(
        f"2026-11-24 13:48:{41 + i:02}.940648+00:00 [info] <0.482.0> {text}\n" for i, text in enumerate(lines)
    )


def test_it_leads_and_sees_a_peer_before_it_has_stopped() -> None:
    assert leads_while_pausing(log(LOST, PAUSES, ASKED, LEADS, BACK, STOPPED, STARTS))
    assert leads_while_pausing(log(LOST, PAUSES, PAUSES, ASKED, BACK, LEADS, STOPPED))


@pytest.mark.parametrize(
    "lines",
    [
        (LOST, PAUSES, ASKED, LEADS, STOPPED, STARTS, BACK),  # a long cut: it had stopped when its peer came back
        (LOST, PAUSES, ASKED, BACK, STOPPED, STARTS, LEADS),
        (LOST, LEADS, BACK, PAUSES, ASKED, STOPPED),
        (LOST, LEADS, BACK),
    ],
)
def test_a_node_that_stops_in_time_is_no_such_trace(lines: tuple[str, ...]) -> None:
    assert not leads_while_pausing(log(*lines))


def test_of_all_orders_it_is_those_with_both_between_the_pause_and_the_stop() -> None:
    for order in itertools.permutations((PAUSES, LEADS, BACK, STOPPED)):
        at = {line: order.index(line) for line in order}
        both_between = all(at[PAUSES] < at[line] and not at[PAUSES] < at[STOPPED] < at[line] for line in (LEADS, BACK))
        assert leads_while_pausing(log(*order)) == both_between, order
