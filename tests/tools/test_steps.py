"""Set-up skips what is there, shows how far it is, and ends with a text where it cannot go on."""

from __future__ import annotations

import fcntl
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.setup import setup_command, setup_tasks
from rabbitmq_resilience.extensions.setup.setup_tasks import ROOT, Missing, SetupTask, take
from rabbitmq_resilience.tools import progress
from rabbitmq_resilience.tools.progress import Failed, ProgressLine, run
from tests.clock import Clock
from tests.messages import Messages


@pytest.mark.usefixtures("tools")
def test_a_step_that_is_there_is_not_made(capsys: pytest.CaptureFixture[str], message: Messages) -> None:
    take(
        [
            SetupTask("One", lambda: "here", lambda: pytest.fail("was made")),
            SetupTask("Two", lambda: None, lambda: "made"),
        ]
    )
    message(capsys.readouterr().out, hide={r"in \d+ s": "in N s"})


@pytest.mark.usefixtures("tools")
def test_what_is_missing_ends_set_up_with_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    def make() -> str:
        raise Missing("no moon; wait for the night")

    later = SetupTask("Tide", lambda: pytest.fail("went on"), lambda: "")
    monkeypatch.setattr(setup_command, "STEPS", (SetupTask("Moon", lambda: None, make), later))
    assert setup_command.main([]) == 1
    told = capsys.readouterr().err
    assert "no moon; wait for the night" in told
    message(told)


@pytest.mark.usefixtures("tools")
def test_what_is_optional_and_missing_is_reported_and_left_out(
    capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    def make() -> str:
        raise Missing("no moon")

    take(
        [
            SetupTask("Moon", lambda: None, make, optional=True),
            SetupTask("Tide", lambda: "here", lambda: pytest.fail("made")),
        ]
    )
    message(capsys.readouterr().out)


def test_an_unknown_word_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        setup_command.main(["everything"])
    assert "'everything' (choose from 'all', 'try', 'python'" in capsys.readouterr().err


def test_only_images_take_versions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        setup_command.main(["engine", "4.0.5"])
    assert "only images takes versions, and engine got 4.0.5" in capsys.readouterr().err


@pytest.mark.core
def test_a_second_set_up_waits_for_the_first(tmp_path: Path, message: Messages) -> None:
    imports = "import sys, pathlib\nimport rabbitmq_resilience.extensions.setup.setup_tasks as s"
    script = f"{imports}\ns.TOOLS = pathlib.Path(sys.argv[1]); s.take([])"
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        again = [sys.executable, "-c", script, str(tmp_path)]
        with subprocess.Popen(again, cwd=ROOT, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout
            said = second.stdout.readline()
            waits = second.poll() is None
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert second.wait(timeout=10) == 0
    message(said)
    assert waits


def test_the_folder_for_what_is_fetched_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the home of a user who has no cache yet."""
    monkeypatch.setattr(setup_tasks, "TOOLS", tmp_path / ".cache" / "ours")
    setup_tasks.take([])
    assert (tmp_path / ".cache" / "ours").is_dir()


@pytest.mark.core
def test_quick_programs_show_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([sys.executable, "-c", "print('done')"], doing="trying") == "done\n"
    assert capsys.readouterr().out == ""


@pytest.mark.core
def test_a_failing_program_is_quoted_by_its_last_lines(message: Messages) -> None:
    script = "import sys; print(*range(100), sep='\\n', flush=True); sys.exit('the disk is full')"
    with pytest.raises(Failed, match="status 1") as failed:
        run([sys.executable, "-c", script], doing="trying")
    assert "the disk is full" in str(failed.value)
    assert "\n50\n" not in str(failed.value)
    message(str(failed.value).partition("\n")[0], hide={r"`python\S*`": "`PYTHON`"})


def test_a_program_that_is_not_there_is_named(message: Messages) -> None:
    with message.of(Failed):
        run(["/no/such/program"], doing="trying")


def test_without_a_terminal_progress_is_repeated_ever_more_rarely(
    message: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    line = ProgressLine("fetching", out=out)
    for seconds in (0, 9, 1, 7, 2, 19):
        clock.now_s += seconds
        line.show(f"{clock.now_s - 1000:g} MB")
    assert [int(found) for found in re.findall(r"(\d+) s\n", out.getvalue())] == [9, 19, 38]
    message(out.getvalue())
