from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.pages.impact import impact, longest_of, longest_outage_s, outage_text, queue_rows
from rabbitmq_resilience.pages.index import write_index
from rabbitmq_resilience.pages.page import write_page
from rabbitmq_resilience.pages.terminal import outcome_line, story
from rabbitmq_resilience.pages.wording import coverage_text
from rabbitmq_resilience.tables.comparison import comparison
from rabbitmq_resilience.tables.platforms import side_by_side
from rabbitmq_resilience.tables.track_record import Seen
from rabbitmq_resilience.tables.verdicts import table
from tests.pages.synthetic_run import write_synthetic_run

NOTHING = {"longest_s": 0.0, "total_s": 0.0}
CALM = {
    "publishing_s": 60.0,
    "outages": {**NOTHING, "ratio": 0.0, "count": 0},
    "queues": {},
    "worst": [],
    "publishers": {"blocked": NOTHING, "nacked": NOTHING, "disconnected": NOTHING},
    "consumers": {"without": NOTHING, "disconnected": NOTHING},
}
WORST = {"queue": "q2", "start_s": 21.3, "lasts_s": 40.12, "beside": "beside step 0 (partition)"}
HARD: dict[str, Any] = {
    **CALM,
    "outages": {"longest_s": 38.0, "total_s": 39.5, "ratio": 0.66, "count": 2},
    "queues": {
        "q1": {"longest_s": 38.0, "total_s": 41.0, "ratio": 0.68, "count": 2},
        "q2": {"longest_s": 40.12, "total_s": 40.12, "ratio": 0.67, "count": 1},
    },
    "worst": [WORST],
    "publishers": {"blocked": NOTHING, "nacked": NOTHING, "disconnected": {"longest_s": 30.0, "total_s": 31.0}},
    "consumers": {"without": {"longest_s": 40.0, "total_s": 40.0}, "disconnected": NOTHING},
}


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert (longest_outage_s({}), outage_text({}), longest_of([{}]), list(impact({})), queue_rows({})) == (
        None,
        "",
        "",
        [],
        [],
    )


def test_a_calm_run() -> None:
    calm = {"consequences": CALM}
    assert (longest_outage_s(calm), outage_text(calm), longest_of([calm, {}])) == (0.0, "no outage", "no outage")
    assert list(impact(calm)) == ["No queue was out for a second: each went on confirming what was due."]


def test_an_outage_is_told_with_its_queue_time_and_fault() -> None:
    hard = {"consequences": HARD}
    assert outage_text(hard) == "longest outage 40.1 s (q2)"
    assert longest_of([{"consequences": CALM}, hard]) == "outages up to 40.1 s"
    first, whole, publishers, consumers = impact(hard)
    assert first.startswith("q2 was out for 40.1 s from +21.3 s on, beside step 0 (partition)")
    assert whole == (
        "No queue at all confirmed anything for 38.0 s at the longest and 39.5 s in all, 66% of the time of publishing."
    )
    assert publishers == "Some publisher had no connection for 30.0 s at the longest and 31.0 s in all."
    assert "received nothing of what was due for 40.0 s" in consumers
    assert [(row.name, row.longest, row.part) for row in queue_rows(hard)] == [
        ("q1", "38.0 s", "68%"),
        ("q2", "40.1 s", "67%"),
    ]


def test_it_stands_in_the_terminal_on_both_pages_and_in_every_table(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, rate_per_s=20)
    told = {
        "title": "A cut",
        "broker_version": "3.10.8",
        "topology": "three",
        "queue_type": "quorum",
        "driver": "local",
    }
    verdict = {**told, "verdict": "VALID", "consequences": HARD, "numbers": {"replicated_bytes": 1}}
    run.write_verdict(verdict)
    page = write_page(run).read_text()
    assert page.index("q2 was out for 40.1 s") < page.index("Invariants")
    assert "<td>40.1 s</td>" in write_index(tmp_path).read_text()
    assert ", longest outage 40.1 s (q2): " in outcome_line(verdict, run.path)
    assert "outage: q2 was out for 40.1 s" in story({**verdict, "verdict": "UNKNOWN"}, run.path)
    assert "outages up to 40.1 s" in table([verdict])
    assert "longest outage 40.1 s (q2)" in side_by_side([verdict, {**verdict, "driver": "docker"}])
    assert "| 40.1 s / - |" in comparison([verdict])
    assert Seen.of([verdict]).outages == "outages up to 40.1 s"


@pytest.mark.parametrize(
    ("coverage", "text"),
    [
        (None, ""),
        ({"judged_s": 0, "demanded_s": 0}, ""),
        ({"judged_s": 20.04, "demanded_s": 90.0}, "20 of 90 s"),
        ({"judged_s": 0.5, "demanded_s": 61.234}, "0.5 of 61.2 s"),
        ({"judged_messages": 12000, "demanded_messages": 12001}, "12,000 of 12,001 messages"),
    ],
)
def test_how_much_was_judged(coverage: dict[str, float] | None, text: str) -> None:
    assert coverage_text({"coverage": coverage}) == text


def test_how_much_was_judged_stands_on_the_page_and_in_the_story(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, rate_per_s=20)
    finding = {"verdict": "UNKNOWN", "summary": "who knows", "coverage": {"judged_s": 20, "demanded_s": 90}}
    run.write_verdict({"verdict": "UNKNOWN", "invariants": {"availability": finding}})
    assert "judged <b>20 of 90 s</b>" in write_page(run).read_text()
    assert "availability is UNKNOWN (judged 20 of 90 s): who knows" in story(run.read_verdict(), run.path)
