"""Whatever happens to a fault file, it is read whole or refused by name."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from tests.scenarios.test_fault_file import SANE

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["zone:a", "a1", "rest"])
)
PLAIN = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def places(plain: Any, place: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    return [*([place] if place else []), *(found for key, value in inner for found in places(value, (*place, key)))]


@given(st.lists(st.tuples(st.sampled_from(places(SANE)), PLAIN), min_size=1, max_size=3))
def test_a_damaged_file_is_read_or_refused(damages: list[tuple[tuple[str | int, ...], Any]]) -> None:
    plain: Any = copy.deepcopy(SANE)
    for path, value in damages:
        inner = plain
        try:
            for part in path[:-1]:
                inner = inner[part]
            inner[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier damage removed the place
    read_or_refused(yaml.safe_dump(plain, allow_unicode=True))


@given(st.data())
def test_a_file_with_wrong_characters_is_read_or_refused(data: st.DataObject) -> None:
    text = yaml.safe_dump(SANE, sort_keys=False)
    at = data.draw(st.integers(0, len(text)))
    until = data.draw(st.integers(at, min(len(text), at + 20)))
    read_or_refused(text[:at] + data.draw(st.text(max_size=10)) + text[until:])


def read_or_refused(text: str) -> None:
    """Anything but a scenario or a FaultFileError is raised to the test."""
    try:
        scenario = fault_file.parse(text)
    except FaultFileError as error:
        assert error.problems
        assert "Traceback" not in str(error)
    else:
        assert fault_file.parse(fault_file.dump(scenario)) == scenario


@pytest.mark.parametrize(
    "text", ["[" * 50_000, "x: " + "{a: " * 50_000, "- " * 3_000, "version: !!bool x", "seed: !!int y"]
)
def test_what_no_reader_should_choke_on_is_refused(text: str) -> None:
    with pytest.raises(fault_file.FaultFileError):
        fault_file.parse(text)
