"""A sweep on real brokers: played in two sessions, it is one table, and nothing is played twice or mixed."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from rabbitmq_resilience.sweeps.results import Results
from tests.test_plugin import session

SWEEP = {
    "version": 1,
    "title": "Two rates",
    "base": {
        "version": 1,
        "title": "base",
        "topology": {"name": "alone", "zones": {"a": 1}},
        "workload": {"queue_type": "classic", "idle_connections": 150},
        "phases": {"steady_s": 4, "settled_s": 0.5},
        "invariants": {"no_loss": {}},
    },
    "axes": [{"field": "workload.rate_per_s", "values": [50, 200]}],
    "repeats": 2,
    "measures": ["confirmed_per_s", "end_to_end_p50_ms", "outage_s", "connection_kb"],
}


def played(folder: Path, *chosen: str) -> subprocess.CompletedProcess[str]:
    tests = [f"two.sweep.yaml::{name}" for name in chosen] or ["two.sweep.yaml"]
    return session(folder, "-q", *tests, "--resilience-runs-dir", "reports/runs")


@pytest.mark.broker
def test_two_sessions_make_one_table(tmp_path: Path) -> None:
    (tmp_path / "two.sweep.yaml").write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    first = played(tmp_path, "rate_per_s 50 (round 1)", "rate_per_s 200 (round 1)")
    assert first.returncode == 0, first.stdout + first.stderr
    folder = tmp_path / "reports" / "sweeps" / "two"
    before = Results.read(folder).lines
    assert [line.round for line in before] == [1, 1]

    second = played(tmp_path)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "2 runs" in second.stdout
    lines = Results.read(folder).lines
    assert lines[:2] == before
    assert Counter((line.round, line.labels["rate_per_s"]) for line in lines) == {
        (number, rate): 1 for number in (1, 2) for rate in ("50", "200")
    }
    for line in lines:
        assert line.status in ("measured", "not held"), line
        rate = line.values.get("confirmed_per_s")
        assert rate is None or rate == pytest.approx(float(line.labels["rate_per_s"]), rel=0.2)
        if line.status == "measured":
            assert line.values["connection_kb"] is not None, "somebody looked before the connections came"
        kept = {path.name for path in (tmp_path / "reports" / "runs" / line.run).iterdir()}
        assert kept == {"fault.yaml", "report.html", "verdict.json"}
        assert f"runs/{line.run}/report.html" in (folder / "index.html").read_text()

    assert played(tmp_path).returncode == pytest.ExitCode.NO_TESTS_COLLECTED, "all of it was played"
    of, *rest = (folder / "runs.jsonl").read_text().splitlines()
    elsewhere = json.dumps({**json.loads(of), "broker_version": "4.0.5"})
    (folder / "runs.jsonl").write_text("\n".join([elsewhere, *rest[:-1]]) + "\n")
    mixed = played(tmp_path)
    assert mixed.returncode == pytest.ExitCode.TESTS_FAILED
    assert "are never mixed (broker version: 4.0.5 then" in mixed.stdout
    assert Results.read(folder).lines == lines[:-1]


@pytest.mark.parametrize(("option", "field"), [("--resilience-repeat=3", "repeats"), ("--resilience-seed=99", "seed")])
def test_options_of_scenarios_are_refused(tmp_path: Path, option: str, field: str) -> None:
    (tmp_path / "two.sweep.yaml").write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    done = session(tmp_path, "-q", "two.sweep.yaml", "--resilience-check-only", option)
    assert f"is not for sweeps: write {field} into two.sweep.yaml" in done.stdout
