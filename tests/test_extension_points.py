"""Show that the core imports no extension, and that it works where none is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from rabbitmq_resilience import command, extension_points
from rabbitmq_resilience.extension_points import EXTENSIONS, ExtensionMissingError, is_installed, load, provided
from rabbitmq_resilience.tools.locations import TOOLS

ROOT = Path(__file__).resolve().parents[1]

#: A plugin that lists the extensions that a session has imported.
LISTS = """
import sys

def pytest_unconfigure():
    found = sorted(name for name in sys.modules if name.startswith("rabbitmq_resilience.extensions"))
    print(f"EXTENSIONS {found}")
"""


def session(folder: Path, *arguments: str, path: Path, cwd: Path = ROOT) -> str:
    """Run pytest with the package that lies in ``path``; return what it printed."""
    (folder / "lists_extensions.py").write_text(LISTS, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": f"{path}:{folder}", "RABBITMQ_RESILIENCE_TOOLS": str(TOOLS)}
    run = [sys.executable, "-m", "pytest", "-p", "lists_extensions", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(run, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_former_paths_lead_to_the_same_objects() -> None:
    for former, present in {
        "invariants.judge:judge": "checkers.judge:judge",
        "invariants.verdict:Verdict": "checkers.verdict:Verdict",
        "play.judging:meets": "runner.endings:meets",
        "faults.step:Step": "nemesis.scheduled_fault:ScheduledFault",
        "clusters.spec:Link": "model.links:Link",
        "clusters.protocol:NodeState": "sut.node_protocol:NodeState",
        "clusters.broker.versions:lacking": "sut.broker.versions:lacking",
    }.items():
        (old_module, old_name), (new_module, new_name) = (path.split(":") for path in (former, present))
        found = getattr(import_module(f"rabbitmq_resilience.{old_module}"), old_name)
        assert found is getattr(import_module(f"rabbitmq_resilience.{new_module}"), new_name), former
    with pytest.raises(ModuleNotFoundError):
        import_module("rabbitmq_resilience.invariants.nothing_like_it")


def test_what_extensions_provide_is_there() -> None:
    targets = [*EXTENSIONS.values(), *(command.target for command in command.COMMANDS.values())]
    for target in targets:
        assert load(target, what=target) is not None


def test_an_extension_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = "rabbitmq_resilience.extensions.nowhere"
    monkeypatch.setattr(extension_points, "EXTENSIONS", {"nights": f"{nowhere}.deep:Thing"})
    assert not is_installed(f"{nowhere}:thing")
    with pytest.raises(ExtensionMissingError, match=f"nights: this installation has no {nowhere}; install"):
        provided("nights")


@pytest.mark.core
def test_scenarios_are_collected_without_extensions(tmp_path: Path) -> None:
    printed = session(tmp_path, "suites", "-m", "partitions", "--check-only", "-q", path=ROOT)
    assert "EXTENSIONS []" in printed


#: A scenario that is over soon.
QUICK = """
version: 1
title: A client goes and comes
topology: one.yaml
workload: {queues: 1, rate_per_s: 100}
phases: {steady_s: 2, recovery_s: 60, settled_s: 1}
schedule:
  - {at_s: 1, for_s: 1, fault: kill_client, client: "publisher:0"}
invariants: {no_loss: {}}
"""


@pytest.mark.core
def test_the_core_plays_where_no_extension_is_installed(tmp_path: Path) -> None:
    package = tmp_path / "core" / "rabbitmq_resilience"
    without = shutil.ignore_patterns("extensions", "__pycache__")
    shutil.copytree(ROOT / "rabbitmq_resilience", package, ignore=without)
    (tmp_path / "quick.fault.yaml").write_text(QUICK, encoding="utf-8")
    (tmp_path / "one.yaml").write_text("name: one\nzones: {a: 1}\n", encoding="utf-8")
    where = {"path": package.parent, "cwd": tmp_path}
    printed = session(tmp_path, "quick.fault.yaml", f"--resilience-runs-dir={tmp_path / 'runs'}", **where)
    assert "1 scenario: 1 VALID" in printed
    assert "EXTENSIONS []" in printed
    run = [sys.executable, "-m", "rabbitmq_resilience"]
    environment = os.environ | {"PYTHONPATH": str(package.parent)}
    listed = subprocess.run([*run, "--help"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "presets" in listed.stdout
    assert "nightly" not in listed.stdout.partition("commands:")[2]
