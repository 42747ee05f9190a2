"""Play scenarios in parallel: each process of pytest-xdist's ``-n`` plays one at a time, on a cluster of its own.

A process sends the outcome of a test with the test's reports: lines for people, runs, verdicts. The session handles
them as its own. So there is one list of verdicts, one night and one exit status for any number of processes.

This module imports nothing heavy, like the plugin.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

#: The inputs of a process: the folder that all processes share, and the number of processes.
FOLDER, COUNT = "resilience_folder", "workercount"
#: The attribute of reports that holds messages to the session: JSON, a list of (kind, content).
CARRIED = "resilience_said"
#: How long processes may take to heal and to end their scenarios if the session ends early.
ENDED_WITHIN_S = 60

SAID = pytest.StashKey[list[tuple[str, Any]]]()


@dataclass(frozen=True)
class Plan:
    """The tests of a session, by node id.

    ``planned``: tests that play scenarios, or schedules that they draw. ``playing``: only the former. ``left_out``:
    tests for which there is no time. ``asked``: the number of all tests that play or judge.
    """

    planned: Sequence[str]
    playing: Sequence[str]
    left_out: Sequence[str]
    asked: int


def is_worker(config: pytest.Config) -> bool:
    """Return whether this is one of several processes that play for a session."""
    return hasattr(config, "workerinput")


def at_once(config: pytest.Config) -> int:
    """Return how many processes play."""
    if is_worker(config):
        return int(config.workerinput[COUNT])  # type: ignore[attr-defined]
    found = getattr(config.option, "numprocesses", None)
    return found if isinstance(found, int) and found > 0 else 1


def say(config: pytest.Config, kind: str, said: Any) -> bool:
    """Keep a message for the next report of this process; return False if this is the session itself."""
    if is_worker(config):
        config.stash.setdefault(SAID, []).append((kind, said))
    return is_worker(config)


def announce(config: pytest.Config, plan: Plan) -> None:
    """Write the plan of this process for the session to read; all processes have the same plan."""
    folder = _folder(config)
    written = folder / f"{os.getpid()}.tmp"
    written.write_text(json.dumps(asdict(plan)), encoding="utf-8")
    written.rename(folder / "plan.json")


def end_once() -> None:
    """Let the first Ctrl-C end this process, and ignore later ones while its scenario ends."""

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)


@contextmanager
def turn(config: pytest.Config, *, alone: bool) -> Iterator[None]:
    """Wait until this process may play.

    A scenario that takes the whole machine (``alone``) waits until no other is played; the others wait until no such
    scenario is played. A process that waits holds the gate, so that later ones do not overtake it for ever.
    """
    if not is_worker(config):
        yield
        return
    with (_folder(config) / "machine.lock").open("w") as machine:
        with (_folder(config) / "gate.lock").open("w") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            fcntl.flock(machine, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def longest_first(tests: Sequence[pytest.Item], expected_s: Callable[[str], float]) -> list[pytest.Item]:
    """Return the tests, with the files that have the longest tests first.

    Within a file, tests keep their order, as consecutive ones may share a cluster.
    """
    longest_s: dict[Path, float] = {}
    for test in tests:
        longest_s[test.path] = max(longest_s.get(test.path, 0.0), expected_s(test.nodeid))
    return sorted(tests, key=lambda test: -longest_s[test.path])


def _folder(config: pytest.Config) -> Path:
    return Path(config.workerinput[FOLDER])  # type: ignore[attr-defined]


class ReportingWorker:
    """A plugin that adds the messages of this process to its reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        said = self._config.stash.get(SAID, [])
        if said:
            setattr(report, CARRIED, json.dumps(said))
            said.clear()
        return report


class ParallelSession:
    """A plugin of the session that receives the messages of all processes.

    ``follow`` is called with their plan, ``begins`` with each test that begins, and ``hear`` with each message about a
    test.
    """

    def __init__(
        self,
        follow: Callable[[Plan], None],
        begins: Callable[[str], None],
        hear: Callable[[str, str, Any], None],
    ) -> None:
        self._follow, self._begins, self._hear = follow, begins, hear
        self._folder: Path | None = None
        self._followed = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="rabbitmq-resilience-session-"))
        node.workerinput[FOLDER] = str(self._folder)
        node.nodemanager.EXIT_TIMEOUT = ENDED_WITHIN_S

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        plan = self._folder / "plan.json" if self._folder is not None else None
        if plan is not None and plan.exists() and not self._followed:
            self._followed = True
            self._follow(Plan(**json.loads(plan.read_text(encoding="utf-8"))))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._followed:
            self._begins(nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for kind, said in json.loads(getattr(report, CARRIED, "[]")):
            self._hear(report.nodeid, kind, said)

    def pytest_unconfigure(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
