"""The plugin is a guest: where no scenario is played, a session is what it would be without it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rabbitmq_resilience.plugin.sessions import EXIT_UNKNOWN
from rabbitmq_resilience.tools.homes import BOOKWORM, TRIXIE
from tests.corpus.reading import first_runs
from tests.messages import Messages
from tests.tools.programs import unpacked

ROOT = Path(__file__).resolve().parents[1]
ENTRY = "rabbitmq_resilience.plugin"

TRIVIAL = """
import sys, warnings

def test_what_is_imported():
    ours = sorted(name for name in sys.modules if name.startswith("rabbitmq_resilience"))
    heavy = sorted({"pydantic", "numpy", "pyarrow", "pika", "docker", "hypothesis", "psutil", "yaml"} & {*sys.modules})
    print("IMPORTED", *ours, "AND", *heavy)

def test_warns():
    warnings.warn("as always")
"""

#: What other plugins and repositories have in fact: pytest-selenium a ``--driver``, many a ``--seed``.
OTHERS = """
import pytest

def pytest_addoption(parser):
    for name in ("--driver", "--seed", "--repeat", "--broker", "--check-only", "--recheck", "--budget-min"):
        parser.addoption(name, default="theirs")

@pytest.fixture
def driver(pytestconfig):
    return pytestconfig.getoption("--driver")

@pytest.fixture
def accept():
    return "theirs"
"""

SCENARIO = """
version: 1
title: Nothing breaks
topology: three_nodes_three_zones
schedule: []
invariants: {no_loss: {}}
"""


def session(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """pytest in ``folder``, which is no part of this checkout, with the plugin as it is installed."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "RABBITMQ_RESILIENCE"))}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *arguments]
    return subprocess.run(
        command, cwd=folder, env={**inherited, **environ}, capture_output=True, text=True, timeout=300, check=False
    )


def lasting(text: str) -> list[str]:
    """What does not change from session to session, and does not list the plugins."""
    return [re.sub(r"\d+\.\d+s", "", line) for line in text.splitlines() if not line.startswith("plugins:")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_trivial.py").write_text(TRIVIAL)
    return tmp_path


@pytest.mark.core
def test_a_session_without_scenarios_is_the_same_without_it(folder: Path) -> None:
    (folder / "values.yaml").write_text("title: of somebody else")
    with_it, without = session(folder, "-rA"), session(folder, "-rA", "-p", f"no:{ENTRY}")
    assert with_it.returncode == without.returncode == 0, with_it.stdout + with_it.stderr
    assert "rabbitmq-resilience" in with_it.stdout
    assert "rabbitmq-resilience" not in without.stdout
    (imported,) = re.findall(r"IMPORTED (.*) AND(.*)", with_it.stdout)
    light = ("collecting", "failures", "options", "preparing", "sessions", "side_by_side")
    expected = ["former_paths", "plugin", *(f"plugin.{name}" for name in light), "tools", "tools.locations"]
    assert imported[0].split() == ["rabbitmq_resilience", *(f"rabbitmq_resilience.{name}" for name in expected)]
    nothing = re.sub(r"IMPORTED.*AND", "", without.stdout)
    assert lasting(re.sub(r"IMPORTED.*AND", "", with_it.stdout)) == lasting(nothing)


@pytest.mark.core
def test_it_goes_with_others_that_have_the_same_names(folder: Path) -> None:
    (folder / "others.py").write_text(OTHERS)
    (folder / "test_theirs.py").write_text(
        "def test_theirs(driver, accept, pytestconfig):\n"
        "    assert (driver, accept, pytestconfig.getoption('--check-only')) == ('mine', 'theirs', 'theirs')\n"
    )
    done = session(folder, "-p", "others", "--driver", "mine", "--resilience-driver=docker", PYTHONPATH=str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "conftest.py").write_text(OTHERS)
    done = session(folder, "--driver", "mine")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.core
def test_a_conftest_may_name_it_too(folder: Path) -> None:
    (folder / "conftest.py").write_text(f"pytest_plugins = [{ENTRY!r}]\n")
    assert session(folder).returncode == 0


@pytest.mark.installed
def test_fault_files_are_found_by_their_name_and_others_if_they_are_named(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "found.fault.yaml").write_text(SCENARIO)
    (folder / "fault.yaml").write_text(SCENARIO.replace("Nothing", "Not a thing"))
    (folder / "values.yaml").write_text("title: of somebody else")
    everything = session(folder, "--collect-only", "-q").stdout
    assert "deep/found.fault.yaml::Nothing breaks" in everything
    assert "Not a thing" not in everything
    assert "fault.yaml::Not a thing breaks" in session(folder, "--collect-only", "-q", "fault.yaml").stdout
    assert "fault.yaml::Not a thing breaks" in session(folder, "--collect-only", "-q", "--fault-file=fault.yaml").stdout
    assert "found no collectors" in session(folder, "values.yaml").stderr.replace("not found", "found no collectors")


@pytest.mark.installed
def test_markers_of_a_fault_file_select_it(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  night: at night\n")
    (folder / "marked.fault.yaml").write_text(SCENARIO + "markers: [night]\n")
    (folder / "unmarked.fault.yaml").write_text(SCENARIO)
    told = session(folder, "--collect-only", "-q", "-m", "night").stdout
    assert "marked.fault.yaml::" in told.replace("unmarked", "other")
    assert "unmarked" not in told


@pytest.mark.core
def test_what_is_wrong_is_reported_before_anything_starts(folder: Path, message: Messages) -> None:
    (folder / "wrong.fault.yaml").write_text(SCENARIO.replace("schedule", "shedule"))
    done = session(folder)
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    (problem,) = set(re.findall(r"line 5, shedule: .*", done.stdout))
    message(problem)
    assert "Traceback" not in done.stdout


@pytest.mark.core
@pytest.mark.parametrize(
    "given", [["--resilience-driver=cloud"], ["--resilience-repeat=0"], ["--resilience-recheck=nowhere"]]
)
def test_an_option_that_cannot_be_meant_is_refused(folder: Path, given: list[str], message: Messages) -> None:
    done = session(folder, *given)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    (error,) = re.findall(r"(?i)error: (?!usage)(.*)", done.stderr)
    message(error)


@pytest.mark.installed
def test_what_a_repository_fixes_once_stands_in_its_configuration_or_in_the_environment(folder: Path) -> None:
    """A fault of containers is refused where brokers are processes."""
    step = "[{at_s: 1, for_s: 3, fault: limit, node: a1, cpus: 0.5}]"
    (folder / "limit.fault.yaml").write_text(SCENARIO.replace("[]", step))
    refused = "driver local offers"
    assert refused in session(folder).stdout
    collected = ["--collect-only", "-q"]
    assert refused not in session(folder, *collected, RABBITMQ_RESILIENCE_DRIVER="containers").stdout
    assert "RABBITMQ_RESILIENCE_DRIVER: 'x'" in session(folder, RABBITMQ_RESILIENCE_DRIVER="x").stdout
    (folder / "pytest.ini").write_text("[pytest]\nresilience_driver = docker\n")
    assert refused not in session(folder, *collected).stdout
    assert refused in session(folder, *collected, "--resilience-driver=local").stdout, "the command line comes first"


@pytest.mark.installed
def test_a_path_is_seen_from_where_it_was_said(folder: Path) -> None:
    """Not from where pytest finds its configuration, which follows from what it is to play."""
    (folder / "pytest.ini").write_text("[pytest]\nresilience_cluster = configured.yaml\n")
    (folder / "some.fault.yaml").write_text(SCENARIO)
    inner = folder / "inner"
    inner.mkdir()
    asked = ["../some.fault.yaml", "--check-only"]
    assert f"{folder}/configured.yaml: 1 problem" in session(inner, *asked).stdout
    assert f"{inner}/given.yaml: 1 problem" in session(inner, *asked, "--resilience-cluster=given.yaml").stdout
    assert f"{inner}/x.yaml: 1 problem" in session(inner, *asked, RABBITMQ_RESILIENCE_CLUSTER="x.yaml").stdout


@pytest.mark.installed
def test_it_runs_under_xdist(folder: Path) -> None:
    assert session(folder, "-n", "2").returncode == 0
    (folder / "some.fault.yaml").write_text(SCENARIO)
    done = session(folder, "-n", "2", "some.fault.yaml", RABBITMQ_HOME="/nowhere")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "no broker in /nowhere" in done.stdout
    shared = session(folder, "-n", "2", "some.fault.yaml", "--resilience-cluster=mine.yaml")
    assert shared.returncode == pytest.ExitCode.USAGE_ERROR
    assert "leave out -n" in shared.stderr


@pytest.mark.installed
def test_short_names_hold_in_the_checkout_for_files_that_lie_elsewhere(folder: Path) -> None:
    (folder / "some.fault.yaml").write_text(SCENARIO)
    options = ["--collect-only", "-q", "--seed", "7", "--driver=processes", "--repeat=2"]
    done = session(ROOT, str(folder / "some.fault.yaml"), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing breaks" in done.stdout
    assert session(folder, "some.fault.yaml", *options).returncode == pytest.ExitCode.USAGE_ERROR


@pytest.mark.installed
def test_checking_needs_no_broker(folder: Path) -> None:
    (folder / "some.fault.yaml").write_text(SCENARIO)
    done = session(folder, "--check-only", "some.fault.yaml", RABBITMQ_RESILIENCE_TOOLS=str(folder / "nothing"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no broker is here yet" in done.stdout
    for options in ([], ["--check-only"]):
        named = session(folder, *options, "some.fault.yaml", RABBITMQ_HOME="/nowhere")
        assert (named.returncode, "no broker in /nowhere" in named.stdout) == (4, True)


@pytest.mark.installed
def test_a_fixture_of_that_name_may_be_somebody_elses(folder: Path) -> None:
    """Then nothing is played, and their warnings stay what they were."""
    (folder / "conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef play():\n    return 5\n")
    (folder / "test_theirs.py").write_text(
        "import warnings\n\ndef test_theirs(play):\n    assert play == 5\n    warnings.warn('old', UserWarning)\n"
    )
    done = session(folder, "-W", "error", "test_theirs.py")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "UserWarning: old" in done.stdout
    assert "scenario" not in done.stdout


@pytest.mark.installed
@pytest.mark.parametrize("how", ["link", "link/run", "plain"])
def test_a_run_is_judged_and_not_played_however_its_folder_is_named(folder: Path, how: str) -> None:
    recorded = first_runs() / "purge_unproven-3.10.8"
    real = folder / "real" / "run"
    shutil.copytree(recorded, real)
    (folder / "link").symlink_to(real if how == "link" else real.parent)
    named = folder / {"link": "link", "link/run": "link/run", "plain": "real/run"}[how]
    done = session(folder, f"--recheck={named}", RABBITMQ_HOME="/nowhere")
    assert "PLAYING" not in done.stdout
    assert "UNKNOWN: Recorded" in done.stdout, done.stdout + done.stderr


@pytest.mark.installed
@pytest.mark.parametrize(("text", "told"), [("a: [", "YAML"), ("titel: x", "titel:")])
def test_what_is_said_to_be_a_fault_file_is_read_as_one(folder: Path, text: str, told: str) -> None:
    (folder / "mine.yaml").write_text(text)
    assert told in session(folder, "--fault-file=mine.yaml").stdout
    for nothing in ("", "nobody.yaml", "."):
        done = session(folder, f"--fault-file={nothing}")
        assert done.returncode == pytest.ExitCode.USAGE_ERROR
        assert "no such file" in done.stderr


@pytest.mark.core
@pytest.mark.parametrize("text", ["title: !!bool x\ninvariants: !!int y", "a: 2020-13-45", "[" * 3000, "\0", "- !x 1"])
def test_yaml_of_others_may_hold_anything(folder: Path, text: str) -> None:
    (folder / "theirs.yaml").write_text(text)
    done = session(folder, "theirs.yaml", "test_trivial.py")
    assert "Traceback" not in done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr


PLAYED = """
import pytest
from rabbitmq_resilience.checkers.verdict import Verdict

@pytest.fixture(scope="session")
def resilience_testbed():
    pass

@pytest.mark.parametrize("verdict", {verdicts})
def test_plays(verdict, resilience_testbed, resilience_judged, resilience_undecided):
    if verdict == "skipped":
        pytest.skip("for another version")
    resilience_judged(Verdict(verdict))
    if verdict == "UNKNOWN":
        resilience_undecided("it could not be told")
"""


@pytest.mark.installed
@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        (["skipped", "skipped"], EXIT_UNKNOWN),
        (["VALID", "skipped"], 0),
        (["INVALID", "skipped"], 0),  # as it was expected to be
        (["UNKNOWN", "skipped"], EXIT_UNKNOWN),
        (["UNKNOWN", "VALID"], EXIT_UNKNOWN),
    ],
)
def test_a_session_that_judged_nothing_has_a_status_of_its_own(folder: Path, verdicts: list[str], status: int) -> None:
    (folder / "test_plays.py").write_text(PLAYED.format(verdicts=verdicts))
    done = session(folder)
    assert done.returncode == status, done.stdout
    nothing = status == EXIT_UNKNOWN and "UNKNOWN" not in verdicts
    assert ("nothing was judged" in done.stdout) == nothing


@pytest.mark.installed
def test_what_is_only_checked_or_listed_need_judge_nothing(folder: Path) -> None:
    (folder / "test_plays.py").write_text(PLAYED.format(verdicts=["skipped"]))
    for option in ("--check-only", "--collect-only"):
        done = session(folder, option, "test_plays.py")
        assert (done.returncode, "nothing was judged" in done.stdout) == (0, False)


@pytest.mark.installed
def test_what_is_judged_again_counts(folder: Path) -> None:
    recorded = first_runs()
    for name, status in (("leader_killed-3.8.9", 0), ("purge_unproven-3.10.8", EXIT_UNKNOWN)):
        run = Path(shutil.copytree(recorded / name, folder / name))
        assert session(folder, f"--recheck={run}").returncode == status


@pytest.mark.core
def test_each_home_is_a_test_of_its_own(folder: Path) -> None:
    (folder / "some.fault.yaml").write_text(SCENARIO)
    (folder / "test_mine.py").write_text("def test_mine(play):\n    pass\n")
    for home, version in ((TRIXIE, "4.0.5"), (BOOKWORM, "3.10.8")):
        unpacked(folder / "tools", version, home)
    asked = ["--collect-only", "-q", "--resilience-each-home", "some.fault.yaml", "test_mine.py"]
    environ = {"RABBITMQ_RESILIENCE_TOOLS": str(folder / "tools"), "RABBITMQ_HOME": ""}
    listed = session(folder, *asked, **environ).stdout.splitlines()
    assert [line.partition("::")[2] for line in listed if "::" in line] == [
        "Nothing breaks[4.0.5]",
        "Nothing breaks[3.10.8]",
        "test_mine[4.0.5]",
        "test_mine[3.10.8]",
    ]
    named = session(folder, *asked, **{**environ, "RABBITMQ_HOME": str(BOOKWORM.place(folder / "tools"))}).stdout
    assert "Nothing breaks\n" in named
    assert "[4.0.5]" not in named
