"""A node that is seen up in the middle of its step, as something else started it: for it the step is over."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.no_crash import NoCrash
from rabbitmq_resilience.checkers.partition_mode import PartitionMode
from rabbitmq_resilience.checkers.verdict import Verdict
from tests.invariants.literal import cluster, fault, history, node_states, phases, publish, queues

KILL = fault(20, 60, name="kill", down=["b1", "c1"])


def recorded(rows: list[Any], **unlike: Any) -> Any:
    events = [cluster(version="4.3.6"), queues("q1"), phases(), KILL, node_states(unlike=unlike)]
    return history(rows, (), events)


@pytest.mark.parametrize(("up_s", "verdict"), [(30, Verdict.VALID), (62, Verdict.INVALID)])
def test_a_majority_is_there_again_once_one_is_up(up_s: float, verdict: Verdict) -> None:
    """At 40 s messages are confirmed through a1, which is alone as long as b1 is away."""
    rows = [publish(n, 40 + n) for n in range(8)]
    past = recorded(rows, b1=[(20, up_s, "down")], c1=[(20, 62, "down")])
    assert PartitionMode().check(past).verdict is verdict


@pytest.mark.parametrize(("up_s", "verdict"), [(19, Verdict.VALID), (62, Verdict.INVALID)])
def test_a_node_may_be_back_before_its_step_has_taken_all_nodes_away(up_s: float, verdict: Verdict) -> None:
    """b1 and c1 are taken away in turn from 10 s on, and the step counts as injected at 20 s."""
    in_turn = [*fault(10, 60, name="stop", down=["b1", "c1"], states=("injecting",)), *KILL[1:]]
    looks = node_states(unlike={"b1": [(12, up_s, "down")], "c1": [(18, 62, "down")]})
    events = [cluster(version="4.3.6"), queues("q1"), phases(), in_turn, looks]
    past = history([publish(n, 40 + n) for n in range(8)], (), events)
    assert PartitionMode().check(past).verdict is verdict


@pytest.mark.parametrize(("up_s", "verdict"), [(25, Verdict.INVALID), (62, Verdict.VALID)])
def test_a_queue_may_stand_still_until_then(up_s: float, verdict: Verdict) -> None:
    """Nothing is confirmed from 20 to 65 s."""
    rows = [publish(n, n / 2) for n in range(180) if not 20 <= n / 2 < 65]
    past = recorded(rows, b1=[(20, up_s, "down")], c1=[(20, 62, "down")])
    assert Availability().check(past).verdict is verdict


@pytest.mark.parametrize(
    ("away", "verdict"),
    [
        ([(20, 62, "down")], Verdict.VALID),
        ([(20, 25, "down"), (40, 62, "down")], Verdict.INVALID),
        ([(20, 25, "down"), (60, 62, "down")], Verdict.VALID),  # its healing may start it again
    ],
)
def test_what_goes_again_went_by_itself(away: list[tuple[float, float, str]], verdict: Verdict) -> None:
    rows = [publish(n, n / 2) for n in range(180)]
    assert NoCrash().check(recorded(rows, b1=away, c1=[(20, 62, "down")])).verdict is verdict
