"""Put each test into a tier, and hold the first tier to what it promises.

A test without one of these marks belongs to ``check``: no broker, no socket, no sleep, and about a second of processor
time: at most REFERENCES_MAX times that of a fixed work. ``core`` marks what ``make test`` runs as well. A mark of
``PARTS`` marks what only ``make test-all`` runs, in the part of that name. docs/tests.md says where a new test goes.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.parts import MARKED_PARTS

TESTS = Path(__file__).resolve().parent

TIERS = ("check", "test", "all")
#: An item of ``check`` takes at most this many times the processor time of ``reference_s``: seconds differ by machine.
REFERENCES_MAX = 30
_CPU_S = "cpu_s"

#: What an item of ``check`` must not do, by the interpreter's audit events.
_BARRED = {"socket.bind", "socket.connect", "socket.getaddrinfo"}
_checked: list[str] = []


class BarredError(Exception):
    """An item of ``check`` used a socket, or slept."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, default="all", help="leave out later tiers (all)")


def tier_of(item: pytest.Item) -> str:
    """Return ``check``, ``test`` or ``all``; the latter for scenarios, which are no tests of this project."""
    if not item.path.is_relative_to(TESTS):
        return "all"
    marks = {mark.name for mark in item.iter_markers()}
    if marks & MARKED_PARTS:
        return "all"
    return "test" if "core" in marks else "check"


def pytest_configure(config: pytest.Config) -> None:
    sys.addaudithook(_refuse_barred)
    time.sleep = _sleep  # type: ignore[assignment] # the interpreter's has no name for its argument
    if not hasattr(config, "workerinput") and config.getoption("--tier") != "all":
        config.pluginmanager.register(Measured())


def _refuse_barred(event: str, _: object) -> None:
    if _checked and event in _BARRED:
        raise BarredError(f"{_checked[0]} uses {event}: mark it `core`, or give it a clock or a client of its own")


def _sleep(seconds: float, slept: Callable[[float], None] = time.sleep) -> None:
    """Sleep, except in ``check``: the interpreter has no audit event for it before Python 3.13."""
    caller = sys._getframe(1).f_globals["__name__"]  # noqa: SLF001 - the quick way
    if _checked and caller != "subprocess":  # which polls for the end of a child
        raise BarredError(f"{_checked[0]} sleeps: mark it `core`, or give it a clock of its own")
    slept(seconds)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    last = TIERS.index(config.getoption("--tier"))
    left_out = [item for item in items if TIERS.index(tier_of(item)) > last]
    if left_out:
        items[:] = [item for item in items if TIERS.index(tier_of(item)) <= last]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Bar what ``check`` must not do from its fixtures, too."""
    with _barred(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Bar what ``check`` must not do, and measure the processor time of an item."""
    began_s = _cpu_s()
    try:
        with _barred(item):
            return (yield)
    finally:
        if tier_of(item) == "check":
            item.user_properties.append((_CPU_S, _cpu_s() - began_s))


@contextmanager
def _barred(item: pytest.Item) -> Iterator[None]:
    if tier_of(item) == "check":
        _checked.append(item.nodeid)
    try:
        yield
    finally:
        _checked.clear()


def _cpu_s() -> float:
    """Return the processor time of this process and of its children that ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def reference_s() -> float:
    """Return the processor time of a fixed work on this machine: the least of three."""

    def once_s() -> float:
        began_s, total, table = time.process_time(), 0, {}
        for number in range(1_000_000):
            table[number % 1000] = total
            total += number * number % 7
        return time.process_time() - began_s

    return min(once_s() for _ in range(3))


class Measured:
    """Names the items of ``check`` that took too long. A busy machine cannot make one: each is measured again alone."""

    def __init__(self) -> None:
        self.limit_s = REFERENCES_MAX * reference_s()
        self.slow: dict[str, float] = {}
        self.offenders: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        taken_s = next((float(str(value)) for name, value in report.user_properties if name == _CPU_S), 0.0)
        if report.when == "teardown" and taken_s > self.limit_s:
            self.slow[report.nodeid] = taken_s

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        again = {node: (alone_s(node), REFERENCES_MAX * reference_s()) for node in self.slow}
        slow = {node: (taken_s, limit_s) for node, (taken_s, limit_s) in again.items() if taken_s > limit_s}
        self.offenders = [
            f"{node}: {taken_s:.1f} s, at most {limit_s:.1f} s" for node, (taken_s, limit_s) in slow.items()
        ]
        if self.offenders and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.offenders:
            terminalreporter.section("items of `check` that take too much processor time, also alone")
            terminalreporter.write_line("\n".join(self.offenders))


def alone_s(node: str) -> float:
    """Return the processor time that an item takes in a process of its own; 0 if it does not pass there."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}"]
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, node], cwd=TESTS.parent, capture_output=True, check=False
        )
        if not report.exists():
            return 0.0
        properties = ElementTree.parse(report).iter("property")  # noqa: S314 - pytest has just written it
        return sum(float(found.get("value", 0)) for found in properties if found.get("name") == _CPU_S)
