from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.extensions.tables.track_record import Incident, TrackedRun, runs_of, track_record
from rabbitmq_resilience.history.run_directory import RunDirectory
from tests.messages import Messages

STATED = {
    "title": "What was there is gone",
    "reference": "rabbitmq/rabbitmq-server#1841",
    "topology": "three",
    "workload": {"queues": 3},
    "schedule": [{"at_s": 1, "fault": "kill"}],
}
PLAYED = {
    "title": "What was there is gone",
    "topology": {"name": "three", "zones": {"a": 3}},
    "workload": {"queues": 3, "publishers": 1},
    "schedule": [{"at_s": 1.0, "fault": "kill", "node": "a1"}],
}
INCIDENT = Incident(Path("faults/incidents/gone.yaml"), STATED)


def run(word: str, version: str = "3.10.8", *, played: Mapping[str, Any] = PLAYED, **invariants: str) -> TrackedRun:
    findings = {name: {"verdict": found} for name, found in invariants.items()}
    return TrackedRun(played, {"verdict": word, "broker_version": version, "driver": "local", "invariants": findings})


def row(*runs: TrackedRun) -> list[str]:
    line = track_record([INCIDENT], runs).splitlines()[-1]
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize(
    "other",
    [
        {"title": "Another"},
        {"topology": {"name": "five"}},
        {"workload": {"queues": 4}},
        {"schedule": []},
        {"schedule": [{"at_s": 2.0, "fault": "kill"}]},
    ],
    ids=["title", "topology", "workload", "no_step", "another_step"],
)
def test_runs_of_another_scenario_are_not_counted(other: dict[str, Any], message: Messages) -> None:
    assert row(run("VALID"))[2] == "3.10.8: VALID in 1 of 1 (21 to 100 %)"
    uncounted = row(run("VALID", played={**PLAYED, **other}))[2]
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


def test_reference_and_command() -> None:
    cells = row()
    assert cells[1] == "[rabbitmq/rabbitmq-server#1841](https://github.com/rabbitmq/rabbitmq-server/issues/1841)"
    assert cells[3] == "`pytest faults/incidents/gone.yaml --repeat 10`"


def test_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text("title: A title\nreference: https://example.org/a\n")
    assert Incident.read(file).link == "<https://example.org/a>"


def test_runs_are_read_from_their_directories(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, "broken")
    for title in (STATED["title"], "Another"):
        made = RunDirectory.create(tmp_path, "whole")
        made.fault_file.write_text(yaml.safe_dump(PLAYED))
        made.verdict_file.write_text(json.dumps({"title": title, "broker_version": "3.10.8", "verdict": "VALID"}))
    (found,) = runs_of([tmp_path], frozenset({INCIDENT.title}))
    assert found.scenario == PLAYED
    assert found.verdict["verdict"] == "VALID"
