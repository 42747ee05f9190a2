"""A scenario's alerting rules: what could never show what is demanded is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from tests.messages import Messages

RULES = """groups:
  - name: brokers
    interval: 5s
    rules:
      - {alert: BrokerDown, expr: up == 0, for: 20s}
      - {alert: Quick, expr: up == 0}
"""
SANE = """version: 1
title: A broker dies
topology: three_nodes_three_zones
metrics: true
rules: alerts/mine.yml
schedule:
  - {at_s: 1, for_s: 5, fault: kill, node: c1}
invariants:
  alerts:
    fires: [{alert: BrokerDown, labels: {node: c1}, within_s: 25, after_step: 0}]
    ignored: [Quick]
"""


@pytest.fixture(autouse=True)
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "alerts" / "mine.yml"
    file.parent.mkdir()
    file.write_text(RULES, encoding="utf-8")
    return file


def problems(tmp_path: Path, *changes: tuple[str, str]) -> list[str]:
    text = SANE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(FaultFileError) as told:
        fault_file.parse(text, folder=tmp_path)
    return [str(problem).replace(str(tmp_path), "here") for problem in told.value.problems]


def test_rules_are_found_next_to_the_fault_file_and_copied_next_to_the_record(tmp_path: Path, rules: Path) -> None:
    for text in (SANE, SANE.replace("rules: alerts/mine.yml", "rules: [alerts/mine.yml, alerts/mine.yml]")):
        scenario = fault_file.parse(text, folder=tmp_path)
        assert set(scenario.rule_files) == {rules}
        run = tmp_path / "run"
        run.mkdir(exist_ok=True)
        fault_file.save(scenario, run / "fault.yaml")
        again = fault_file.load(run / "fault.yaml")
        assert [path.read_text(encoding="utf-8") for path in again.rule_files] == [RULES] * len(scenario.rule_files)
        assert all(path.parent == run / "rules" for path in again.rule_files)
        assert again.invariants == scenario.invariants


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("metrics: true\n", "", "metrics: true"),
        ("mine.yml", "yours.yml", "here/alerts/yours.yml"),
        ("rules: alerts/mine.yml\n", "", "rules: alerts.yml"),
        ("alert: BrokerDown", "alert: BrokersDown", "BrokerDown?"),
        ("after_step: 0", "after_step: 1", "after_step: "),
        ("ignored: [Quick]", "ignored: [Slow]", "BrokerDown, Quick"),
        ("within_s: 25", "within_s: 15", "20 s"),
    ],
)
def test_what_could_never_show_it_is_refused(tmp_path: Path, old: str, new: str, told: str, message: Messages) -> None:
    found = problems(tmp_path, (old, new))
    assert any(told in line for line in found), found
    assert all(line.startswith("line ") for line in found)
    message("\n".join(found))


def test_a_damaged_rule_file_is_reported_with_both_lines(tmp_path: Path, rules: Path) -> None:
    rules.write_text(RULES.replace("for: 20s", "for: 20"), encoding="utf-8")
    (found,) = problems(tmp_path, ("title: A broker dies", "title: A broker dies, and damaged rules"))
    assert found.startswith("line 5, rules: here/alerts/mine.yml, line 5: groups.rules.for: ")


def test_what_was_played_already_is_judged_whatever_its_rules_are_like(tmp_path: Path, rules: Path) -> None:
    rules.write_text("groups: 7", encoding="utf-8")
    assert fault_file.parse(SANE, folder=tmp_path, driver=None).rule_files == (rules,)
