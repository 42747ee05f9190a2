"""What others add is refused in words that name their entry point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from rabbitmq_resilience.tools import entry_points
from rabbitmq_resilience.tools.entry_points import ExtensionError, merged
from tests.messages import Messages


class Base(ABC):
    @abstractmethod
    def act(self) -> None: ...


class Whole(Base):
    def act(self) -> None:
        """Nothing."""


class Lacking(Base):
    """It acts not."""


@pytest.fixture(autouse=True)
def asked_again() -> Iterator[None]:
    yield
    entry_points.extensions.cache_clear()


def given(monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    entry_points.extensions.cache_clear()
    found = [EntryPoint(name, value, "rabbitmq_resilience.things") for name, value in points.items()]
    monkeypatch.setattr(entry_points, "entry_points", lambda *, group: found if group.endswith("things") else [])


def test_what_others_add_stands_next_to_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, theirs=f"{__name__}:Whole")
    assert merged({"ours": Whole}, "things", base=Base) == {"ours": Whole, "theirs": Whole}
    assert merged({"ours": Whole}, "others", base=Base) == {"ours": Whole}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("nowhere.at_all:Thing", "nowhere.at_all:Thing: ModuleNotFoundError"),
        (f"{__name__}:Nothing", "Nothing"),
        (f"{__name__}:pytest", "Base"),
        (f"{__name__}:Lacking", "Lacking has no act"),
    ],
)
def test_what_cannot_be_used_is_reported(
    monkeypatch: pytest.MonkeyPatch, value: str, told: str, message: Messages
) -> None:
    given(monkeypatch, theirs=value)
    with message.of(ExtensionError) as refused:
        merged({}, "things", base=Base)
    assert "theirs" in str(refused.value)
    assert told in str(refused.value)


def test_a_name_that_is_taken_is_reported(monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    given(monkeypatch, ours=f"{__name__}:Whole")
    with message.of(ExtensionError):
        merged({"ours": Whole}, "things", base=Base)
