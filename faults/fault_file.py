"""Fault files: a scenario as YAML, refused with its line, step and field before anything is started."""

from __future__ import annotations

import difflib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from faults.catalogue import AnyFault
from faults.scenario import Place, Scenario, problems

FILE_BYTES_MAX = 1_000_000
DEPTH_MAX = 32
#: How ``faults.from_evidence`` marks what is not known.
FILL_IN = "FILL IN"


#: The safe loader, in C where that was built: it constructs plain values and nothing else.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where in the scenario, in which line (None if unknown), and what."""

    place: Place
    line: int | None
    text: str

    def __str__(self) -> str:
        where = [f"line {self.line}"] if self.line is not None else []
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.place).lstrip(".")
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
        loader = _Loader(text)
        root = loader.get_single_node()
        lines = _Lines(root)
        _refuse_oddities(root, lines)
        plain = loader.construct_document(root)
        scenario = Scenario.model_validate_json(json.dumps(plain, allow_nan=False), strict=True)
    except _Refused as error:
        raise FaultFileError(source, [error.problem]) from None
    except yaml.YAMLError as error:
        raise FaultFileError(source, [_yaml_problem(error)]) from None
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        if not isinstance(error, ValidationError):
            raise FaultFileError(source, [Problem((), None, f"holds a value that no field takes: {error}")]) from None
        raise FaultFileError(source, list(_type_problems(error, lines))) from None
    scenario = _beside(scenario, folder)
    found = [
        Problem(place, lines.of(place), what)
        for place, what in [*_missing_files(scenario), *problems(scenario, driver)]
    ]
    if found:
        raise FaultFileError(source, found)
    return scenario


def save(scenario: Scenario, path: Path) -> None:
    """Write the fault file of a scenario, with copies of its configuration files beside it: what is played or judged
    again is the same, whatever becomes of the originals."""
    copies: dict[str, Path] = {}
    for name in _CONFIGURATION:
        original = getattr(scenario.topology, name)
        if original is not None:
            copies[name] = Path("configuration", original.name)
            (path.parent / copies[name]).parent.mkdir(exist_ok=True)
            shutil.copyfile(original, path.parent / copies[name])
    path.write_text(dump(scenario.with_topology(**copies)), encoding="utf-8")


def dump(scenario: Scenario) -> str:
    """The fault file of a scenario; ``parse`` gives the same scenario again."""
    plain = scenario.model_dump(mode="json")
    _leave_out_unset(scenario, plain)
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110)


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


class _Refused(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


class _Lines:
    """The line of every place of a composed YAML document."""

    def __init__(self, root: yaml.Node | None) -> None:
        self._root = root

    def of(self, place: Place) -> int | None:
        """The line of a place, or of the innermost mapping around it that the file does have."""
        node = self._root
        for part in place:
            inner = _child(node, part)
            node = inner if inner is not None else node
        return None if node is None else node.start_mark.line + 1

    def has(self, place: Place) -> bool:
        node = self._root
        for part in place:
            node = _child(node, part)
        return node is not None


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        inner: yaml.Node = node.value[part]
        return inner
    return None


def _refuse_oddities(root: yaml.Node | None, lines: _Lines) -> None:
    """Anchors, repeated and non-text fields are refused: each hides a mistake."""
    if not isinstance(root, yaml.MappingNode):
        raise _Refused(Problem((), 1, "a fault file is a mapping that begins with 'version: 1'"))
    seen: set[int] = set()
    for place, node in _walk(root, ()):
        if len(place) > DEPTH_MAX:
            raise _Refused(Problem(place[:3], lines.of(place[:3]), f"is nested deeper than {DEPTH_MAX} levels"))
        if id(node) in seen:
            raise _Refused(Problem(place, lines.of(place), "anchors are not used in fault files; write it out"))
        seen.add(id(node))


def _walk(node: yaml.Node, place: Place) -> Iterator[tuple[Place, yaml.Node]]:
    yield place, node
    if isinstance(node, yaml.SequenceNode):
        for i, inner in enumerate(node.value):
            yield from _walk(inner, (*place, i))
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, inner in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise _Refused(Problem(place, line, "the name of a field is plain text"))
            if key.value in seen:
                raise _Refused(Problem((*place, key.value), line, "is given twice"))
            seen.add(key.value)
            yield from _walk(inner, (*place, key.value))


def _yaml_problem(error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or str(error)
    return Problem((), mark.line + 1 if mark else None, f"is no YAML: {what}")


def _type_problems(error: ValidationError, lines: _Lines) -> Iterator[Problem]:
    for detail in error.errors(include_url=False):
        place = tuple(part for part, next_ in _with_tags(detail["loc"], lines))
        text = _text(detail["type"], detail, _fields_at(detail["loc"][:-1]))
        yield Problem(place, lines.of(place), text)


def _with_tags(loc: tuple[str | int, ...], lines: _Lines) -> Iterator[tuple[str | int, bool]]:
    """The parts of pydantic's location that stand in the file: it also names the union's branch."""
    place: Place = ()
    for i, part in enumerate(loc):
        last = i == len(loc) - 1
        if lines.has((*place, part)) or (last and part not in _fault_names()):
            place = (*place, part)
            yield part, last


def _text(kind: str, detail: Any, fields: tuple[str, ...]) -> str:  # noqa: PLR0911 - one a kind
    got, context = detail.get("input"), detail.get("ctx", {})
    shown = json.dumps(got, default=str)[:80]
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(detail["loc"][-1]), fields, n=1)
        return "no such field; " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(fields)}")
    if kind == "missing":
        return "is missing"
    if kind == "union_tag_invalid":
        near = difflib.get_close_matches(str(context.get("tag")), _fault_names(), n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_fault_names())}"
        return f"{context.get('tag')!r} is no fault; {hint}"
    if kind == "union_tag_not_found":
        return f"says no fault; add fault: with one of {', '.join(_fault_names())}"
    if kind == "value_error":
        return str(context.get("error", detail["msg"]))
    if str(got).startswith(FILL_IN):
        return f"is still to be filled in{str(got).removeprefix(FILL_IN)}"
    message = str(detail["msg"])
    return f"got {shown}; {message[0].lower()}{message[1:]}"


def _fault_names() -> tuple[str, ...]:
    return tuple(fault.model_fields["fault"].default for fault in _faults())


def _faults() -> tuple[type[BaseModel], ...]:
    union, _ = get_args(AnyFault)
    return get_args(union)


def _fields_at(loc: tuple[str | int, ...]) -> tuple[str, ...]:
    """The fields of the mapping at a location."""
    faults = {fault.model_fields["fault"].default: fault for fault in _faults()}
    model: type[BaseModel] | None = Scenario
    for part in loc:
        if isinstance(part, int):
            continue
        if model is not None and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation)
        elif part in faults:
            model = faults[str(part)]
    return tuple(model.model_fields) if model else ()


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for inner in get_args(annotation) if (model := _model_in(inner)) is not None), None)


_CONFIGURATION = ("rabbitmq_conf", "advanced_config", "definitions")


def _beside(scenario: Scenario, folder: Path | None) -> Scenario:
    """The scenario with the names of configuration files made absolute."""
    given = {name: path for name in _CONFIGURATION if (path := getattr(scenario.topology, name)) is not None}
    if not given:
        return scenario
    return scenario.with_topology(**{name: ((folder or Path.cwd()) / path).resolve() for name, path in given.items()})


def _missing_files(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    for name in _CONFIGURATION:
        path = getattr(scenario.topology, name)
        if path is not None and not path.is_file():
            yield ("topology", name), f"there is no file {path}; it is looked for beside the fault file"
