"""Compare messages for people with one golden file, so that a change of wording is a change of one file.

A test names what decides (the type of an error, a verdict, a field, a number) and hands the sentence to the fixture
``message``. ``pytest tests --write-messages`` writes what the tests of that call said; its diff is to be read.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "messages.yaml"

_HEAD = "# Written by `pytest tests --write-messages`: what each test shows to people, in the order in which it does.\n"
_messages = pytest.StashKey["Messages"]()
_said = pytest.StashKey[dict[str, list[str]]]()
_collected = pytest.StashKey[set[str]]()


class Messages:
    """The messages of one test. ``golden`` holds those that it must say, None if they are to be written."""

    def __init__(self, golden: Sequence[str] | None, paths: Mapping[str, str]) -> None:
        self.said: list[str] = []
        self._golden = golden
        self._paths = paths

    def __call__(self, text: object, *, hide: Mapping[str, str] | None = None) -> None:
        """Compare ``text`` with the next golden message of this test.

        ``hide`` maps regular expressions to what is written in place of their matches: for ports, times and the like.
        Temporary paths and that of the checkout are always replaced.
        """
        shown = str(text)
        for path, name in self._paths.items():
            shown = shown.replace(path, name)
        for pattern, name in (hide or {}).items():
            shown = re.sub(pattern, name, shown)
        self.said.append(shown)
        if self._golden is not None:
            expected = self._golden[len(self.said) - 1 : len(self.said)]
            assert [shown] == list(expected), "not as in tests/messages.yaml; if meant: pytest TEST --write-messages"

    def end(self) -> None:
        """Check that no golden message is left."""
        left = list(self._golden or ())[len(self.said) :]
        assert not left, "golden messages that this test did not say"

    @contextmanager
    def of(
        self, *errors: type[BaseException], hide: Mapping[str, str] | None = None
    ) -> Iterator[pytest.ExceptionInfo[BaseException]]:
        """Expect one of ``errors``, and compare its text as a message."""
        with pytest.raises(errors) as caught:
            yield caught
        self(caught.value, hide=hide)


def read() -> dict[str, list[str]]:
    """Return the golden messages of each test, by its node id."""
    if not GOLDEN.exists():
        return {}
    with GOLDEN.open(encoding="utf-8") as file:
        return yaml.load(file, Loader=_Loader) or {}  # noqa: S506 - it is a safe one


#: The quick one, where PyYAML was built with it.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Dumper(yaml.SafeDumper):
    """Shows a text of several lines as lines."""


def _shown(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _shown)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-messages", action="store_true", help="write tests/messages.yaml instead of comparing")
    parser.addoption("--write-golden", action="store_true", help="write tests/corpus/golden.txt instead of comparing")


@pytest.fixture(scope="session")
def golden_messages() -> dict[str, list[str]]:
    return read()


@pytest.fixture
def message(request: pytest.FixtureRequest, tmp_path: Path, golden_messages: Mapping[str, list[str]]) -> Messages:
    """Compare messages with the golden ones of this test."""
    writing = request.config.getoption("--write-messages")
    paths = {str(tmp_path): "TMP", str(ROOT): "CHECKOUT"}
    messages = Messages(None if writing else golden_messages.get(request.node.nodeid, []), paths)
    request.node.stash[_messages] = messages
    return messages


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Demand all golden messages of a test that passed so far."""
    result = yield
    messages = item.stash.get(_messages, None)
    if messages is not None:
        messages.end()
        item.config.stash.setdefault(_said, {})[item.nodeid] = messages.said
    return result


def pytest_itemcollected(item: pytest.Item) -> None:
    item.config.stash.setdefault(_collected, set()).add(item.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was said. Messages of tests that are gone go too, if whole files were collected."""
    config = session.config
    if not config.getoption("--write-messages") or _said not in config.stash:
        return
    with GOLDEN.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # helpers of pytest-xdist write one after another
        messages = read() | config.stash[_said]
        if not any("::" in argument for argument in config.args):
            collected = config.stash[_collected]
            files = {node.partition("::")[0] for node in collected}
            messages = {n: m for n, m in messages.items() if n in collected or n.partition("::")[0] not in files}
        text = yaml.dump(
            {node: said for node, said in sorted(messages.items()) if said},
            Dumper=_Dumper,
            allow_unicode=True,
            width=100_000,
            sort_keys=False,
        )
        file.truncate(0)
        file.write(_HEAD + text)
