"""Fault files: a scenario as YAML, refused with its line, step and field before anything is started."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from rabbitmq_resilience.clusters import catalogue
from rabbitmq_resilience.faults.catalogue import FAULTS
from rabbitmq_resilience.scenarios.expectations import Location
from rabbitmq_resilience.scenarios.judgeable import unjudgeable
from rabbitmq_resilience.scenarios.model import Scenario
from rabbitmq_resilience.scenarios.named_files import missing_files, with_copies, with_whole_paths
from rabbitmq_resilience.scenarios.problems import problems
from rabbitmq_resilience.scenarios.rules import rule_problems
from rabbitmq_resilience.workloads import presets

FILE_BYTES_MAX = 1_000_000
DEPTH_MAX = 32
#: How ``evidence.command`` marks what is not known.
FILL_IN = "FILL IN"


#: The safe loader, in C where that was built: it constructs plain values and nothing else.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where in the scenario, in which line (None if unknown), and what."""

    location: Location
    line: int | None
    text: str

    def __str__(self) -> str:
        where = [f"line {self.line}"] if self.line is not None else []
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.location).lstrip(".")
        return ", ".join([*where, *([name] if name else [])]) + f": {self.text}"


class FaultFileError(Exception):
    """The file is refused. ``problems`` are all that were found; the text lists them for people."""

    def __init__(self, source: str, found: list[Problem]) -> None:
        listed = "\n".join(f"  {problem}" for problem in found)
        count = f"{len(found)} problem{'s' if len(found) > 1 else ''}"
        super().__init__(f"{source}: {count}, nothing was started\n{listed}")
        self.problems = tuple(found)


def load(path: Path, *, driver: str | None = "local") -> Scenario:
    """Parse and validate a fault file whole, for a driver (None: it was played already). Raises FaultFileError only."""
    path = Path(path)
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise FaultFileError(
                str(path), [Problem((), None, f"over {FILE_BYTES_MAX} bytes; no fault file is so large")]
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FaultFileError(str(path), [Problem((), None, f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise FaultFileError(str(path), [Problem((), None, "is no UTF-8 text")]) from error
    return parse(text, source=str(path), folder=path.parent, driver=driver)


def parse(
    text: str, *, source: str = "fault file", folder: Path | None = None, driver: str | None = "local"
) -> Scenario:
    """The scenario that ``text`` states; file names in it are relative to ``folder``. Raises FaultFileError."""
    try:
        _refuse_depth(text)
        loader = _Loader(text)
        root = loader.get_single_node()
        lines = _Lines(root)
        _refuse_oddities(root, lines)
        plain = _with_preset(_with_topology(loader.construct_document(root), lines, folder), lines)
        scenario = Scenario.model_validate_json(json.dumps(plain, allow_nan=False), strict=True)
    except _Refused as error:
        raise FaultFileError(source, [error.problem]) from None
    except yaml.YAMLError as error:
        raise FaultFileError(source, [_yaml_problem(error)]) from None
    except (TypeError, ValueError, RecursionError, OverflowError, KeyError, AttributeError) as error:
        if not isinstance(error, ValidationError):
            raise FaultFileError(source, [Problem((), None, f"holds a value that no field takes: {error}")]) from None
        raise FaultFileError(source, list(_type_problems(error, lines))) from None
    scenario = with_whole_paths(scenario, folder or Path.cwd())
    found = [Problem(location, lines.of(location), what) for location, what in _wrong(scenario, driver)]
    if found:
        raise FaultFileError(source, found)
    return scenario


def check(scenario: Scenario, *, driver: str | None) -> None:
    """The same for a scenario that was made in Python, whose parts may have been replaced unseen. Raises
    FaultFileError."""
    try:
        whole = Scenario.model_validate_json(json.dumps(scenario.model_dump(mode="json"), allow_nan=False), strict=True)
    except ValidationError as error:
        raise FaultFileError(scenario.title, list(_type_problems(error, _Lines(None)))) from None
    found = [Problem(location, None, what) for location, what in _wrong(whole, driver)]
    if found:
        raise FaultFileError(scenario.title, found)


def save(scenario: Scenario, path: Path) -> None:
    """Write the fault file of a scenario, with copies of the files that it names beside it: what is played or judged
    again is the same, whatever becomes of the originals."""
    scenario = with_copies(scenario, path.parent)
    path.write_text(dump(scenario), encoding="utf-8")


def dump(scenario: Scenario) -> str:
    """The fault file of a scenario; ``parse`` gives the same scenario again."""
    plain = scenario.model_dump(mode="json")
    _leave_out_unset(scenario, plain)
    return str(yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))


class _Dumper(yaml.SafeDumper):
    """YAML takes some characters for ends of lines that nobody else does: they are written as escapes."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = '"' if set("\x85\u2028\u2029") & set(data) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)


def _leave_out_unset(model: BaseModel, plain: dict[str, Any]) -> None:
    """Removes None from ``plain``, what ``model`` says, where that is the default; elsewhere it means something."""
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if value is None and field.default is None:
            plain.pop(name, None)
        elif name in plain:
            pairs = zip(value, plain[name], strict=True) if isinstance(value, tuple) else [(value, plain[name])]
            for inner, inner_plain in pairs:
                if isinstance(inner, BaseModel):
                    _leave_out_unset(inner, inner_plain)


def _with_topology(plain: dict[str, Any], lines: _Lines, folder: Path | None) -> dict[str, Any]:
    """``plain`` with the topology itself where it names a file, which lies beside the fault file."""
    named = plain.get("topology")
    if not isinstance(named, str) or not named.endswith((".yaml", ".yml")):
        return plain
    try:
        topology = catalogue.read(((folder or Path.cwd()) / named).resolve())
    except catalogue.BadTopologyError as error:
        raise _Refused(Problem(("topology",), lines.of(("topology",)), str(error))) from None
    return {**plain, "topology": topology.model_dump(mode="json", exclude_none=True)}


def _with_preset(plain: dict[str, Any], lines: _Lines) -> dict[str, Any]:
    """``plain`` with the whole workload where it names a preset: what is kept of a run states its load itself."""
    stated = plain.get("workload")
    if not isinstance(stated, dict) or not stated.keys() & set(presets.FIELDS):
        return plain
    location: Location = ("workload", "preset")
    try:
        if "preset" not in stated:
            raise presets.BadPresetError("scale goes with a preset: say which")
        merged = presets.merged(stated)
    except presets.UnknownPresetError as error:
        raise _Refused(Problem(location, lines.of(location), str(error))) from None
    except presets.BadPresetError as error:
        location = ("workload", "scale") if "scale" in stated else location
        raise _Refused(Problem(location, lines.of(location), str(error))) from None
    return {**plain, "workload": merged}


class _Refused(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


class _Lines:
    """The line of every location of a composed YAML document."""

    def __init__(self, root: yaml.Node | None) -> None:
        self._root = root

    def of(self, location: Location) -> int | None:
        """The line of a location, or of the innermost mapping around it that the file does have."""
        node = self._root
        for part in location:
            inner = _child(node, part)
            node = inner if inner is not None else node
        return None if node is None else node.start_mark.line + 1

    def has(self, location: Location) -> bool:
        node = self._root
        for part in location:
            node = _child(node, part)
        return node is not None


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        inner: yaml.Node = node.value[part]
        return inner
    return None


def _refuse_depth(text: str) -> None:
    """Before the text is composed, which takes from the stack for each level."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX + 1:
            line = event.start_mark.line + 1 if event.start_mark else None
            raise _Refused(Problem((), line, f"is nested deeper than {DEPTH_MAX} levels"))


def _refuse_oddities(root: yaml.Node | None, lines: _Lines) -> None:
    """Anchors, repeated and non-text fields are refused: each hides a mistake."""
    if not isinstance(root, yaml.MappingNode):
        raise _Refused(Problem((), 1, "a fault file is a mapping that begins with 'version: 1'"))
    seen: set[int] = set()
    for location, node in _walk(root, ()):
        if len(location) > DEPTH_MAX:
            raise _Refused(Problem(location[:3], lines.of(location[:3]), f"is nested deeper than {DEPTH_MAX} levels"))
        if id(node) in seen:
            raise _Refused(Problem(location, lines.of(location), "anchors are not used in fault files; write it out"))
        seen.add(id(node))


def _walk(node: yaml.Node, location: Location) -> Iterator[tuple[Location, yaml.Node]]:
    yield location, node
    if isinstance(node, yaml.SequenceNode):
        for i, inner in enumerate(node.value):
            yield from _walk(inner, (*location, i))
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, inner in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise _Refused(Problem(location, line, "the name of a field is plain text"))
            if key.value in seen:
                raise _Refused(Problem((*location, key.value), line, "is given twice"))
            seen.add(key.value)
            yield from _walk(inner, (*location, key.value))


def _yaml_problem(error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or str(error)
    return Problem((), mark.line + 1 if mark else None, f"is no YAML: {what}")


def _type_problems(error: ValidationError, lines: _Lines) -> Iterator[Problem]:
    for detail in error.errors(include_url=False):
        location = tuple(_in_file(detail["loc"], lines))
        text = _text(detail["type"], detail, _fields_at(detail["loc"][:-1]))
        if location in (("workload",), ()) and detail["loc"][:1] == ("workload",) and lines.has(("workload", "preset")):
            text += "; what is not written here is the preset's"
        yield Problem(location, lines.of(location), text)


def _in_file(loc: tuple[str | int, ...], lines: _Lines) -> Iterator[str | int]:
    """The parts of pydantic's location that stand in the file: it also names the union's branch."""
    location: Location = ()
    for i, part in enumerate(loc):
        last = i == len(loc) - 1
        if lines.has((*location, part)) or (last and part not in tuple(FAULTS)):
            location = (*location, part)
            yield part


def _text(kind: str, detail: Any, fields: tuple[str, ...]) -> str:  # noqa: PLR0911 - one a kind
    got, context = detail.get("input"), detail.get("ctx", {})
    shown = json.dumps(got, default=str)[:80]
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(detail["loc"][-1]), fields, n=1)
        return "no such field; " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(fields)}")
    if kind == "missing":
        return "is missing"
    if kind == "union_tag_invalid":
        near = difflib.get_close_matches(str(context.get("tag")), tuple(FAULTS), n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(tuple(FAULTS))}"
        return f"{context.get('tag')!r} is no fault; {hint}"
    if kind == "union_tag_not_found":
        return f"says no fault; add fault: with one of {', '.join(tuple(FAULTS))}"
    if kind == "value_error":
        return str(context.get("error", detail["msg"]))
    if str(got).startswith(FILL_IN):
        return f"is still to be filled in{str(got).removeprefix(FILL_IN)}"
    message = str(detail["msg"])
    return f"got {shown}; {message[0].lower()}{message[1:]}"


def _fields_at(loc: tuple[str | int, ...]) -> tuple[str, ...]:
    """The fields of the mapping at a location."""
    model: type[BaseModel] | None = Scenario
    for part in loc:
        if isinstance(part, int):
            continue
        if model is not None and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation)
        elif part in FAULTS:
            model = FAULTS[str(part)]
    fields = tuple(model.model_fields) if model else ()
    return (*presets.FIELDS, *fields) if loc == ("workload",) else fields


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for inner in get_args(annotation) if (model := _model_in(inner)) is not None), None)


def _wrong(scenario: Scenario, driver: str | None) -> Iterator[tuple[Location, str]]:
    yield from missing_files(scenario)
    yield from problems(scenario, driver)
    if driver is not None:  # what was played already is judged as far as it goes
        yield from rule_problems(scenario)
        yield from unjudgeable(scenario)
