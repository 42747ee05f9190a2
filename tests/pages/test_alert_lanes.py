from __future__ import annotations

from rabbitmq_resilience.history.recorded_alerts import Active, RecordedAlerts, RuleGroup
from rabbitmq_resilience.report.alert_lanes import LANES_MAX, alert_lanes
from rabbitmq_resilience.report.timeline import SwimLane, TimelineInterval


def active(state: str, start_s: float, end_s: float, *, node: str = "c1", alert: str = "BrokerDown") -> Active:
    return Active(alert, state, {"node": node, "job": "nodes"}, round(start_s * 1e6), round(end_s * 1e6))  # type: ignore[arg-type]


def lanes(*found: Active) -> tuple[SwimLane, ...]:
    return alert_lanes(RecordedAlerts([RuleGroup("mine", 1.0, ["BrokerDown"], [])], found), origin_us=0)


def test_nothing_is_drawn_without_alerts() -> None:
    assert alert_lanes(None, origin_us=0) == lanes() == ()


def test_what_is_pending_lasts_until_it_fires() -> None:
    (lane,) = lanes(active("pending", 1, 5), active("firing", 4, 9), active("pending", 20, 21))
    assert lane.name == "c1 BrokerDown"
    assert lane.intervals == (
        TimelineInterval(1, 4, "pending"),
        TimelineInterval(4, 9, "firing"),
        TimelineInterval(20, 21, "pending"),
    )


def test_what_fires_at_the_next_evaluation_was_pending_until_then() -> None:
    (lane,) = lanes(
        active("pending", 1, 3), active("firing", 4, 9), active("pending", 15, 17), active("firing", 23, 25)
    )
    assert [(one.start_s, one.end_s) for one in lane.intervals] == [(1, 4), (4, 9), (15, 17), (23, 25)]


def test_each_node_has_a_lane_unless_there_are_too_many() -> None:
    few = [active("firing", 1, 2, node=f"n{i}") for i in range(LANES_MAX)]
    assert len(lanes(*few)) == LANES_MAX
    (lane,) = lanes(*few, active("firing", 2, 5, node="another"))
    assert (lane.name, lane.intervals) == ("BrokerDown", (TimelineInterval(1, 5, "firing"),))
