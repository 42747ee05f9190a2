"""Idle connections and churn on the page."""

from __future__ import annotations

from rabbitmq_resilience.history.events import ChurnEvent, Event, IdleEvent, NoteEvent
from rabbitmq_resilience.report.charts import charts
from rabbitmq_resilience.report.series import series
from tests.messages import Messages

S = 1_000_000


def panels(*events: Event) -> dict[str, dict[str, list[float | None]]]:
    """The curves of each panel by its title."""
    seen = [NoteEvent(t_us=100 * S), *sorted(events, key=lambda event: event.t_us), NoteEvent(t_us=106 * S)]
    shown = charts(series(tuple, tuple, seen))["panels"]
    return {panel["title"]: {curve["name"]: curve["values"] for curve in panel["curves"]} for panel in shown}


def test_without_any_there_is_no_panel() -> None:
    assert panels() == {}


def test_idle_connections_of_all_processes_stay_as_they_were_reported_last() -> None:
    told = panels(
        IdleEvent(t_us=101 * S, worker="idle-0", connected=1000, wanted=1000),
        IdleEvent(t_us=102 * S, worker="idle-1", connected=500, wanted=1000),
        IdleEvent(t_us=104 * S, worker="idle-0", connected=400, wanted=1000, lost=600),
    )
    assert told == {
        "Idle connections": {
            "connected": [None, 1000, 1500, 1500, 900, 900],
            "wanted": [None, 1000, 2000, 2000, 2000, 2000],
        }
    }


def test_how_many_were_lost_is_reported(message: Messages) -> None:
    lost = [IdleEvent(t_us=n * S, worker="idle-0", connected=1, wanted=1, lost=n) for n in (600, 601)]
    (panel,) = charts(series(tuple, tuple, lost))["panels"]
    assert "1,201" in panel["note"]
    message(panel["note"])


def test_churn_is_a_rate_and_what_failed_stands_apart() -> None:
    told = panels(
        ChurnEvent(t_us=100 * S + 500_000, worker="churn-0", done={"channels": 20, "queues": 3}),
        ChurnEvent(t_us=103 * S, worker="churn-0", done={"channels": 10}, failed={"channels": 5}),
        ChurnEvent(t_us=103 * S + 900_000, worker="churn-0", done={"channels": 1}),
    )
    assert told == {
        "Opened and closed again": {
            "channels": [20, 0, 0, 11, 0, 0],
            "channels, failed": [0, 0, 0, 5, 0, 0],
            "queues": [3, 0, 0, 0, 0, 0],
        }
    }
