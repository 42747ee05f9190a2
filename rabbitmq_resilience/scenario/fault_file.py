"""Read and write fault files, which are scenarios in YAML. Errors name line, step and field before anything starts."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.yaml_files import (
    Document,
    FileKind,
    FileRefusedError,
    Lines,
    Location,
    Problem,
    ProblemError,
    model_fields_at,
    parsed,
    read_text,
    type_problems,
)
from rabbitmq_resilience.nemesis.fault_catalogue import FAULTS
from rabbitmq_resilience.scenario.expectations import FORMER_SPELLING
from rabbitmq_resilience.scenario.min_phases import unjudgeable
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.named_files import missing_files, with_copies, with_whole_paths
from rabbitmq_resilience.scenario.problems import problems
from rabbitmq_resilience.scenario.rules import rule_problems
from rabbitmq_resilience.workload import presets


class FaultFileError(FileRefusedError):
    """The fault file, or the scenario made in Python, is refused."""


def load(path: Path, *, driver: str | None = "local") -> Scenario:
    """Parse and validate a whole fault file for a driver (None: it was played already). Raise FaultFileError only."""
    path = Path(path)
    try:
        text = read_text(path, KIND)
    except ProblemError as error:
        raise FaultFileError(str(path), [error.problem]) from error
    return parse(text, source=str(path), folder=path.parent, driver=driver)


def parse(
    text: str, *, source: str = "fault file", folder: Path | None = None, driver: str | None = "local"
) -> Scenario:
    """Return the scenario that ``text`` states; file names in it are relative to ``folder``. Raise FaultFileError."""
    try:
        document = parsed(text, KIND)
    except ProblemError as error:
        raise FaultFileError(source, [error.problem]) from None
    return stated(document, source=source, folder=folder, driver=driver)


def stated(document: Document, *, source: str, folder: Path | None = None, driver: str | None = "local") -> Scenario:
    """Return the scenario that a parsed document states, as ``parse`` does. Raise FaultFileError."""
    try:
        lines = document.lines
        plain = _with_preset(_with_topology(document.plain, lines, folder), lines)
        scenario = Scenario.model_validate_json(json.dumps(plain, allow_nan=False), strict=True)
    except ProblemError as error:
        raise FaultFileError(source, [error.problem]) from None
    except (TypeError, ValueError, RecursionError, OverflowError, KeyError, AttributeError) as error:
        if not isinstance(error, ValidationError):
            raise FaultFileError(source, [Problem((), None, f"holds a value that no field takes: {error}")]) from None
        raise FaultFileError(source, list(_type_problems(error, lines))) from None
    if driver is not None:  # a file that is to be played, not the record of a run
        _warn_of_former_spelling(document, source)
    scenario = with_whole_paths(scenario, folder or Path.cwd())
    found = [Problem(location, lines.of(location), what) for location, what in _wrong(scenario, driver)]
    if found:
        raise FaultFileError(source, found)
    return scenario


def _warn_of_former_spelling(document: Document, source: str) -> None:
    """Warn of fields that have other names since version 0.1, with their lines."""
    for number, expected in enumerate(document.plain.get("expect") or ()):
        for former in sorted(FORMER_SPELLING.keys() & expected.keys()):
            line = document.lines.of(("expect", number, former))
            present = "intermittent: true (for always: false)" if former == "always" else FORMER_SPELLING[former]
            text = f"{source}, line {line}: expect.{number}.{former}: write {present}; the former name goes in the next"
            warnings.warn(f"{text} release", FutureWarning, stacklevel=2)


def check(scenario: Scenario, *, driver: str | None) -> None:
    """Check a scenario made in Python as if it were a file, as its parts may have been replaced without validation.
    Raise FaultFileError if it is refused."""
    try:
        whole = Scenario.model_validate_json(json.dumps(scenario.model_dump(mode="json"), allow_nan=False), strict=True)
    except ValidationError as error:
        raise FaultFileError(scenario.title, list(_type_problems(error, Lines(None)))) from None
    found = [Problem(location, None, what) for location, what in _wrong(whole, driver)]
    if found:
        raise FaultFileError(scenario.title, found)


def save(scenario: Scenario, path: Path) -> None:
    """Write the fault file of a scenario, with copies of the files that it names next to it. So it can be played or
    judged again even if the originals change."""
    scenario = with_copies(scenario, path.parent)
    path.write_text(dump(scenario), encoding="utf-8")


def dump(scenario: Scenario) -> str:
    """Return the text of a scenario's fault file; ``parse`` gives the same scenario again."""
    plain = scenario.model_dump(mode="json")
    _leave_out_unset(scenario, plain)
    return str(yaml.dump(plain, Dumper=_EscapingDumper, sort_keys=False, allow_unicode=True, width=110))


class _EscapingDumper(yaml.SafeDumper):
    """Write characters as escapes that only YAML takes for line ends."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = '"' if set("\x85\u2028\u2029") & set(data) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_EscapingDumper.add_representer(str, _EscapingDumper.represent_str)


def _leave_out_unset(model: BaseModel, plain: dict[str, Any]) -> None:
    """Remove None from ``plain`` if None is the default in ``model``. Elsewhere None has a meaning and stays."""
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if value is None and field.default is None:
            plain.pop(name, None)
        elif name in plain:
            pairs = zip(value, plain[name], strict=True) if isinstance(value, tuple) else [(value, plain[name])]
            for inner, inner_plain in pairs:
                if isinstance(inner, BaseModel):
                    _leave_out_unset(inner, inner_plain)


def _with_topology(plain: dict[str, Any], lines: Lines, folder: Path | None) -> dict[str, Any]:
    """Return ``plain`` with the topology itself in place of the name of its file, which is relative to ``folder``."""
    named = plain.get("topology")
    if not isinstance(named, str) or not named.endswith((".yaml", ".yml")):
        return plain
    try:
        topology = topology_catalogue.read(((folder or Path.cwd()) / named).resolve())
    except topology_catalogue.BadTopologyError as error:
        raise ProblemError(Problem(("topology",), lines.of(("topology",)), str(error))) from None
    return {**plain, "topology": topology.model_dump(mode="json", exclude_none=True)}


def _with_preset(plain: dict[str, Any], lines: Lines) -> dict[str, Any]:
    """Return ``plain`` with the whole workload in place of a preset, as the record of a run states its load itself."""
    stated = plain.get("workload")
    if not isinstance(stated, dict) or not stated.keys() & set(presets.FIELDS):
        return plain
    location: Location = ("workload", "preset")
    try:
        if "preset" not in stated:
            raise presets.BadPresetError("scale goes with a preset: say which")
        merged = presets.merged(stated)
    except presets.UnknownPresetError as error:
        raise ProblemError(Problem(location, lines.of(location), str(error))) from None
    except presets.BadPresetError as error:
        location = ("workload", "scale") if "scale" in stated else location
        raise ProblemError(Problem(location, lines.of(location), str(error))) from None
    return {**plain, "workload": merged}


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
    fields = model_fields_at(Scenario, loc, FAULTS.get)
    return (*presets.FIELDS, *fields) if loc == ("workload",) else fields


KIND = FileKind("fault file", _fields_at, tuple(FAULTS), "fault")


def _wrong(scenario: Scenario, driver: str | None) -> Iterator[tuple[Location, str]]:
    yield from missing_files(scenario)
    yield from problems(scenario, driver)
    if driver is not None:  # a scenario that was played already is judged in any case
        yield from rule_problems(scenario)
        yield from unjudgeable(scenario)
