"""Rule files: what is right is read, what is wrong is told with its line, and each group tells when it is evaluated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rabbitmq_resilience.model.alert_rules import (
    EVALUATED,
    RulesError,
    duration_s,
    given_to_server,
    promtool_next_to,
    read_rules,
)
from tests.messages import Messages

SANE = """groups:
  - name: brokers
    interval: 2s
    rules:
      - alert: BrokerDown
        expr: up == 0
        for: 1m30s
        labels: {severity: critical}
      - record: nodes:up
        expr: sum(up)
  - name: empty
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "alerts.yml"


def refused(file: Path, text: str, promtool: Path | None = None) -> str:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RulesError) as told:
        read_rules(file, promtool=promtool)
    return str(told.value).replace(str(file), "alerts.yml")


def test_what_stands_there_is_read(file: Path) -> None:
    file.write_text(SANE, encoding="utf-8")
    brokers, empty = read_rules(file).groups
    assert (brokers.every_s, empty.every_s) == (2, 1)
    assert [(rule.alert, rule.for_) for rule in brokers.rules or ()] == [("BrokerDown", "1m30s"), (None, "0s")]


@pytest.mark.parametrize(("text", "length_s"), [("0", 0), ("250ms", 0.25), ("1m30s", 90), ("2h", 7200)])
def test_durations(text: str, length_s: float) -> None:
    assert duration_s(text) == length_s


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (("for: 1m30s", "for: soon"), 7),
        (("        expr: up == 0\n", ""), 5),
        (("labels:", "label:"), 8),
        (("name: empty", "name: brokers"), 11),
        (("record: nodes:up", "annotations: {}"), 9),
        (("groups:\n", ""), 1),
    ],
)
def test_what_is_wrong_is_reported_with_its_line(
    file: Path, wrong: tuple[str, str], line: int, message: Messages
) -> None:
    told = refused(file, SANE.replace(*wrong))
    assert told.startswith(f"alerts.yml, line {line}: ")
    message(told)


def test_what_is_no_yaml_and_what_is_not_there(file: Path, message: Messages) -> None:
    told = refused(file, "groups: [\n:")
    assert told.startswith("alerts.yml, line 2: ")
    message(told)
    file.unlink()
    with message.of(RulesError):
        read_rules(file)


def test_promtool_checks_the_expressions(file: Path, prometheus: Path) -> None:
    promtool = promtool_next_to(prometheus)
    if promtool is None:
        pytest.skip("there is no promtool beside this server")
    told = refused(file, SANE.replace("up == 0", "up =="), promtool)
    assert "alerts.yml, line 6" in told
    assert "could not parse expression" in told


def test_each_group_of_a_copy_records_its_evaluations(file: Path) -> None:
    file.write_text(SANE, encoding="utf-8")
    rules = read_rules(file)
    copies = dict(given_to_server([rules, rules]))
    assert list(copies) == ["rules-0.yml", "rules-1.yml"]
    added = [group["rules"][-1] for text in copies.values() for group in json.loads(text)["groups"]]
    assert [rule["record"] for rule in added] == [EVALUATED] * 4
    assert sorted(rule["labels"]["resilience_group"] for rule in added) == ["0", "1", "2", "3"]
    mine = json.loads(copies["rules-0.yml"])["groups"][0]["rules"][:-1]
    assert mine == yaml.safe_load(SANE)["groups"][0]["rules"]
