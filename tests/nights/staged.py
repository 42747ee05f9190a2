"""Sessions of pytest in a folder of their own, whose scenarios are played at once: each leaves a copy of a recorded
run, which is judged as any. Everything but the broker is real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.corpus.reading import first_runs

ROOT = Path(__file__).resolve().parents[2]
RECORDED = first_runs()

#: The title of a scenario begins with the recorded run that it stands for.
CONFTEST = f"""
import shutil, time
from pathlib import Path

import pytest

from rabbitmq_resilience.sut.drivers import OpenDriver
from rabbitmq_resilience.runner import run
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.runner.judging import judge_run
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.scenario import fault_file

RECORDED = Path({str(RECORDED)!r})

def staged(scenario, testbed, *, proxied=None):
    name = scenario.title.split()[0]
    made = RunDirectory.create(testbed.runs_root, scenario.title)
    if name == "hangs":
        Path("hangs").touch()
        time.sleep(600)
    if name == "raises":
        raise ClusterError("the cluster did not form\\nbecause of this")
    (made.path / "manifest.json").unlink()
    shutil.copytree(RECORDED / name, made.path, dirs_exist_ok=True)
    result = judge_run(made)
    if "known" in scenario.title:
        document = {{**result.document, "as_expected": True, "reference": "#1"}}
        made.write_verdict(document)
        result = run.Result(made, result.verdict, True, document)
    testbed.judged(result)
    return result

run.run_scenario = staged

@pytest.fixture(scope="session")
def resilience_driver():
    yield OpenDriver("3.10.8", form=None, find_prometheus=None)
"""

SCENARIO = """
version: 1
title: {title}
topology: three_nodes_three_zones
schedule: []
invariants:
  no_loss: {{}}
  order: {{}}
"""


def stage(folder: Path, *titles: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\nresilience_nights_dir = nights\n")
    for number, title in enumerate(titles):
        (folder / f"s{number}.fault.yaml").write_text(SCENARIO.format(title=title))
    return folder


def begun(folder: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "RABBITMQ_RESILIENCE", "GITHUB"))}
    command = [sys.executable, "-m", "pytest", "-p", "no:hypothesispytest", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env={**inherited, **environ}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def session(folder: Path, *arguments: str, **environ: str) -> tuple[int, str]:
    """The exit status and what was said."""
    with begun(folder, *arguments, **environ) as process:
        told, _ = process.communicate(timeout=300)
    return process.returncode, told
