"""A sweep on real brokers: played in two sessions, it is one table, and nothing is played twice or mixed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from rabbitmq_resilience.extensions.sweeps.results import ResultRow, Results
from rabbitmq_resilience.plugin.sessions import EXIT_UNKNOWN
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


def require_status(done: subprocess.CompletedProcess[str], entered: Sequence[ResultRow]) -> None:
    """Assert that the session passed, or says that other programs disturbed all of its runs."""
    disturbed = all(line.status == "disturbed" for line in entered)
    assert done.returncode == (EXIT_UNKNOWN if disturbed else 0), done.stdout + done.stderr
    assert ("no numbers" in done.stdout) == disturbed


@pytest.mark.plays
def test_two_sessions_make_one_table(tmp_path: Path) -> None:
    (tmp_path / "two.sweep.yaml").write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    first = played(tmp_path, "rate_per_s 50 (round 1)", "rate_per_s 200 (round 1)")
    folder = tmp_path / "reports" / "sweeps" / "two"
    before = Results.read(folder).lines
    assert [line.round for line in before] == [1, 1]
    require_status(first, before)

    second = played(tmp_path)
    left = 2 + sum(line.is_played_again for line in before)  # tests play beside each other, and may disturb
    assert f"{left} runs" in second.stdout
    results = Results.read(folder)
    lines, page = results.lines, (folder / "index.html").read_text()
    require_status(second, lines[2:])
    assert (len(lines), lines[:2]) == (2 + left, before)
    assert {(line.round, line.labels["rate_per_s"]) for line in lines} == {
        (number, rate) for number in (1, 2) for rate in ("50", "200")
    }
    for line in lines:
        assert line.status in ("measured", "not held", "disturbed"), line
        rate = line.values.get("confirmed_per_s")
        assert rate is None or rate == pytest.approx(float(line.labels["rate_per_s"]), rel=0.2)
        if line.status == "measured":
            assert line.values["connection_kb"] is not None, "somebody looked before the connections came"
        kept = {path.name for path in (tmp_path / "reports" / "runs" / line.run).iterdir()}
        assert kept == {"fault.yaml", "report.html", "verdict.json"}
    assert len(results.final) == 4
    assert all(f"runs/{line.run}/report.html" in page for line in results.final)

    disturbed = sum(line.status == "disturbed" for line in results.final)
    assert session(tmp_path, "-q", "--collect-only", "two.sweep.yaml").stdout.count("(round ") == disturbed
    of, *rest = (folder / "runs.jsonl").read_text().splitlines()
    elsewhere = json.dumps({**json.loads(of), "broker_version": "4.0.5"})
    (folder / "runs.jsonl").write_text("\n".join([elsewhere, *rest[:-1]]) + "\n")
    mixed = played(tmp_path)
    assert mixed.returncode == pytest.ExitCode.TESTS_FAILED
    assert "broker version: 4.0.5" in mixed.stdout
    assert Results.read(folder).lines == lines[:-1]


@pytest.mark.plays
@pytest.mark.parametrize(("option", "field"), [("--resilience-repeat=3", "repeats"), ("--resilience-seed=99", "seed")])
def test_options_of_scenarios_are_refused(tmp_path: Path, option: str, field: str) -> None:
    (tmp_path / "two.sweep.yaml").write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    done = session(tmp_path, "-q", "two.sweep.yaml", "--resilience-check-only", option)
    assert done.returncode != 0
    assert f"{field} into two.sweep.yaml" in done.stdout
