"""A night and a run, for tests to change in one place."""

from __future__ import annotations

from rabbitmq_resilience.extensions.nights.night_file import Header, NightMachine
from rabbitmq_resilience.runner.run_line import RunLine

HEADER = Header(
    night="2026-11-22T01:00:00Z",
    name=None,
    suite_version="0.1.0",
    suite_commit=None,
    machine=NightMachine(cpus=2, memory_gb=24.0, cpu_model="a processor", kernel="6.1.0", id="0123abcd"),
    driver="local",
    budget_min=140,
)

PLAYED = RunLine(
    scenario="suites/test_kills.py::test_leader[quorum]",
    title="The leader's broker dies",
    verdict="VALID",
    as_expected=True,
    expected="VALID",
    known=None,
    invariants={"no_loss": "VALID", "order": "VALID"},
    broke_first=None,
    seed=7,
    broker_version="3.10.8",
    driver="local",
    topology="three_nodes_three_zones",
    partition_handling="pause_minority",
    queue_type="quorum",
    outage_s=1.2,
    outage_total_s=1.0,
    stall_s=1.2,
    recovered_s=4.5,
    kept_ratio=0.9,
    confirmed_per_s=500.0,
    others_cpu=0.1,
    started_at="2026-11-22T01:00:30+00:00",
    duration_s=42.0,
    run="20261122T010030Z-the-leader-s-broker-dies",
    rerun=".venv/bin/pytest reports/runs/20261122T010030Z-the-leader-s-broker-dies/fault.yaml",
    fault_file="20261122T010030Z-the-leader-s-broker-dies/fault.yaml",
)
