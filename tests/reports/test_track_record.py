from __future__ import annotations

from pathlib import Path
from typing import Any

from reports.track_record import Incident, track_record

INCIDENT = Incident(Path("faults/incidents/gone.yaml"), "What was there is gone", "rabbitmq/rabbitmq-server#1841")


def run(word: str, version: str = "3.10.8", *, title: str = INCIDENT.title, **invariants: str) -> dict[str, Any]:
    findings = {name: {"verdict": found} for name, found in invariants.items()}
    return {"verdict": word, "title": title, "broker_version": version, "driver": "local", "invariants": findings}


def row(*runs: dict[str, Any]) -> list[str]:
    line = track_record([INCIDENT], runs).splitlines()[-1]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_versions_in_their_order_with_their_rates() -> None:
    broken = [run("INVALID", metadata="INVALID", no_loss="VALID")] * 3
    cells = row(run("VALID", "4.3.6"), *broken, run("VALID"))
    assert cells[2] == "3.10.8: INVALID by metadata in 3 of 4 (30 to 95 %)<br>4.3.6: VALID in 1 of 1 (21 to 100 %)"


def test_what_could_not_tell_is_no_part_of_the_rate() -> None:
    assert row(run("UNKNOWN"), run("VALID"))[2] == "3.10.8: VALID in 1 of 1 (21 to 100 %), 1 UNKNOWN"
    assert row(run("UNKNOWN"))[2] == "3.10.8: 1 UNKNOWN"


def test_an_incident_that_was_never_played_says_so() -> None:
    assert row(run("VALID", title="Another"))[2] == "not played yet"


def test_reference_and_command() -> None:
    cells = row()
    assert cells[1] == "[rabbitmq/rabbitmq-server#1841](https://github.com/rabbitmq/rabbitmq-server/issues/1841)"
    assert cells[3] == "`pytest --fault-file=faults/incidents/gone.yaml --repeat 10`"


def test_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text("title: A title\nreference: https://example.org/a\n")
    assert Incident.read(file).link == "<https://example.org/a>"
