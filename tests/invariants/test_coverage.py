"""How much of what is demanded was judged, and what was not seen after a fault."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.checkers.metadata import Metadata
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.order import Order
from rabbitmq_resilience.checkers.partition_mode import PartitionMode
from rabbitmq_resilience.checkers.verdict import Coverage, Verdict
from tests.invariants.literal import (
    THREE,
    apart,
    cluster,
    deliver,
    event,
    fault,
    history,
    node_states,
    phases,
    publish,
    queues,
)
from tests.messages import Messages

THERE = [cluster(mode="autoheal"), queues("q1", kind="mirrored"), phases()]
EARLY = fault(20, 30, cut=apart(["a1"], ["b1", "c1"]))
LATE = fault(50, 60, step=1, name="kill", down=["b1"])
SENT = [publish(0, 25), publish(1, 26)]


@pytest.mark.parametrize(
    ("last_s", "verdict"), [(19.9, Verdict.UNKNOWN), (49.9, Verdict.UNKNOWN), (50.1, Verdict.VALID)]
)
def test_messages_that_all_came_before_a_fault_tell_nothing_of_it(
    last_s: float, verdict: Verdict, message: Messages
) -> None:
    came = [deliver(0, last_s - 1), deliver(1, last_s)]
    for checker in (NoLoss(), Order()):
        finding = checker.check(history(SENT, came, [*THERE, EARLY, LATE]))
        assert finding.verdict is verdict
        if verdict is Verdict.UNKNOWN:
            assert ("step 0" if last_s < 20 else "step 1") in finding.summary
            message(finding.summary)


def test_what_operators_do_needs_no_message_after_it() -> None:
    operation = event(50, "fault", step=1, fault="rebalance", state="injected", effect={"operation": True}, detail="")
    finding = NoLoss().check(history(SENT, [deliver(0, 26), deliver(1, 27)], [*THERE, EARLY, operation]))
    assert finding.verdict is Verdict.VALID


def test_a_loss_is_reported_though_nothing_came_after_the_fault() -> None:
    assert NoLoss().check(history(SENT, [deliver(0, 10)], [*THERE, LATE])).verdict is Verdict.INVALID
    overtaken = [deliver(1, 27), deliver(0, 28)]
    assert Order().check(history(SENT, overtaken, [*THERE, LATE])).verdict is Verdict.INVALID


def test_messages_that_a_split_permits_to_be_lost_are_not_judged() -> None:
    seen = node_states(unlike={"a1": [(32, 36, "paused")]})
    finding = NoLoss().check(history(SENT, [deliver(0, 26)], [*THERE, EARLY, seen]))
    assert (finding.verdict, finding.coverage) == (Verdict.VALID, Coverage(1, 2, "messages"))


def test_deliveries_of_queues_that_consumers_share_are_not_judged() -> None:
    two = [cluster(), queues("q1", "q2"), phases()]
    sent = [publish(n, 25, queue=n % 2) for n in range(4)]
    came = [deliver(0, 30), deliver(2, 32), deliver(1, 30, queue=1), deliver(3, 31, queue=1, consumer=1)]
    came.append(deliver(1, 33, queue=1, again=True))
    finding = Order().check(history(sent, came, two))
    assert (finding.verdict, finding.coverage) == (Verdict.VALID, Coverage(2, 5, "deliveries"))


def test_items_that_a_split_permits_to_be_lost_are_not_judged() -> None:
    told = [
        event(25, "declaration", item=f"queue {n}", node=node, state=state)
        for n, node in enumerate(("a1", "b1"))
        for state in ("asked", "created")
    ]
    seen = node_states(unlike={"a1": [(32, 36, "paused")]})
    known = {node: ["queue 1"] for node in THREE}
    finding = Metadata().check(history((), (), [*THERE, EARLY, seen, *told, event(95, "metadata", nodes=known)]))
    assert (finding.verdict, finding.coverage) == (Verdict.VALID, Coverage(1, 2, "items"))
    silent = event(95, "metadata", nodes={**known, "c1": None})
    finding = Metadata().check(history((), (), [*THERE, EARLY, seen, *told, silent]))
    assert (finding.verdict, finding.coverage) == (Verdict.UNKNOWN, Coverage(0, 2, "items"))


@pytest.mark.parametrize(
    ("blind", "verdict", "judged_s"),
    [
        ((40, 50.0), Verdict.VALID, 95),
        ((40, 51.0), Verdict.UNKNOWN, 83.5),
        ((5, 15.5), Verdict.VALID, 84),
        ((80, 95), Verdict.UNKNOWN, 79.5),
    ],
)
def test_a_time_since_the_first_fault_in_which_no_one_looked_at_the_nodes_is_unknown(
    blind: tuple[float, float], verdict: Verdict, judged_s: float
) -> None:
    """Nodes are looked at twice a second; a gap of 10 s is one."""
    start_s, end_s = (1_000_000_000 + round(at_s * 1e6) for at_s in blind)
    looks = [look for look in node_states() if not start_s < look.t_us < end_s]
    finding = PartitionMode().check(history((), (), [cluster(mode="ignore"), phases(), queues("q1"), EARLY, *looks]))
    assert finding.coverage is not None
    assert (finding.verdict, finding.coverage.demanded) == (verdict, 95)
    assert finding.coverage.judged == pytest.approx(judged_s, abs=1)


def test_a_node_that_pauses_without_need_is_reported_though_no_one_looked_later() -> None:
    looks = [look for look in node_states(unlike={"c1": [(70, 72, "paused")]}) if look.t_us < 1_080_000_000]
    events = [cluster(), phases(), queues("q1"), LATE, *looks]
    assert PartitionMode().check(history((), (), events)).verdict is Verdict.INVALID
