from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.extensions.tables.platforms import side_by_side
from rabbitmq_resilience.extensions.tables.queue_types import comparison
from rabbitmq_resilience.report.impact import impact, longest_of, longest_outage_s, outage_text, queue_rows
from rabbitmq_resilience.report.index import write_index
from rabbitmq_resilience.report.run_page import write_page
from rabbitmq_resilience.report.terminal import outcome_line, story
from rabbitmq_resilience.report.wording import coverage_text
from tests.messages import Messages
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
WORST = {"queue": "q2", "start_s": 21.3, "lasts_s": 40.12, "beside": "during step 0 (partition)"}
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


def test_a_calm_run(message: Messages) -> None:
    calm = {"consequences": CALM}
    assert (longest_outage_s(calm), longest_of([calm, {}])) == (0.0, outage_text(calm))
    message(outage_text(calm))
    (told,) = impact(calm)
    message(told)


def test_an_outage_is_reported_with_its_queue_time_and_fault(message: Messages) -> None:
    hard = {"consequences": HARD}
    assert "40.1 s (q2)" in outage_text(hard)
    assert "40.1 s" in longest_of([{"consequences": CALM}, hard])
    message(outage_text(hard))
    message(longest_of([{"consequences": CALM}, hard]))
    told = list(impact(hard))
    facts = (
        ("q2 ", "40.1 s", "+21.3 s", WORST["beside"]),
        ("38.0 s", "39.5 s", "66%"),
        ("publisher", "30.0 s", "31.0 s"),
        ("40.0 s",),
    )
    for text, named in zip(told, facts, strict=True):
        assert [fact for fact in named if str(fact) not in text] == []
        message(text)
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
    first = next(iter(impact(verdict)))
    assert page.index(first) < page.index("Invariants")
    assert "<td>40.1 s</td>" in write_index(tmp_path).read_text()
    assert f", {outage_text(verdict)}: " in outcome_line(verdict, run.path)
    assert f"outage: {first}" in story({**verdict, "verdict": "UNKNOWN"}, run.path)
    assert outage_text(verdict) in side_by_side([verdict, {**verdict, "driver": "docker"}])
    assert "| 40.1 s / - |" in comparison([verdict])


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


def test_how_much_was_judged_stands_on_the_page_and_in_the_story(tmp_path: Path, message: Messages) -> None:
    run = write_synthetic_run(tmp_path, rate_per_s=20)
    finding = {"verdict": "UNKNOWN", "summary": "who knows", "coverage": {"judged_s": 20, "demanded_s": 90}}
    run.write_verdict({"verdict": "UNKNOWN", "invariants": {"availability": finding}})
    assert "<b>20 of 90 s</b>" in write_page(run).read_text()
    (line,) = (line for line in story(run.read_verdict(), run.path).splitlines() if "who knows" in line)
    assert "20 of 90 s" in line
    message(line)
