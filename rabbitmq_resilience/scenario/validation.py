"""Validate scenarios: the one way from what a file or Python code states to what is played."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, PrivateAttr, ValidationError

from rabbitmq_resilience.model.yaml_files import (
    FileKind,
    FileRefusedError,
    Lines,
    Location,
    Problem,
    model_fields_at,
    no_field_takes,
    type_problems,
)
from rabbitmq_resilience.nemesis.fault_catalogue import FAULTS
from rabbitmq_resilience.scenario.min_phases import unjudgeable
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.named_files import missing_files, with_whole_paths
from rabbitmq_resilience.scenario.problems import problems
from rabbitmq_resilience.scenario.rules import rule_problems
from rabbitmq_resilience.workload import presets
from rabbitmq_resilience.workload.kinds import GENERATED, KINDS


class FaultFileError(FileRefusedError):
    """The fault file, or the scenario made in Python, is refused."""


class ValidatedScenario(Scenario):
    """A scenario without problems, with absolute file names. Runners take no other. This module alone makes it.

    A changed copy (``model_copy``, ``on``) is a plain ``Scenario``, and is validated again before it is played.
    """

    _driver: str | None = PrivateAttr(default=None)

    @property
    def driver(self) -> str | None:
        """Return the driver that can play the scenario; None for the scenario of a record."""
        return self._driver

    def require_driver(self, driver: str) -> None:
        """Raise ValueError if the scenario was validated for another driver."""
        if driver != self.driver:
            raise ValueError(f"{self.title} was validated for {self.driver}, and is played on {driver}")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Scenario:  # type: ignore[override]
        """Return a copy that is not validated."""
        plain = Scenario.model_construct(set(self.model_fields_set), **dict(self))
        return plain.model_copy(update=update, deep=deep)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and dict(self) == dict(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))


def validated(scenario: Scenario, *, driver: str | None) -> ValidatedScenario:
    """Return the scenario as one that ``driver`` can play (None: it was played already).

    A scenario that was validated for this driver is returned itself. One that was made or changed in Python is
    validated like a file, as its parts may have been replaced without validation. Raise FaultFileError.
    """
    if isinstance(scenario, ValidatedScenario) and scenario.driver == driver:
        return scenario
    return validate(scenario.model_dump(mode="json"), Lines(None), source=scenario.title, driver=driver)


def validate(
    plain: Mapping[str, Any], lines: Lines, *, source: str, folder: Path | None = None, driver: str | None
) -> ValidatedScenario:
    """Return the scenario that plain values state; file names in them are relative to ``folder``. Raise FaultFileError,
    which names ``source`` and lists all problems with their lines."""
    folder = folder or Path.cwd()
    try:
        text = json.dumps(plain, allow_nan=False)
        scenario = Scenario.model_validate_json(text, strict=True, context={"folder": folder})
    except ValidationError as error:
        raise FaultFileError(source, list(_type_problems(error, lines))) from None
    except (TypeError, ValueError, RecursionError, OverflowError, KeyError, AttributeError) as error:
        raise FaultFileError(source, [Problem((), None, no_field_takes(error, KIND))]) from None
    scenario = with_whole_paths(scenario, folder)
    if found := [Problem(location, lines.of(location), what) for location, what in _wrong(scenario, driver)]:
        raise FaultFileError(source, found)
    made = ValidatedScenario.model_construct(set(scenario.model_fields_set), **dict(scenario))
    made._driver = driver
    return made


def _wrong(scenario: Scenario, driver: str | None) -> Iterator[tuple[Location, str]]:
    yield from missing_files(scenario)
    yield from problems(scenario, driver)
    if driver is not None:  # a scenario that was played already is judged in any case
        yield from rule_problems(scenario)
        yield from unjudgeable(scenario)


def _type_problems(error: ValidationError, lines: Lines) -> Iterator[Problem]:
    """Yield the problems. In a load with a preset, a missing or wrong field may be the preset's."""
    for problem, detail in zip(type_problems(error, lines, KIND), error.errors(include_url=False), strict=True):
        of_load = problem.location in (("workload",), ()) and detail["loc"][:1] == ("workload",)
        if of_load and lines.has(("workload", "preset")):
            text = f"{problem.text}; what is not written here is the preset's"
            yield Problem(problem.location, problem.line, text)
        else:
            yield problem


def _fields_at(loc: Location) -> tuple[str, ...]:
    """Return the fields of the mapping at a location."""
    fields = model_fields_at(Scenario, loc, _BRANCHES.get)
    return (*presets.FIELDS, *fields) if loc == ("workload", GENERATED) else fields


_BRANCHES: Mapping[str, type[BaseModel]] = {**FAULTS, **KINDS}

KIND = FileKind("fault file", _fields_at, (*FAULTS, *KINDS), "fault")
