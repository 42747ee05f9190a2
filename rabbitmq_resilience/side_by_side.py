"""Play scenarios side by side: each process of pytest-xdist's ``-n`` plays one at a time, on a cluster of its own.

A process says with the reports of a test what became of it, and the session takes that for its own: lines for people,
runs, verdicts. So there is one list of verdicts, one night and one exit status, however many processes play.

Light, as the plugin is.
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

#: What a process is given: the folder in which all of them find each other, and how many they are.
FOLDER, COUNT = "resilience_folder", "workercount"
#: What reports carry, in JSON: a list of kinds and what is said.
CARRIED = "resilience_said"
#: How long processes may take to heal and to end what they play, where the session ends early.
ENDED_WITHIN_S = 60

SAID = pytest.StashKey[list[tuple[str, Any]]]()


@dataclass(frozen=True)
class Plan:
    """Tests by node id: those that play, or play what they draw, are ``planned``; ``playing`` are the former; those
    for which there is no time are ``left_out``. ``asked``: how many there are of all kinds, judging again included."""

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
    """Keep what this process has to say for its next report; return False where it is the session itself."""
    if is_worker(config):
        config.stash.setdefault(SAID, []).append((kind, said))
    return is_worker(config)


def announce(config: pytest.Config, plan: Plan) -> None:
    """Write down what this process found to play, as all others do, for the session to read."""
    folder = _folder(config)
    written = folder / f"{os.getpid()}.tmp"
    written.write_text(json.dumps(asdict(plan)), encoding="utf-8")
    written.rename(folder / "plan.json")


def end_once() -> None:
    """Let the first Ctrl-C end this process, and no other one disturb it while it ends what it plays."""

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)


@contextmanager
def turn(config: pytest.Config, *, alone: bool) -> Iterator[None]:
    """Wait until a scenario may be played that takes the whole machine (``alone``), or until none is played that does.

    Who waits for the machine also holds the gate, so that it is not overtaken for good.
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
    """Return the tests with those files first that have the longest one. Within a file they stay in their order, in
    which a cluster may serve several."""
    longest_s: dict[Path, float] = {}
    for test in tests:
        longest_s[test.path] = max(longest_s.get(test.path, 0.0), expected_s(test.nodeid))
    return sorted(tests, key=lambda test: -longest_s[test.path])


def _folder(config: pytest.Config) -> Path:
    return Path(config.workerinput[FOLDER])  # type: ignore[attr-defined]


class Worker:
    """Lets reports carry what this process has to say."""

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


class Session:
    """Hears what processes say. ``follow`` begins what they found to play; ``begins`` is told of each test, and
    ``hear`` takes what is said of it."""

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
