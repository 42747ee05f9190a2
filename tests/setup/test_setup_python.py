"""Which Python set-up takes, and when it installs packages again."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from setup import environment
from setup.steps import ROOT, Missing
from tests.setup.programs import program


def test_a_python_that_is_too_old_is_passed_over_and_said(path: Path) -> None:
    for name in ("python3", "python3.12"):
        program(path / name, "exit 1")
    (path / "dirname").symlink_to("/usr/bin/dirname")
    (path / "cat").symlink_to("/bin/cat")
    done = subprocess.run(["/bin/sh", ROOT / "setup" / "start"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    for hint in ("Python 3.11 or newer is needed", "python3-venv", "brew install python", "PYTHON="):
        assert hint in done.stderr


def test_the_first_python_that_is_new_enough_is_used(path: Path) -> None:
    program(path / "python3", "exit 1")
    program(path / "python3.12", '[ "$1" = -c ] || echo "started: $@"')
    (path / "dirname").symlink_to("/usr/bin/dirname")
    done = subprocess.run(["/bin/sh", ROOT / "setup" / "start", "python"], capture_output=True, text=True, check=True)
    assert done.stdout == "started: -m setup python\n"


def test_packages_are_installed_again_when_a_pin_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("pika==1.4.4\n")
    monkeypatch.setattr(environment, "CONSTRAINTS", constraints)
    monkeypatch.setattr(environment, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(environment, "PYTHON", Path(sys.executable))
    assert environment.found() is None
    (tmp_path / "stamp").write_text(environment.key())
    assert environment.found() is not None
    constraints.write_text("pika==1.4.5\n")
    assert environment.found() is None


def test_packages_that_cannot_be_had_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = program(tmp_path / "python", "echo 'no matching distribution'; exit 1")
    monkeypatch.setattr(environment, "PYTHON", pip)
    monkeypatch.setattr(environment, "_belongs_here", lambda: True)
    with pytest.raises(Missing, match=r"(?s)no matching distribution.*PIP_INDEX_URL"):
        environment.make()


def test_everything_that_is_installed_is_pinned() -> None:
    pinned = {canonicalize_name(line.split("==")[0]) for line in environment.CONSTRAINTS.read_text().splitlines()}
    needed: set[str] = set()
    todo = [Requirement(text) for text in environment.requirements(ROOT / "pyproject.toml")]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name in needed:
            continue
        needed.add(name)
        for text in distribution(name).requires or []:
            below = Requirement(text)
            if below.marker is None or below.marker.evaluate({"extra": ""}):
                todo.append(below)
    assert needed - pinned == set()
