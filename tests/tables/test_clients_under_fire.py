"""The page of clients: each run in one cell, and what could not be judged apart."""

from __future__ import annotations

from rabbitmq_resilience.extensions.tables.clients_under_fire import clients_under_fire
from rabbitmq_resilience.extensions.tables.ledger import read_ledger
from rabbitmq_resilience.extensions.tables.runs import read_explained
from rabbitmq_resilience.tools.locations import content
from tests.tables.test_evidence import line

DIES, CUT = "The leader of its queue dies, {}", "The links of a worker are cut, {}"

LINES = [
    line("20260101T000001Z-a", DIES.format("pika 1.4.4"), "VALID", "4.0.5"),
    line("20260101T000002Z-b", DIES.format("pika 1.4.4"), "INVALID", "4.0.5") | {"as_expected": False},
    line("20260101T000003Z-c", DIES.format("pika 1.4.4"), "UNKNOWN", "4.0.5"),
    line("20260101T000004Z-d", DIES.format("lapin 4.10.0"), "VALID", "4.3.6"),
    line("20260101T000005Z-e", CUT.format("lapin 4.10.0"), "VALID", "4.3.6"),
    line("20260101T000006Z-f", "A leader dies, three_nodes, pause_minority, quorum", "VALID", "4.3.6"),
]


def test_each_run_is_in_the_cell_of_its_client_fault_and_version() -> None:
    rows = clients_under_fire(LINES, {}).splitlines()

    heads = ["The leader of its queue dies, 4.3.6", "The leader of its queue dies, 4.0.5"]
    assert f"| Client | {heads[0]} | {heads[1]} | The links of a worker are cut, 4.3.6 |" in rows
    assert "| lapin 4.10.0 | 1 of 1 | - | 1 of 1 |" in rows
    assert "| pika 1.4.4 | - | 1 of 3, 1 UNKNOWN | - |" in rows


def test_the_page_that_is_kept_is_that_of_the_ledger() -> None:
    kept = (content("reports") / "clients-under-fire.md").read_text(encoding="utf-8")
    assert kept == clients_under_fire(read_ledger(), read_explained())
