"""The package as users have it: from a wheel or from a checkout, in an environment and a folder of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from rabbitmq_resilience.tools.locations import TOOLS

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.core

QUIET = """
version: 1
title: A client goes and comes
topology: my/one.yaml
workload: {queues: 1, rate_per_s: 100}
phases: {steady_s: 2, recovery_s: 60, settled_s: 1}
schedule:
  - {at_s: 1, for_s: 1, fault: kill_client, client: "publisher:0"}
invariants: {no_loss: {}, quick: {}}
"""

#: A fault, an invariant and a topology of somebody else, as a distribution has them.
MINE = '''
from pathlib import Path
from typing import ClassVar, Literal

from rabbitmq_resilience import Fault, Finding, History, Invariant, Verdict

TOPOLOGIES = Path(__file__).parent / "mine"

class Nap(Fault):
    """Nothing happens for a while."""

    fault: Literal["nap"] = "nap"
    acts_on: ClassVar[str] = "clients"

    def prepare(self, context, resolver, *, for_s):
        raise NotImplementedError

class Quick(Invariant):
    """The run is short."""

    within_s: float = 600

    def check(self, history: History) -> Finding:
        lasted_s = (history.events[-1].t_us - history.events[0].t_us) / 1e6
        return Finding(Verdict.VALID if lasted_s < self.within_s else Verdict.INVALID, f"it took {lasted_s:.0f} s")
'''
ENTRY_POINTS = """
[rabbitmq_resilience.faults]
nap = mine:Nap
[rabbitmq_resilience.invariants]
quick = mine:Quick
[rabbitmq_resilience.topologies]
mine = mine:TOPOLOGIES
"""
ALONE = """
from pathlib import Path
import rabbitmq_resilience as resilience

(run,) = Path("reports/runs").glob("*/fault.yaml")
scenario = resilience.load(run)
assert resilience.recheck(run.parent).verdict is resilience.Verdict.VALID
assert scenario.topology == resilience.load_topology(Path("my/one.yaml")), scenario.topology
print("RECHECKED", scenario.title)
"""


@dataclass(frozen=True)
class Installed:
    """An environment with the package, and an empty folder of its user."""

    bin: Path
    folder: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHON", "VIRTUAL_ENV"))}
        environ = {
            **inherited,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder.parent / "others"),
            "RABBITMQ_RESILIENCE_TOOLS": str(TOOLS),
        }
        whole = [str(self.bin / command[0]), *command[1:]]
        return subprocess.run(
            whole, cwd=self.folder, env=environ, capture_output=True, text=True, timeout=300, check=False
        )


#: A wheel over the packages of this environment is quick; all that a user's pip installs takes a minute.
HOW = ["wheel", *(pytest.param(how, marks=pytest.mark.installed) for how in ("wheel_and_packages", "editable"))]


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--no-input", "-q", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", params=HOW)
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    place = tmp_path_factory.mktemp(request.param)
    python = place / "venv" / "bin" / "python"
    venv.create(place / "venv", with_pip=False)
    constrained = ("--python", python, "install", "-c", ROOT / "constraints.txt")
    if request.param == "editable":
        pip(*constrained, "hatchling", "editables", "--editable", ROOT)
    elif request.param == "wheel_and_packages":
        pip(*constrained, ROOT)
    else:
        pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", place, ROOT)
        pip("--python", python, "install", "--no-deps", *place.glob("*.whl"))
        (packages,) = (place / "venv").glob("lib/python*/site-packages")
        (packages / "packages.pth").write_text(sysconfig.get_path("purelib"))
        command = python.with_name("pytest")  # as pip writes it
        command.write_text(f"#!{python}\nimport sys, pytest\nsys.exit(pytest.console_main())\n")
        command.chmod(0o755)
    mine = place / "others"
    (mine / "mine").mkdir(parents=True)
    (mine / "mine.py").write_text(MINE)
    (mine / "mine" / "my_three.yaml").write_text("name: my_three\nzones: {a: 1, b: 1, c: 1}\n")
    (mine / "mine-1.dist-info").mkdir()
    (mine / "mine-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (mine / "mine-1.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    (place / "folder").mkdir()
    return Installed(place / "venv" / "bin", place / "folder")


def test_it_is_found_where_it_was_installed(installed: Installed) -> None:
    told = installed.run(
        "python", "-c", "import rabbitmq_resilience as r; print(r.__file__, r.Scenario.__name__)"
    ).stdout
    there = str(installed.bin.parent) if "wheel" in str(installed.bin) else str(ROOT)
    assert told.startswith(there), told
    assert told.endswith("Scenario\n")


def test_a_first_folder_is_made_and_checked(installed: Installed) -> None:
    done = installed.run("rabbitmq-resilience", "init", "incidents")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "zone_cut_off.fault.yaml" in done.stdout
    assert (installed.folder / "incidents" / "shop.py").is_file()
    checked = installed.run("pytest", "--check-only", "incidents")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert re.search(r"\b4 passed", checked.stdout), checked.stdout
    again = installed.run("rabbitmq-resilience", "init", "incidents")
    assert again.returncode == 1
    assert "is not empty" in again.stderr


@pytest.mark.plays
def test_a_first_scenario_is_played_and_its_page_named(installed: Installed) -> None:
    done = installed.run("rabbitmq-resilience", "try", "--runs", "first")
    assert done.returncode in (0, 10), done.stdout + done.stderr  # a busy machine may leave it UNKNOWN
    (page,) = (installed.folder / "first").glob("*/report.html")
    assert f"The page of this run is one file: {page}\nOpen it: " in done.stdout
    assert "[1/2] RabbitMQ 4.0" in done.stdout
    shutil.rmtree(installed.folder / "first")


def test_programs_are_found_or_fetched(installed: Installed) -> None:
    done = installed.run("rabbitmq-resilience", "setup")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [line.partition(":")[0] for line in done.stdout.splitlines() if line.startswith("[")]
    assert steps == [
        "[1/7] RabbitMQ 4.0",
        "[2/7] RabbitMQ 4.3 or later",
        "[3/7] RabbitMQ 3.10",
        "[4/7] Toxiproxy",
        "[5/7] Prometheus",
        "[6/7] HAProxy",
        "[7/7] Failing disks",
    ]


def test_a_fault_file_is_made_of_logs(installed: Installed) -> None:
    logs = str(ROOT / "tests" / "evidence" / "logs" / "3.10.8-zone-cut-off")
    done = installed.run("rabbitmq-resilience", "fault-file", logs, "--to", "made.fault.yaml")
    assert done.returncode == 0, done.stderr
    assert re.search(r"fault: .?partition", (installed.folder / "made.fault.yaml").read_text())
    (installed.folder / "made.fault.yaml").unlink()


def test_a_scenario_of_ones_own_is_played_and_judged_again(installed: Installed) -> None:
    """With a topology beside it, and an invariant that another distribution adds."""
    (installed.folder / "my").mkdir()
    (installed.folder / "my" / "one.yaml").write_text("name: one\nzones: {a: 1}\n")
    (installed.folder / "mine.fault.yaml").write_text(QUIET)
    played = installed.run("pytest", "mine.fault.yaml")
    assert played.returncode == 0, played.stdout + played.stderr
    assert "1 scenario: 1 VALID" in played.stdout
    (run,) = (installed.folder / "reports" / "runs").glob("*/")
    rechecked = installed.run("pytest", "--recheck", str(run))
    assert rechecked.returncode == 0, rechecked.stdout + rechecked.stderr
    assert installed.run("pytest", "--check-only", str(run / "fault.yaml")).returncode == 0
    alone = installed.run("python", "-c", ALONE)
    assert alone.stdout.endswith("RECHECKED A client goes and comes\n"), alone.stderr


def test_what_others_add_is_known(installed: Installed) -> None:
    text = QUIET.replace('fault: kill_client, client: "publisher:0"', "fault: nap")
    text = text.replace("my/one.yaml", "my_three")
    (installed.folder / "nap.fault.yaml").write_text(text)
    done = installed.run("pytest", "--check-only", "nap.fault.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    (installed.folder / "nap.fault.yaml").write_text(text.replace("nap", "naps"))
    assert "did you mean nap?" in installed.run("pytest", "--check-only", "nap.fault.yaml").stdout
    (installed.folder / "nap.fault.yaml").unlink()
