from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rabbitmq_resilience.extensions.tables.ledger import read_ledger, runs_of
from rabbitmq_resilience.extensions.tables.runs import read_explained
from rabbitmq_resilience.extensions.tables.track_record import Incident, incidents_of, track_record
from rabbitmq_resilience.tools.locations import content
from tests.messages import Messages

STATED = {
    "title": "What was there is gone",
    "reference": "rabbitmq/rabbitmq-server#1841",
}
NAME = "20260101T000001Z-gone"
INCIDENT = Incident("faults/incidents/gone.yaml", STATED)


def run(word: str, version: str = "3.10.8", *, title: str = STATED["title"], **invariants: str) -> dict[str, Any]:
    """Return a line of the ledger."""
    findings = {name: {"verdict": found} for name, found in invariants.items()}
    of_run = {"run": NAME, "title": title, "verdict": word, "broker_version": version, "driver": "local"}
    return {**of_run, "invariants": findings}


def row(*runs: Mapping[str, Any], cause: str = "") -> list[str]:
    explained = {"20260101T000001Z": {"cause": cause, "why": "it is known"}} if cause else {}
    line = track_record([INCIDENT], runs_of(runs, explained)).splitlines()[-1]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_runs_of_another_title_are_not_counted(message: Messages) -> None:
    assert row(run("VALID"))[2] == "3.10.8: VALID in 1 of 1 (21 to 100 %)"
    uncounted = row(run("VALID", title="Another"))[2]
    assert "VALID" not in uncounted
    message(uncounted)


def test_versions_in_their_order_with_their_rates(message: Messages) -> None:
    broken = [run("INVALID", metadata="INVALID", no_loss="VALID")] * 3
    cells = row(run("VALID", "4.3.6"), *broken, run("VALID"))
    first, second = cells[2].split("<br>")
    assert first.startswith("3.10.8: INVALID by metadata ") and "3 of 4 (30 to 95 %)" in first
    assert second.startswith("4.3.6: VALID ") and "1 of 1 (21 to 100 %)" in second
    message(cells[2])


def test_what_could_not_tell_is_no_part_of_the_rate() -> None:
    assert row(run("UNKNOWN"), run("VALID"))[2] == "3.10.8: VALID in 1 of 1 (21 to 100 %), 1 UNKNOWN"
    assert row(run("UNKNOWN"))[2] == "3.10.8: 1 UNKNOWN"


def test_what_the_suite_did_is_no_part_of_the_rate() -> None:
    broken = run("INVALID", unacked="INVALID")
    assert row(broken, run("VALID"), cause="suite")[2] == (
        "3.10.8: VALID in 1 of 1 (21 to 100 %), 1 INVALID for which RabbitMQ is not to blame"
    )
    assert row(broken, cause="machine")[2] == "3.10.8: 1 INVALID for which RabbitMQ is not to blame"
    assert row(broken, cause="rabbitmq")[2] == "3.10.8: INVALID by unacked in 1 of 1 (21 to 100 %)"


def test_reference_and_command() -> None:
    cells = row()
    assert cells[1] == "[rabbitmq/rabbitmq-server#1841](https://github.com/rabbitmq/rabbitmq-server/issues/1841)"
    assert cells[3] == "`pytest faults/incidents/gone.yaml --repeat 10`"


def test_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text("title: A title\nreference: https://example.org/a\n")
    assert Incident.read(file).link == "<https://example.org/a>"


def test_the_longest_outage_is_that_of_all_runs() -> None:
    """Lines of the ledger's first days do not have any."""
    outages = [{**run("VALID"), "reached": {"outage_s": length_s}} for length_s in (0.0, 40.12, 3.0)]
    assert row(run("VALID"), *outages)[2] == "3.10.8: VALID in 4 of 4 (51 to 100 %); outages up to 40.1 s"
    assert "outage" not in row(run("VALID"), outages[0])[2]


def test_the_page_that_is_kept_is_that_of_the_ledger() -> None:
    kept = (content("reports") / "track-record.md").read_text(encoding="utf-8")
    assert kept == track_record(incidents_of(), runs_of(read_ledger(), read_explained()))
