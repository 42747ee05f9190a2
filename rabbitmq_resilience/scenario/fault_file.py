"""Read and write fault files, which are scenarios in YAML. Errors name line, step and field before anything starts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from rabbitmq_resilience.model.yaml_files import (
    Document,
    Lines,
    Location,
    Problem,
    ProblemError,
    no_field_takes,
    parsed,
    read_text,
)
from rabbitmq_resilience.nemesis.former_faults import advice, with_present_steps
from rabbitmq_resilience.scenario.expectations import FORMER_SPELLING
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.named_files import with_copies, with_whole_paths
from rabbitmq_resilience.scenario.validation import KIND, ValidatedScenario, validate
from rabbitmq_resilience.scenario.validation import (
    FaultFileError as FaultFileError,  # noqa: PLC0414 - callers of this module catch it
)
from rabbitmq_resilience.workload import presets


def load(path: Path, *, driver: str | None = "local") -> ValidatedScenario:
    """Parse and validate a whole fault file for a driver (None: it was played already). Raise FaultFileError only."""
    path = Path(path)
    try:
        text = read_text(path, KIND)
    except ProblemError as error:
        raise FaultFileError(str(path), [error.problem]) from error
    return parse(text, source=str(path), folder=path.parent, driver=driver)


def parse(
    text: str, *, source: str = "fault file", folder: Path | None = None, driver: str | None = "local"
) -> ValidatedScenario:
    """Return the scenario that ``text`` states; file names in it are relative to ``folder``. Raise FaultFileError."""
    try:
        document = parsed(text, KIND)
    except ProblemError as error:
        raise FaultFileError(source, [error.problem]) from None
    return stated(document, source=source, folder=folder, driver=driver)


def stated(
    document: Document, *, source: str, folder: Path | None = None, driver: str | None = "local"
) -> ValidatedScenario:
    """Return the scenario that a parsed document states, as ``parse`` does. Raise FaultFileError."""
    try:
        plain = with_present_steps(_with_preset(document.plain, document.lines))
    except ProblemError as error:
        raise FaultFileError(source, [error.problem]) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise FaultFileError(source, [Problem((), None, no_field_takes(error, KIND))]) from None
    scenario = validate(plain, document.lines, source=source, folder=folder, driver=driver)
    if driver is not None:  # a file that is to be played, not the record of a run
        _warn_of_former_spelling(document, source)
    return scenario


def _warn_of_former_spelling(document: Document, source: str) -> None:
    """Warn of fields and faults that have other names since version 0.1, with their lines."""
    for location, write, former in _former_spelling(document.plain):
        place = f"{source}, line {document.lines.of(location)}: {'.'.join(map(str, location))}"
        warnings.warn(f"{place}: write {write}; {former} goes in the next release", FutureWarning, stacklevel=2)


def _former_spelling(plain: Mapping[str, Any]) -> Iterator[tuple[Location, str, str]]:
    """Yield where a name of version 0.1 is, what to write there, and what goes."""
    for number, expected in enumerate(plain.get("expect") or ()):
        for former in sorted(FORMER_SPELLING.keys() & expected.keys()):
            present = "intermittent: true (for always: false)" if former == "always" else FORMER_SPELLING[former]
            yield ("expect", number, former), present, "the former name"
    for number, step in enumerate(plain.get("schedule") or ()):
        if (present_step := advice(step)) is not None:
            yield ("schedule", number, "fault"), present_step, str(step["fault"])


def save(scenario: Scenario, path: Path) -> Scenario:
    """Write the fault file of a scenario, with copies of the files that it names next to it. So it can be played or
    judged again even if the originals change. Return the scenario with these copies."""
    scenario = with_copies(scenario, path.parent)
    path.write_text(dump(scenario), encoding="utf-8")
    return with_whole_paths(scenario, path.parent)


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
