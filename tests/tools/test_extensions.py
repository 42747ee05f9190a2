"""What others add is refused in words that name their entry point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from rabbitmq_resilience.tools import extensions
from rabbitmq_resilience.tools.extensions import ExtensionError, merged


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
    extensions.extensions.cache_clear()


def given(monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    extensions.extensions.cache_clear()
    found = [EntryPoint(name, value, "rabbitmq_resilience.things") for name, value in points.items()]
    monkeypatch.setattr(extensions, "entry_points", lambda *, group: found if group.endswith("things") else [])


def test_what_others_add_stands_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, theirs=f"{__name__}:Whole")
    assert merged({"ours": Whole}, "things", base=Base) == {"ours": Whole, "theirs": Whole}
    assert merged({"ours": Whole}, "others", base=Base) == {"ours": Whole}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("nowhere.at_all:Thing", "cannot be loaded from nowhere.at_all:Thing: ModuleNotFoundError"),
        (f"{__name__}:Nothing", "cannot be loaded"),
        (f"{__name__}:pytest", "is no subclass of Base"),
        (f"{__name__}:Lacking", "Lacking has no act"),
    ],
)
def test_what_cannot_be_used_is_told(monkeypatch: pytest.MonkeyPatch, value: str, told: str) -> None:
    given(monkeypatch, theirs=value)
    with pytest.raises(ExtensionError, match=f"the entry point theirs .*{told}"):
        merged({}, "things", base=Base)


def test_a_name_that_is_taken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, ours=f"{__name__}:Whole")
    with pytest.raises(ExtensionError, match="that name is taken"):
        merged({"ours": Whole}, "things", base=Base)
