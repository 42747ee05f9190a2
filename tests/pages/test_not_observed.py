"""What was not observed is not drawn: neither as 0, nor as what was seen before or after."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from rabbitmq_resilience.history.events import FlowStatesEvent, SampleEvent
from rabbitmq_resilience.history.metrics import SERIES
from rabbitmq_resilience.history.recorded_alerts import Active, RecordedAlerts, RuleGroup
from rabbitmq_resilience.report.alert_lanes import alert_lanes
from rabbitmq_resilience.report.broker_curves import BrokerCurves, brokers
from rabbitmq_resilience.report.timeline import POINTS_MAX, SwimLane, Timeline, timeline
from rabbitmq_resilience.report.wording import coverage_text, number_text
from rabbitmq_resilience.tools.percentages import percent_text
from tests.invariants.literal import apart, fault, node_states, told, us


def drawn(*events: Any, end_s: float = 95) -> Timeline:
    return timeline(sorted(events, key=lambda event: event.t_us), origin_us=us(0), end_us=us(end_s))


def sampled(at_s: float, **queues: dict[str, int | None]) -> SampleEvent:
    return SampleEvent(t_us=us(at_s), queues=queues)


def states(lane: SwimLane) -> list[tuple[float, float, str]]:
    return [(one.start_s, one.end_s, one.state) for one in lane.intervals]


def test_a_queue_without_a_number_makes_the_sum_unknown() -> None:
    one, other = {"ready": 1000, "unacked": None}, {"ready": None, "unacked": 7}
    depth = drawn(sampled(0, q1={"ready": 1, "unacked": 2}), sampled(1, q1=one), sampled(2, q1=one, q2=other)).depth
    assert depth.curves == {"ready": [1, 1000, None], "unacked": [2, None, None], "fullest queue": [3, None, None]}


def test_queues_that_were_not_asked_for_flow_are_not_out_of_flow() -> None:
    looks = [FlowStatesEvent(t_us=us(at), connections={}, flow_queues=["q1"] if at < 2 else None) for at in range(4)]
    assert drawn(*looks).held_back.curves == {"queues in flow": [1, 1, None, None]}


def test_samples_after_a_gap_are_not_joined_with_those_before() -> None:
    moments = [*range(3001), *range(3602, 9000)]
    samples = [sampled(at, q1={"ready": 1000 if at == 3602 else 10, "unacked": 0}) for at in moments]
    depth = drawn(*samples, end_s=9000).depth
    assert len(depth.at_s) <= POINTS_MAX + 2
    assert [at for at, n in zip(depth.at_s, depth.curves["ready"], strict=True) if n == 1000] == [3602]


def test_a_node_that_was_not_looked_at_for_long_has_no_state_meanwhile() -> None:
    looks = [look for look in node_states(end_s=60) if not us(20) <= look.t_us < us(40)]
    lane = drawn(*looks).nodes[0]
    assert states(lane) == [(0, 19.5, "up"), (40, 59.5, "up")]


def test_links_that_two_steps_cut_have_one_interval() -> None:
    cut = apart(["c1"], ["a1", "b1"])
    (lane,) = drawn(*fault(10, 30, cut=cut), *fault(20, 40, step=1, cut=cut)).links
    assert states(lane) == [(10, 40, "cut")]


def measured(*rows: Any) -> BrokerCurves:
    table = pa.Table.from_pylist([row for of in rows for row in of], schema=SERIES)
    return brokers(lambda *_: table, origin_us=us(0))


def test_an_alarm_ends_with_the_last_look_at_a_node_that_died() -> None:
    (lane,) = measured(
        told("alarm_memory", "a1", lambda at: float(at >= 20), end_s=26), told("alarm_memory", "b1", 0.0)
    ).alarms
    assert states(lane) == [(20, 25, "alarm")]
    (lane,) = measured(told("alarm_memory", "a1", lambda at: float(at < 26) if not 26 <= at < 80 else None)).alarms
    assert states(lane) == [(0, 25, "alarm")]


def test_what_is_no_number_is_no_alarm_and_no_memory() -> None:
    found = measured(
        told("alarm_memory", "a1", lambda at: math.nan if at == 5 else 0.0),
        told("memory_used", "a1", lambda at: math.nan if at == 5 else 1e8),
    )
    assert found.alarms == ()
    assert not any(value is not None and math.isnan(value) for value in found.memory.curves["a1"])


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (("pending", 15, 80), [(10, 20, "firing"), (20, 80, "pending")]),
        (("pending", 5, 80), [(5, 10, "pending"), (10, 20, "firing"), (20, 80, "pending")]),
        (("firing", 90, 95), [(10, 20, "firing"), (90, 95, "firing")]),
    ],
)
def test_alerts_that_share_a_lane_keep_their_states(others: tuple[Any, int, int], expected: list[Any]) -> None:
    """The second one has another virtual host, which the lane does not name. A slower group is none of theirs."""
    groups = [RuleGroup("mine", 1.0, ["Backlog"], []), RuleGroup("slow", 60.0, ["Other"], [])]
    state, start_s, end_s = others
    found = [
        Active("Backlog", "firing", {"node": "a1", "vhost": "x"}, 10_000_000, 20_000_000),
        Active("Backlog", state, {"node": "a1", "vhost": "y"}, start_s * 1_000_000, end_s * 1_000_000),
    ]
    (lane,) = alert_lanes(RecordedAlerts(groups, found), origin_us=0)
    assert states(lane) == expected


def test_a_part_is_not_called_the_whole_and_something_not_nothing() -> None:
    assert [percent_text(ratio) for ratio in (0, 0.0003, 0.005, 0.25, 0.9997, 1)] == [
        "0%",
        "under 1%",
        "under 1%",
        "25%",
        "over 99%",
        "100%",
    ]
    assert number_text("ratio", 0.9997) == ("ratio", "0.9997")
    assert number_text("outage_s", 999.97) == ("outage", "1,000 s")
    assert coverage_text({"coverage": {"judged_s": 599.6, "demanded_s": 600.0}}) == "599.6 of 600 s"
    assert coverage_text({"coverage": {"judged_s": 89.96, "demanded_s": 90.0}}) == "89.96 of 90 s"
