from __future__ import annotations

import re
from typing import Any

from rabbitmq_resilience.extensions.tables.platforms import REFUSED, side_by_side
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from rabbitmq_resilience.sut.drivers import FORMING
from rabbitmq_resilience.tools.locations import content
from tests.messages import Messages


def row_of(text: str, title: str) -> str:
    (row,) = (line for line in text.splitlines() if line.startswith(f"| {title} | "))
    return row


def verdict(word: str = "VALID", **fields: Any) -> dict[str, Any]:
    numbers = {"throughput": {"numbers": {"steady_per_s": 449.7}}, "recovery": {"numbers": {"recovered_after_s": 7.75}}}
    shared = {"title": "A cut", "broker_version": "3.10.8", "driver": "local", "formed_in_s": 16.2}
    return {"verdict": word, "invariants": numbers, **shared, **fields}


def test_platforms_are_columns_and_the_last_run_shows_its_numbers(message: Messages) -> None:
    text = side_by_side(
        [
            verdict("UNKNOWN", formed_in_s=99.0),
            verdict(),
            verdict(),
            verdict("INVALID", driver="docker", as_expected=True),
            verdict(broker_version="4.0.5", driver="docker"),
        ]
    )
    assert "| Scenario | 3.10.8 | 3.10.8 in containers | 4.0.5 in containers |" in text
    row = row_of(text, "A cut")
    cells = row.strip("| ").split(" | ")[1:]
    for cell, words in zip(cells, ("2 VALID, 1 UNKNOWN, ", "INVALID (known), ", "VALID, "), strict=True):
        assert cell.startswith(words)
        assert re.findall(r"[\d.]+(?: s|/s)", cell) == ["16 s", "450/s", "7.8 s"]
    message(row)


def test_what_was_played_in_one_place_only_is_left_out() -> None:
    text = side_by_side([verdict(title="Alone"), verdict(), verdict(driver="docker")])
    assert "Alone" not in text


def test_numbers_that_are_missing_are_left_out() -> None:
    sparse = verdict("UNKNOWN", driver="docker", invariants={"throughput": {"numbers": {}}}, formed_in_s=None)
    assert "| UNKNOWN |" in side_by_side([verdict(), sparse])


def test_just_those_are_refused_that_a_driver_refuses() -> None:
    refused = set()
    for path in content("faults").joinpath("platforms").glob("*.fault.yaml"):
        for driver in FORMING:
            try:
                fault_file.load(path, driver=driver)
            except FaultFileError:
                refused.add((fault_file.load(path, driver=None).title, driver))
    assert refused == REFUSED


def test_what_a_driver_cannot_do_is_refused_there(message: Messages) -> None:
    title = "Packets are lost between two zones, on each driver"
    text = side_by_side(
        [
            verdict(title=title, driver="docker"),
            verdict(title=title, driver="attached by kubernetes", formed_in_s=0.0),
            verdict(),
            verdict(driver="docker"),
        ]
    )
    assert "| Scenario | 3.10.8 | 3.10.8 in containers | 3.10.8 in pods |" in text
    row = row_of(text, title)
    assert row.startswith(f"| {title} | refused | VALID, ")
    assert re.findall(r"[\d.]+(?: s|/s)", row) == ["16 s", "450/s", "7.8 s", "450/s", "7.8 s"]
    message(row)


def test_nothing_recorded_makes_an_empty_table() -> None:
    assert side_by_side([]).endswith("| Scenario |\n| --- |\n")
