"""A broker dies under the rules of a user: what fires is kept, judged, and judged again without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.runner.judging import judge_run
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario import fault_file
from tests.run_scenarios import run_validated

pytestmark = [pytest.mark.plays, pytest.mark.usefixtures("measurable")]

RULES = """groups:
  - name: brokers
    rules:
      - {alert: BrokerDown, expr: 'up{job="nodes"} == 0', for: 2s}
      - {alert: Always, expr: vector(1)}
"""
SCENARIO = """version: 1
title: A broker dies, and alerts tell
topology: three_nodes_three_zones
metrics: true
rules: alerts.yml
workload: {queues: 2, publishers: 2, consumers: 2, rate_per_s: 100}
phases: {steady_s: 3, recovery_s: 60, settled_s: 2}
schedule:
  - {at_s: 1, for_s: 6, fault: kill, node: c1}
invariants:
  alerts:
    fires:
      - {alert: BrokerDown, labels: {node: c1}, within_s: 15, after_step: 0}
    ignored: [Always]
"""


def test_what_fires_is_kept_and_judged_again(
    own_testbed: RunContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = tmp_path / "alerts.yml"
    rules.write_text(RULES, encoding="utf-8")
    result = run_validated(fault_file.parse(SCENARIO, folder=tmp_path), own_testbed)
    finding = result.document["invariants"]["alerts"]
    assert result.verdict is Verdict.VALID, finding
    assert finding["numbers"]["alerts_fired"] == 1
    assert finding["numbers"]["slowest_s"] >= 2, "the for: of its rule"
    assert "Alerts of" in result.run.report.read_text(encoding="utf-8")
    assert not result.run.scraped.exists()

    rules.unlink()
    monkeypatch.setenv("PROMETHEUS", "/nowhere")
    assert judge_run(result.run).document["invariants"] == result.document["invariants"]
    text = result.run.fault_file.read_text(encoding="utf-8")
    result.run.fault_file.write_text(text.replace("- Always", "- BrokerDown"), encoding="utf-8")
    again = judge_run(result.run)
    assert again.verdict is Verdict.INVALID
    assert again.document["invariants"]["alerts"]["summary"].startswith("Always fired at ")

    result.run.alerts_file.unlink()
    assert judge_run(result.run).verdict is Verdict.UNKNOWN
