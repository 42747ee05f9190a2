"""Which Python set-up takes, and when it installs packages again."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rabbitmq_resilience.extensions.setup import setup_command
from rabbitmq_resilience.extensions.setup.setup_tasks import ROOT, Missing, SetupTask
from setup import environment
from setup.__main__ import main
from tests.messages import Messages
from tests.tools.programs import program


def test_a_python_that_is_too_old_is_passed_over_and_said(path: Path, message: Messages) -> None:
    for name in ("python3", "python3.12"):
        program(path / name, "exit 1")
    (path / "dirname").symlink_to("/usr/bin/dirname")
    (path / "cat").symlink_to("/bin/cat")
    done = subprocess.run(["/bin/sh", ROOT / "setup" / "start"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    for hint in ("Python 3.11", "python3-venv", "brew install python", "PYTHON="):
        assert hint in done.stderr
    message(done.stderr)


def test_the_first_python_that_is_new_enough_is_used(path: Path) -> None:
    program(path / "python3", "exit 1")
    program(path / "python3.12", '[ "$1" = -c ] || echo "started: $@"')
    (path / "dirname").symlink_to("/usr/bin/dirname")
    done = subprocess.run(["/bin/sh", ROOT / "setup" / "start", "python"], capture_output=True, text=True, check=True)
    assert done.stdout == "started: -m setup python\n"


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that set-up hands over to, instead of being done."""
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, setup_command: commands.append(setup_command))
    return commands


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("arguments", [["engine"], ["images"], ["images", "3.8.9", "3.10.8"]], ids=" ".join)
def test_what_needs_packages_goes_on_in_the_environment(
    arguments: list[str],
    handed_over: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    message: Messages,
) -> None:
    made = SetupTask("Python packages", lambda: None, lambda: ".venv")
    monkeypatch.setattr(environment, "STEP", made)
    monkeypatch.setattr(environment, "found", made.found)
    assert main(arguments) == 0
    message(capsys.readouterr().out, hide={r"in \d+ s": "in N s"})
    assert handed_over.pop() == [
        str(environment.PYTHON),
        "-m",
        "rabbitmq_resilience.extensions.setup.setup_command",
        *arguments,
    ]

    monkeypatch.setattr(environment, "found", lambda: ".venv")
    assert main(arguments) == 0
    assert capsys.readouterr().out == ""
    assert len(handed_over) == 1


@pytest.mark.usefixtures("tools")
def test_what_needs_packages_is_not_tried_without(
    handed_over: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    def make() -> str:
        raise Missing("no index of packages")

    monkeypatch.setattr(environment, "STEP", SetupTask("Python packages", lambda: None, make))
    monkeypatch.setattr(environment, "found", lambda: None)
    assert main(["engine"]) == 1
    told = capsys.readouterr().err
    assert "no index of packages" in told
    message(told)
    assert handed_over == []


@pytest.mark.usefixtures("tools")
def test_what_needs_no_package_is_done_at_once(
    handed_over: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    there = [
        SetupTask(title, lambda: "here", lambda: pytest.fail("was made")) for title in ("Python packages", "Broker")
    ]
    monkeypatch.setattr(environment, "STEP", there[0])
    monkeypatch.setattr(setup_command, "STEPS", there[1:])
    assert main([]) == 0
    assert main(["python"]) == 0
    message(capsys.readouterr().out)
    assert main(["engine-stop"]) == 0
    with pytest.raises(SystemExit, match="2"):
        main(["engine", "now"])
    assert "usage: setup/start " in capsys.readouterr().err
    assert handed_over == []


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


@pytest.mark.core
def test_packages_that_cannot_be_had_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    venv = tmp_path / "venv"
    pip = program(venv / "bin" / "python", "echo 'no matching distribution'; exit 1")
    (venv / "lib" / "python3" / "site-packages" / "pip").mkdir(parents=True)
    version = ".".join(map(str, sys.version_info[:3]))
    (venv / "pyvenv.cfg").write_text(f"version = {version}\ncommand = python -m venv {venv}\n")
    monkeypatch.setattr(environment, "VENV", venv)
    monkeypatch.setattr(environment, "PYTHON", pip)
    with message.of(Missing, hide={r"installing \d+ packages": "installing N packages"}) as missing:
        environment.make()
    assert "no matching distribution" in str(missing.value)
    assert "PIP_INDEX_URL" in str(missing.value)


@pytest.mark.usefixtures("path", "tools")
@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_python_that_makes_no_environment_is_said(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    python = program(tmp_path / "bin" / "python3", f'echo "$0: No module named {module}"; exit 1')
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(environment, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    with message.of(Missing) as missing:
        environment.make()
    assert "python3-venv" in str(missing.value)


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
