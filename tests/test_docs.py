"""The examples of docs/ work: each file that a page shows is written down as it stands there, and used."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import yaml

from rabbitmq_resilience.model.topology_catalogue import read as read_topology
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.validation import validated
from tests.corpus.reading import first_runs

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

#: The verdict of a run that was recorded.
RECORDED = first_runs() / "minority_zone_cut_off-3.10.8" / "verdict.json"

PAGE_WITH_FILES = ("add-a-fault.md", "add-an-invariant.md", "add-a-driver.md")
HEAD = """
version: 1
title: A node is taken into maintenance
topology: three_nodes_three_zones
workload: {queues: 1, publishers: 1, consumers: 1, rate_per_s: 100}
phases: {steady_s: 2, recovery_s: 60, settled_s: 1}
"""


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def files(page: str) -> Mapping[str, str]:
    """The Python files of a page, by the name in their first line."""
    return {found[1]: text for text in blocks(page, "python") if (found := re.match(r"# (\w+\.py)\n", text))}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with every Python file of the pages, and their entry points as a distribution has them."""
    points = []
    for page in PAGE_WITH_FILES:
        for name, text in files(page).items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        for text in blocks(page, "toml"):
            points.append(re.sub(r'\[project\.entry-points\."(.*?)"\]', r"[\1]", text).replace('"', ""))
    told = tmp_path / "theirs-1.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n", encoding="utf-8")
    (told / "entry_points.txt").write_text("\n".join(points), encoding="utf-8")
    return tmp_path


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environ = {**inherited, "PYTHONPATH": f"{folder}:{ROOT}"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False
    )


def test_every_example_can_be_imported(written: Path) -> None:
    modules = sorted(path.stem for path in written.glob("*.py"))
    assert modules == ["few_redeliveries", "maintenance", "nice_driver", "test_few_redeliveries"]
    done = run(written, "-c", f"import {', '.join(modules)}")
    assert done.returncode == 0, done.stderr


@pytest.mark.core
def test_the_tests_of_the_example_of_an_invariant_pass(written: Path) -> None:
    done = run(written, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_few_redeliveries.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


@pytest.mark.plays
def test_the_examples_of_a_fault_and_an_invariant_are_played(written: Path) -> None:
    (schedule,), (invariants,) = blocks("add-a-fault.md", "yaml"), blocks("add-an-invariant.md", "yaml")
    (written / "theirs.fault.yaml").write_text(HEAD + schedule + invariants, encoding="utf-8")
    done = run(written, "-m", "pytest", "theirs.fault.yaml")
    assert "1 scenario: 1 VALID" in done.stdout, done.stdout + done.stderr
    assert "few_redeliveries" in next(written.glob("reports/runs/*/verdict.json")).read_text(encoding="utf-8")


FORM = """
import os
from rabbitmq_resilience.model import topology_catalogue
from nice_driver import NICE

with NICE.open(None).form(topology_catalogue.load("three_nodes_three_zones")) as cluster:
    print("NICE", [os.getpriority(os.PRIO_PROCESS, pid) for pid in cluster.pids().values()], cluster.formed_in_s > 0)
"""


@pytest.mark.plays
def test_the_example_of_a_driver_forms_a_cluster(written: Path) -> None:
    mine = psutil.Process().nice()
    done = run(written, "-c", FORM)
    assert f"NICE {[min(mine + 10, 19)] * 3} True" in done.stdout, done.stdout + done.stderr


def test_the_files_of_the_first_walk_are_accepted(tmp_path: Path) -> None:
    topology, cut, full, expect = blocks("first-fault-file.md", "yaml")
    (tmp_path / "topologies").mkdir()
    (tmp_path / "topologies" / "shop.yaml").write_text(topology, encoding="utf-8")
    (tmp_path / "topologies" / "rabbitmq.conf").touch()
    assert read_topology(tmp_path / "topologies" / "shop.yaml").node_names == ("a1", "a2", "b1", "b2", "c1")
    for text in (cut, full, full + expect):
        assert fault_file.parse(text, folder=tmp_path)


def test_the_invalid_run_is_that_of_the_unsafe_set_up() -> None:
    (shown,) = blocks("an-invalid-run.md", "yaml")
    kept = yaml.safe_load((ROOT / "faults" / "unsafe" / "not_persistent.fault.yaml").read_text(encoding="utf-8"))
    left_out = {"expect", "markers", "name", "tries", "title", "reference"}
    expected = {name: value for name, value in kept.items() if name not in left_out}
    assert {name: value for name, value in yaml.safe_load(shown).items() if name not in left_out} == expected


def test_the_example_in_python_asks_for_what_a_verdict_has() -> None:
    """Playing it takes a minute for each value, so it gets the verdict of a recorded run here."""
    example = runpy.run_path(str(ROOT / "faults" / "examples" / "test_broker_dies.py"))
    document = json.loads(RECORDED.read_text(encoding="utf-8"))
    played = []

    def play(scenario: Scenario) -> SimpleNamespace:
        validated(scenario, driver="local")
        played.append(scenario.title)
        return SimpleNamespace(document=document)

    example["test_the_leaders_broker_dies"](3, play)
    assert played == ["The broker of a leader dies for 3 s"]


def test_the_test_in_python_that_is_shown_plays_a_scenario() -> None:
    (shown,) = blocks("your-repository.md", "python")
    played = []

    def play(scenario: Scenario) -> SimpleNamespace:
        validated(scenario, driver="local")
        played.append(scenario.title)
        return SimpleNamespace(document=json.loads(RECORDED.read_text(encoding="utf-8")))

    names: dict[str, Any] = {}
    exec(shown, names)  # noqa: S102 - as whoever copies it does
    names["test_the_leaders_broker_dies"](play)
    assert played == ["The broker of a leader dies"]


@pytest.mark.parametrize("page", ["incidents.md"])
def test_other_fault_files_that_are_shown_are_accepted(page: str) -> None:
    for text in blocks(page, "yaml"):
        assert fault_file.parse(text)
