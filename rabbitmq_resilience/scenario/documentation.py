"""Generate the page of everything that a fault file may state, from the definitions and their docstrings.

.venv/bin/python -m rabbitmq_resilience.scenario.documentation > docs/fault-files.md
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from rabbitmq_resilience.checkers.checker_catalogue import INVARIANTS
from rabbitmq_resilience.checkers.verdict import InvariantSpec
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis import targets
from rabbitmq_resilience.nemesis.conditions import When
from rabbitmq_resilience.nemesis.fault_catalogue import FAULTS
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.report.markdown_tables import markdown
from rabbitmq_resilience.scenario.expectations import Expectation
from rabbitmq_resilience.scenario.model import Phases, Scenario
from rabbitmq_resilience.scenario.schema import schema
from rabbitmq_resilience.sut.drivers import DRIVERS
from rabbitmq_resilience.workload import presets
from rabbitmq_resilience.workload.application_model import ApplicationWorkload
from rabbitmq_resilience.workload.presets import Preset
from rabbitmq_resilience.workload.workload_model import Workload

TEMPLATE = Path(__file__).parent / "templates" / "fault-files.md.j2"


@dataclass(frozen=True)
class Field:
    """The content of one line of a table."""

    name: str
    takes: str
    default: str


@dataclass(frozen=True)
class Definition:
    """A heading and the text below it: a mapping of a fault file, with the mappings inside it."""

    title: str
    text: str
    fields: Sequence[Field] = ()
    inner: Sequence[Definition] = ()


@dataclass(frozen=True)
class DocumentedKind:
    """A fault or an invariant. ``about`` is its module's text; it also has its own ``text`` and its own fields."""

    name: str
    about: str
    text: str
    fields: Sequence[Field]
    acts_on: str = ""
    played: str = ""
    example: str = ""
    needs_metrics: bool = False
    inner: Sequence[Definition] = ()

    @property
    def in_short(self) -> str:
        return " ".join(self.about.partition("\n\n")[0].split())


@dataclass(frozen=True)
class DocumentedPreset:
    """A preset as it was ``published``, with the fields that differ ``here``, both as YAML."""

    name: str
    source: str
    what: str
    published: str
    here: str


def page() -> str:
    """Return the page as Markdown."""
    return markdown(
        TEMPLATE,
        file=_definition("The file", Scenario),
        topology=_definition("topology", Topology, nested=True),
        presets=[_load(name, presets.load(name)) for name in presets.names()],
        workload=_definition("workload", Workload, nested=True),
        application=_definition("application", ApplicationWorkload, nested=True),
        phases=_definition("phases", Phases),
        schedule=_definition("schedule", ScheduledFault),
        targets=_text(targets),
        when=_definition("when", When, nested=True),
        faults=[_fault(name, fault) for name, fault in FAULTS.items()],
        invariants=[_invariant(name, checker) for name, checker in INVARIANTS.items()],
        expect=_definition("expect", Expectation),
    )


def _load(name: str, preset: Preset) -> DocumentedPreset:
    published, here = (
        str(yaml.safe_dump(fields, default_flow_style=True, sort_keys=False, width=104)).strip() if fields else ""
        for fields in (preset.published, preset.here)
    )
    return DocumentedPreset(name, preset.source, " ".join(preset.what.split()), published, here)


def _definition(title: str, model: type[BaseModel], *, nested: bool = False) -> Definition:
    """Return a definition; ``nested``: with those of all mappings inside it, in the order of their fields."""
    return Definition(title, _text(model), list(_fields(model)), list(_inner(model)) if nested else ())


def _inner(model: type[BaseModel]) -> Iterator[Definition]:
    titles = _titles()
    for inside in dict.fromkeys(each for _, each in _mappings(model)):
        yield _definition(f"`{titles[inside.__name__]}`", inside)


def _mappings(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the mappings that are values in ``model`` or inside such a value, each with the name of its field. Faults
    are left out."""
    for name, field in model.model_fields.items():
        for inside in models_in(field.annotation):
            if not issubclass(inside, ScheduledFault):
                yield name, inside
                yield from _mappings(inside)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that the annotation of a field names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for part in get_args(annotation):
            yield from models_in(part)


@cache
def _titles() -> Mapping[str, str]:
    """Return the heading of each mapping of a fault file, by the name of its class."""
    return {inside.__name__: heading for inside, heading in headings(Scenario, ScheduledFault).items()}


def headings(*models: type[BaseModel]) -> Mapping[type[BaseModel], str]:
    """Return the heading of each mapping inside ``models``: its own title, or the name of the field that holds it.

    Raise ValueError for a mapping without a title that fields of several names hold."""
    names: dict[type[BaseModel], dict[str, None]] = {}
    for name, inside in (found for model in models for found in _mappings(model)):
        names.setdefault(inside, {})[inside.model_config.get("title") or name] = None
    for inside, found in names.items():
        if len(found) > 1:
            raise ValueError(f"{inside.__name__} is the value of {', '.join(found)}: give it a title of its own")
    return {inside: next(iter(found)) for inside, found in names.items()}


def _invariant(name: str, checker: type[InvariantSpec]) -> DocumentedKind:
    about, own, inner = _text(sys.modules[checker.__module__]), list(_fields(checker)), list(_inner(checker))
    return DocumentedKind(name, about, _text(checker), own, needs_metrics=checker.needs_metrics, inner=inner)


def _fault(name: str, fault: type[ScheduledFault]) -> DocumentedKind:
    own = {field for field in fault.model_fields if field not in ScheduledFault.model_fields and field != "fault"}
    example = {"at_s": 2, "for_s": 15, "fault": name, **(yaml.safe_load(f"{{{fault.example}}}") or {})}
    return DocumentedKind(
        name,
        _text(sys.modules[fault.__module__]),
        _text(fault),
        list(_fields(fault, only=own)),
        acts_on=fault.acts_on,
        played=_played_by(fault),
        example=_as_yaml([example]),
    )


def _as_yaml(value: object) -> str:
    """Return block YAML in which the innermost values are on one line."""
    return str(yaml.dump(value, Dumper=_Innermost, sort_keys=False)).rstrip()


class _Innermost(yaml.SafeDumper):
    """Write a list on one line, unless it holds mappings."""


_Innermost.add_representer(
    list,
    lambda dumper, value: dumper.represent_sequence(
        "tag:yaml.org,2002:seq", value, flow_style=not any(isinstance(one, dict) for one in value)
    ),
)


def _played_by(fault: type[ScheduledFault]) -> str:
    drivers = [driver for driver, found in DRIVERS.items() if fault.acts_on in found.offers]
    if drivers == ["attached"]:
        return "played on existing brokers in pods"
    if "docker" not in drivers:
        return "played with processes only"
    return "played with processes and in containers" if "local" in drivers else "played in containers only"


def _text(documented: object) -> str:
    """Return a docstring as Markdown. A table in it becomes preformatted text."""
    text = inspect.cleandoc(getattr(documented, "__doc__", None) or "").replace("``", "`")
    if "======" not in text:
        return text
    before, _, table = text.partition("\n======")
    rows = [line for line in f"======{table}".replace("`", "").splitlines() if not line.startswith("=====")]
    return "\n".join([before, "```", *rows, "```"])


@cache
def _definitions() -> Mapping[str, Any]:
    whole = schema()
    return {**whole["$defs"], "Scenario": whole, "ScheduledFault": ScheduledFault.model_json_schema()}


def _fields(model: type[BaseModel], *, only: set[str] | None = None) -> Iterator[Field]:
    """Yield the own fields of a definition."""
    made = _definitions()
    required = {*made[model.__name__].get("required", ())}
    # A step has one of two forms; the other form is explained in the text below.
    either = {name for form in made[model.__name__].get("oneOf", ()) for name in form["required"]} | {"for_s"}
    for name, field in made[model.__name__]["properties"].items():
        if only is None or name in only:
            yield Field(name, _kind(field), "needed" if name in required | either else _default(field))


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    if value is None or value in ([], {}, ""):
        return ""
    if isinstance(value, dict):
        return "those of its fields"
    return f"`{yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}`"


def _kind(field: Mapping[str, Any]) -> str:
    if "anyOf" in field or "oneOf" in field:
        kinds = [_kind(one) for one in field.get("anyOf", field.get("oneOf", ())) if one.get("type") != "null"]
        return "any of the [faults](#faults)" if "oneOf" in field else _either(kinds)
    if "$ref" in field:
        return _referred(str(field["$ref"]).rpartition("/")[2])
    if "enum" in field or "const" in field:
        return _either(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    return _plain(field)


def _plain(field: Mapping[str, Any]) -> str:
    if "description" in field and field.get("type") == "string":
        return str(field["description"])
    kind = str(field.get("type", "anything"))
    if kind == "array":
        sizes = list(_bounds(field, "minItems", "maxItems"))
        return " ".join(["a list of", _kind(field.get("items", {})), *([f"({' '.join(sizes)})"] if sizes else [])])
    if kind == "object":
        return "a mapping"
    names = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "`true` or `false`"}
    bounds = _bounds(field, "minimum", "maximum") if kind != "string" else []
    return " ".join([names.get(kind, kind), *bounds])


def _either(kinds: Iterable[str]) -> str:
    return " or ".join(kinds)


def _referred(name: str) -> str:
    made = _definitions()[name]
    if "enum" in made:
        return _kind(made)
    title = _titles().get(name, name)
    return f"[{title}](#{title})"


def _bounds(field: Mapping[str, Any], least: str, most: str) -> Iterator[str]:
    if least in field:
        yield f"from {field[least]:,}".replace(",", " ")
    if "exclusiveMinimum" in field:
        yield f"over {field['exclusiveMinimum']:,}".replace(",", " ")
    if most in field:
        yield f"to {field[most]:,}".replace(",", " ")


if __name__ == "__main__":
    print(page(), end="")
