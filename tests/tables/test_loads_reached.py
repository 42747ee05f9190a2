from __future__ import annotations

from typing import Any

from rabbitmq_resilience.extensions.tables.ledger import reached, read_ledger
from rabbitmq_resilience.extensions.tables.loads import table
from rabbitmq_resilience.tools.locations import content

VERDICT: dict[str, Any] = {
    "invariants": {
        "throughput": {"numbers": {"steady_per_s": 599.8, "ratio": 0.91}},
        "latency": {
            "numbers": {
                "end_to_end_p99_9_steady_ms": 12.5,
                "end_to_end_p99_9_steady_from_sent_ms": 3.0,
                "end_to_end_p99_9_steady_max_ms": 99.0,
            }
        },
    },
    "consequences": {"queues": {"q1": {"longest_s": 2.5}, "q2": {"longest_s": 4.25}}},
}


def line(title: str, word: str, **figures: float | None) -> dict[str, Any]:
    told = {"title": title, "verdict": word, "as_expected": word == "VALID", "broker_version": "3.10.8"}
    return {**told, "driver": "local", "run": "r", "purpose": "loads", "reached": figures}


def test_what_a_run_reached_is_read_from_its_verdict() -> None:
    assert reached(VERDICT) == {"confirmed_per_s": 599.8, "kept": 0.91, "latency_ms": 12.5, "outage_s": 4.25}
    assert reached({}) == {"confirmed_per_s": None, "kept": None, "latency_ms": None, "outage_s": None}


def test_a_flow_shows_the_rate_where_no_throughput_is_demanded() -> None:
    flow = {"invariants": {"flow": {"numbers": {"taken_per_s": 7.0}}}}
    assert reached(flow)["confirmed_per_s"] == 7.0


def test_of_several_runs_the_lowest_and_the_highest_are_reported() -> None:
    lines = [
        line("durable, x", "VALID", confirmed_per_s=600.2, latency_ms=4.0, outage_s=0.0),
        line("durable, x", "UNKNOWN", confirmed_per_s=1580.4, latency_ms=None, outage_s=0.0),
        {**line("durable, x", "VALID"), "title": "Random schedule, x"},
        {**line("durable, x", "VALID", outage_s=1.5), "driver": "docker"},
    ]
    text = table(lines)
    assert "| durable, x | 3.10.8 | 2 | 1 VALID, 1 UNKNOWN | 600 to 1580 | - | 4 | 0 |" in text, text
    assert "| durable, x | 3.10.8 in containers | 1 | 1 VALID | - | - | - | 1.5 |" in text, text


def test_the_page_is_that_of_the_ledger() -> None:
    assert (content("reports") / "loads.md").read_text(encoding="utf-8") == table(read_ledger())
