"""The command tree: each command tells its help under its own name, and nothing is done by asking for it."""

from __future__ import annotations

import platform
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from rabbitmq_resilience.command import COMMANDS, main
from rabbitmq_resilience.extensions.setup import trying


def ended(*arguments: str) -> str:
    """Return with what status the command ends by itself."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return str(end.value)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("asked", ["--help", "-h"])
def test_each_command_shows_its_help(command: str, asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(command, asked) == "0"
    told, errors = capsys.readouterr()
    assert told.startswith(f"usage: rabbitmq-resilience {command} ")
    assert errors == ""


def test_the_help_lists_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--help") == "0"
    told = " ".join(capsys.readouterr().out.split())
    for name, command in COMMANDS.items():
        assert f"{name} {command.does}" in told


def test_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--version") == "0"
    assert capsys.readouterr().out == f"rabbitmq-resilience {version('rabbitmq-resilience')}\n"


def test_without_a_command_its_help_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "COMMAND --help" in capsys.readouterr().err


def test_another_word_is_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("nightly-night") == "2"
    assert "invalid choice: 'nightly-night' (choose from 'try', 'setup'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("system", "opener", "told"),
    [
        ("Linux", "/usr/bin/xdg-open", "xdg-open '/my runs/report.html'"),
        ("Darwin", "/usr/bin/open", "open '/my runs/report.html'"),
        ("Linux", None, "copy it to a machine with a browser; it needs no network"),
    ],
)
def test_how_a_page_is_opened(system: str, opener: str | None, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(shutil, "which", lambda _: opener)
    assert trying.opening(Path("/my runs/report.html")) == told
