"""Raw round trips on the page: a curve for the median of each kind of way, and a thin one for the most."""

from __future__ import annotations

from rabbitmq_resilience.history.events import NoteEvent, RoundTripsEvent
from rabbitmq_resilience.report.charts import charts
from rabbitmq_resilience.report.series import series
from tests.messages import Messages

S = 1_000_000


def test_without_a_measured_network_there_is_no_panel() -> None:
    assert charts(series(tuple, tuple, [NoteEvent(t_us=0)]))["panels"] == []


def test_each_kind_of_way(message: Messages) -> None:
    ways: dict[str, list[float | None]] = {
        "client:all->balancer:0": [1.0, 2.0],
        "balancer:0->a1": [3.0, 4.0],
        "balancer:0->b1": [5.0, 8.0],
        "a1->b1": [9.0, None],
    }
    events = [
        NoteEvent(t_us=100 * S),
        RoundTripsEvent(t_us=101 * S, trips_ms={way: trips[:1] for way, trips in ways.items()}),
        RoundTripsEvent(t_us=111 * S, trips_ms=ways),
    ]
    (panel,) = charts(series(tuple, tuple, events))["panels"]
    assert (panel["title"], panel["unit"], panel["at_s"]) == ("Raw round trips", "ms", [1, 6, 11])
    assert "1" in panel["note"]
    message(panel["note"])
    assert {curve["name"]: curve["values"] for curve in panel["curves"]} == {
        "clients": [1, 1, 2],
        "clients, most": [1, 1, 2],
        "balancers": [4, 4, 6],
        "balancers, most": [5, 5, 8],
        "brokers": [9, 9, None],
        "brokers, most": [9, 9, None],
    }
    assert {curve["name"] for curve in panel["curves"] if curve["thin"]} == {
        "clients, most",
        "balancers, most",
        "brokers, most",
    }
    assert len({curve["colour"] for curve in panel["curves"]}) == 3
