"""What ``--check-only`` says: which scenarios are right, which cannot be played on the version that is asked for, and
which broker there is not. Nothing is started, and no broker need be here."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rabbitmq_resilience.plugin import checking
from rabbitmq_resilience.plugin.failures import REMEDIES
from rabbitmq_resilience.sut.processes import version_homes
from rabbitmq_resilience.tools.distributions import BrokerHome

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[1]

SCENARIO = """
version: 1
title: A client goes and comes
topology: three_nodes_three_zones
workload: {{queue_type: {queue_type}, queues: 1, rate_per_s: 100}}
phases: {{steady_s: 2, recovery_s: 60, settled_s: 1}}
schedule:
  - {{at_s: 1, for_s: 1, fault: kill_client, client: "publisher:0"}}
invariants: {{no_loss: {{}}}}
{more}
"""
PYTHON = """
import pytest
from rabbitmq_resilience import load

def test_played(play):
    result = play(load("some.fault.yaml"))
    pytest.fail(f"what follows is for runs, and there is none: {result}")
"""


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> None:
    """Two brokers on this machine."""
    monkeypatch.chdir(pytester.path)
    for name in ("RABBITMQ_HOME", "RABBITMQ_RESILIENCE_BROKER", "RABBITMQ_RESILIENCE_DRIVER"):
        monkeypatch.delenv(name, raising=False)
    there = [BrokerHome(Path(f"/brokers/{version}"), Path("/erlang"), version) for version in ("4.0.5", "4.3.6")]
    for module in (checking, version_homes):
        monkeypatch.setattr(module, "brokers_at_home", lambda: there)


def checked(pytester: pytest.Pytester, *options: str, queue_type: str = "quorum", more: str = "") -> pytest.RunResult:
    (pytester.path / "some.fault.yaml").write_text(SCENARIO.format(queue_type=queue_type, more=more))
    return pytester.runpytest("--check-only", "-rs", *options, "some.fault.yaml")


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ([], "RabbitMQ 4.0.5; at home"),
        (["--resilience-broker=4.3"], "RabbitMQ 4.3.6; at home"),
        (
            ["--resilience-broker=4.2.2"],
            "RabbitMQ 4.2.2; it is not checked whether there is a release 4.2.2; it is fetched when played",
        ),
        (["--resilience-broker=4.2"], "it is not checked whether there is a release 4.2; it is fetched when played"),
        (["--resilience-driver=containers"], "RabbitMQ 4.0.5; as an image"),
        (
            ["--resilience-driver=containers", "--resilience-broker=my/rabbit:7"],
            "it is not checked whether there is an image of my/rabbit:7; playing shows it",
        ),
    ],
)
def test_what_is_right_is_reported(pytester: pytest.Pytester, options: list[str], where: str) -> None:
    result = checked(pytester, *options)
    result.assert_outcomes(passed=1)
    assert f"OK       A client goes and comes ({where})" in result.outlines


def test_no_broker_need_be_here(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "brokers_at_home", list)
    result = checked(pytester)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["OK *(no broker is here yet: rabbitmq-resilience setup)"])


def test_what_a_version_has_not_fails(pytester: pytest.Pytester) -> None:
    result = checked(pytester, "--resilience-broker=4.3.6", queue_type="mirrored")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*RabbitMQ 4.3.6 has no mirrored queues*"])
    assert "Traceback" not in result.stdout.str()


def test_what_is_for_another_version_is_skipped(pytester: pytest.Pytester) -> None:
    result = checked(pytester, "--resilience-broker=4.3.6", more='broker: "<4"')
    result.assert_outcomes(skipped=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*for RabbitMQ <4, this is 4.3.6"])


CONTAINERS = "--resilience-driver=containers"


def upgraded(pytester: pytest.Pytester, to: str, *options: str, queue_type: str = "quorum") -> pytest.RunResult:
    text = SCENARIO.format(queue_type=queue_type, more="")
    step = f'fault: upgrade, node: b1, to: "{to}"'
    (pytester.path / "some.fault.yaml").write_text(text.replace('fault: kill_client, client: "publisher:0"', step))
    return pytester.runpytest("--check-only", *options, "some.fault.yaml")


@pytest.mark.parametrize(
    ("to", "options", "where"),
    [
        ("4.1", [], "RabbitMQ 4.0.5; at home; upgraded to 4.1; it is not checked whether there is a release 4.1; "),
        ("4.0", [], "RabbitMQ 4.0.5; at home; upgraded to 4.0.5; at home"),
        (
            "4.2.9",
            [CONTAINERS, "--resilience-broker=4.1.8"],
            "upgraded to 4.2.9; it is not checked whether",
        ),
        ("my/rabbit:7", [CONTAINERS, "--resilience-broker=4.1.8"], "upgraded to my/rabbit:7; it is not checked"),
    ],
)
def test_the_broker_of_an_upgrade_is_said(pytester: pytest.Pytester, to: str, options: list[str], where: str) -> None:
    result = upgraded(pytester, to, *options)
    result.assert_outcomes(passed=1)
    assert where in result.stdout.str()


@pytest.mark.parametrize(
    ("to", "options", "queue_type", "said"),
    [
        ("9.9.9", [], "quorum", "this suite knows no RabbitMQ 9.9"),
        ("9.9.9", [CONTAINERS], "quorum", "this suite knows no RabbitMQ 9.9"),
        ("/nope", [], "quorum", "no broker in /nope"),
        ("/nope", [CONTAINERS], "quorum", "is neither a broker version nor an image"),
        ("4.3", [], "quorum", "4.0.5 to 4.3.6 is no supported upgrade"),
        ("3.13.7", [], "quorum", "4.0.5 to 3.13.7 is a downgrade"),
        ("4.0", ["--resilience-broker=3.13.7"], "mirrored", "RabbitMQ 4.0.5 does not support"),
        ("4.0.9", [CONTAINERS, "--resilience-broker=3.13.7"], "mirrored", "RabbitMQ 4.0.9 does not support"),
    ],
)
def test_an_upgrade_that_cannot_be_fails(
    pytester: pytest.Pytester, to: str, options: list[str], queue_type: str, said: str
) -> None:
    result = upgraded(pytester, to, *options, queue_type=queue_type)
    result.assert_outcomes(failed=1)
    assert said in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--upgrade-to=4.1"], "OK       One node is upgraded, "),
        ([], "upgraded to 4.1; it is not checked whether there is a release 4.1"),
        ([CONTAINERS], "upgraded to rabbitmq:4.1-management; it is not checked whether there is an image of"),
        (["--upgrade-to=9.9.9"], "--upgrade-to 9.9.9: broker 9.9.9: this suite knows no RabbitMQ 9.9"),
        (["--upgrade-to=/nope"], "--upgrade-to /nope: no broker in /nope"),
        (["--upgrade-to=4.3"], "4.0.5 to 4.3.6 is no supported upgrade"),
        (["--resilience-broker=4.3.6"], "there is no series after 4.3.6 yet"),
    ],
)
def test_the_suite_of_upgrades_is_checked_without_a_broker(
    pytester: pytest.Pytester, options: list[str], said: str
) -> None:
    where = ["-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"]
    result = pytester.runpytest(
        *where, "--check-only", *options, f"{ROOT}/suites/test_upgrades.py::test_one_node[quorum]"
    )
    assert said in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--resilience-broker=9.9.9"], "broker 9.9.9: this suite knows no RabbitMQ 9.9, only 3.8 to 4.4"),
        (["--resilience-broker=/nope"], "no broker in /nope"),
        (["--resilience-rabbitmq-home=/nope"], "no broker in /nope"),
        (["--resilience-broker=newest"], "It is neither a version, such as 4.2.2, nor a series"),
        (["--resilience-driver=containers", "--resilience-broker=9.9"], "this suite knows no RabbitMQ 9.9"),
        (["--resilience-driver=containers", "--resilience-broker=a b"], "is neither a broker version nor an image"),
    ],
)
def test_a_broker_that_there_is_not_ends_the_session(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: list[str], told: str
) -> None:
    monkeypatch.setenv("RABBITMQ_HOME", "")
    result = checked(pytester, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert told in result.stdout.str()
    result.assert_outcomes()


@pytest.mark.parametrize("below", ["", "/of/tonight"])
def test_a_folder_for_runs_that_cannot_be_written_ends_the_session(pytester: pytest.Pytester, below: str) -> None:
    (pytester.path / "runs").touch()
    result = checked(pytester, f"--resilience-runs-dir=runs{below}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = result.stdout.str() + result.stderr.str()
    assert "no run can be recorded: " in said
    assert f"{pytester.path / 'runs'}: Not a directory; {REMEDIES[errno.ENOTDIR]}" in said


def test_a_folder_for_runs_that_is_not_there_yet_stays_away(pytester: pytest.Pytester) -> None:
    checked(pytester, "--resilience-runs-dir=new/runs").assert_outcomes(passed=1)
    assert not (pytester.path / "new").exists()


def test_a_scenario_in_python_passes_and_ends_where_it_would_be_played(pytester: pytest.Pytester) -> None:
    (pytester.path / "some.fault.yaml").write_text(SCENARIO.format(queue_type="quorum", more=""))
    pytester.makepyfile(test_it=PYTHON)
    result = pytester.runpytest("--check-only", "test_it.py")
    result.assert_outcomes(passed=1)
