"""Fault files as files: what is no scenario at all, and files that are missing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from tests.messages import Messages
from tests.scenarios.test_fault_file import changed, refused

#: Hide what libraries say of a text that they cannot read.
LIBRARY = {r"(?s)(is no YAML: |no field takes: ).*": r"\1WHY"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("", "a mapping", id="empty"),
        pytest.param("- 1\n- 2\n", "a mapping", id="list"),
        pytest.param("version: [1", "no YAML", id="unclosed"),
        pytest.param("a: &x 1\nb: *x\n", "anchors", id="anchor"),
        pytest.param("version: 1\nversion: 1\n", "given twice", id="twice"),
        pytest.param("seed: 010\n", "010", id="octal"),
        pytest.param("schedule:\n  - {at_s: 1:30}\n", "schedule[0].at_s", id="base_60"),
        pytest.param("1: 2\n", "plain text", id="number_as_field"),
        pytest.param("version: !!python/object:os.system {}\n", "no YAML", id="object"),
        pytest.param("seed: 2020-01-01\n", "no field", id="date"),
        pytest.param("seed: .nan\n", "", id="nan"),
        pytest.param("a: " + "[" * 100 + "]" * 100, "deeper", id="deep"),
        pytest.param("[" * 5000, "", id="very_deep"),
        pytest.param("\x00", "no YAML", id="control_character"),
    ],
)
def test_no_scenario_at_all(text: str, told: str, message: Messages) -> None:
    refusal = refused(text)
    assert told in refusal
    message(refusal, hide=LIBRARY)


def test_missing_configuration_file(tmp_path: Path, message: Messages) -> None:
    path = tmp_path / "incident.yaml"
    plain = changed(("topology",), {"name": "mine", "zones": {"a": 2, "b": 2, "c": 1}, "rabbitmq_conf": "my.conf"})
    path.write_text(yaml.safe_dump(plain))
    with message.of(FaultFileError) as caught:
        fault_file.load(path)
    assert "topology.rabbitmq_conf: " in str(caught.value)
    assert "my.conf" in str(caught.value)
    (tmp_path / "my.conf").write_text("")
    assert fault_file.load(path).topology.rabbitmq_conf == tmp_path / "my.conf"


def test_saved_file_needs_no_other(tmp_path: Path) -> None:
    """What a run leaves can be played and judged again when the user's own files are gone."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "my.conf").write_text("log.console = true\n")
    (mine / "incident.yaml").write_text(
        yaml.safe_dump(
            changed(("topology",), {"name": "own", "zones": {"a": 2, "b": 2, "c": 1}, "rabbitmq_conf": "my.conf"})
        )
    )
    scenario = fault_file.load(mine / "incident.yaml")
    saved = tmp_path / "run" / "fault.yaml"
    saved.parent.mkdir()
    fault_file.save(scenario, saved)
    (mine / "my.conf").unlink()
    again = fault_file.load(saved)
    assert again.topology.rabbitmq_conf is not None
    assert again.topology.rabbitmq_conf.read_text() == "log.console = true\n"
    assert again.schedule == scenario.schedule


def test_no_such_file(tmp_path: Path, message: Messages) -> None:
    with message.of(FaultFileError):
        fault_file.load(tmp_path / "none.yaml")
