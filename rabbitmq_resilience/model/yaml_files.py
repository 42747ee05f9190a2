"""Read YAML files that people write, such as fault files and cluster files; errors name the line and the field."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

FILE_BYTES_MAX = 1_000_000
DEPTH_MAX = 32
#: Numbers that YAML 1.1 reads otherwise than people do, and why (yaml.org/type/int.html).
_MISREAD = {
    re.compile(r"[-+]?0[0-7_]+"): "a number that begins with 0 in base 8; write it without that 0",
    re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"): "numbers with colons in base 60; write one number",
}
_NUMBERS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
#: The beginning of a value that a draft leaves for people to fill in.
FILL_IN = "FILL IN"

#: A place in a document: ``("schedule", 1, "at_s")``.
Location = tuple[str | int, ...]

#: The safe loader, in C if PyYAML was built with it: it constructs only plain values.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Problem:
    """One problem of a file: its place in the document, its line (None if unknown), and a text."""

    location: Location
    line: int | None
    text: str

    def __str__(self) -> str:
        where = [f"line {self.line}"] if self.line is not None else []
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.location).lstrip(".")
        place = ", ".join([*where, *([name] if name else [])])
        return f"{place}: {self.text}" if place else self.text


class FileRefusedError(Exception):
    """The file is refused. ``problems`` holds all problems that were found; the text lists them."""

    def __init__(self, source: str, found: list[Problem]) -> None:
        listed = "\n".join(f"  {problem}" for problem in found)
        count = f"{len(found)} problem{'s' if len(found) > 1 else ''}"
        super().__init__(f"{source}: {count}, nothing was started\n{listed}")
        self.problems = tuple(found)


class ProblemError(Exception):
    """One problem that stops the reading of the file."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


@dataclass(frozen=True)
class FileKind:
    """A kind of file. ``noun``: its name in messages. ``fields_at``: return the fields that a mapping at a location may
    have; the location is pydantic's ``loc``. ``tags``: the names of the branches of its unions, which pydantic adds to
    locations."""

    noun: str
    fields_at: Callable[[Location], tuple[str, ...]]
    tags: Collection[str] = ()
    #: The name for one of ``tags`` in messages.
    tagged: str = ""
    #: Whether messages repeat what people wrote: not if a secret may be in the file by mistake.
    echoes: bool = True
    #: By field, the only message for any problem in that field; it does not even name the parts of the field.
    fixed_messages: Mapping[str, str] = field(default_factory=dict)


class Lines:
    """The line of every location of a composed YAML document."""

    def __init__(self, root: yaml.Node | None) -> None:
        self._root = root

    def of(self, location: Location) -> int | None:
        """Return the line of a location, or of its innermost parent that the file has; None for an empty file."""
        node = self._root
        for part in location:
            inner = _child(node, part)
            node = inner if inner is not None else node
        return None if node is None else node.start_mark.line + 1

    def below(self, location: Location) -> Lines:
        """Return the lines of the part at a location, or empty ones if the file has no such part."""
        node = self._root
        for part in location:
            node = _child(node, part)
        return Lines(node)

    def has(self, location: Location) -> bool:
        return self.below(location)._root is not None


@dataclass(frozen=True)
class Document:
    """A file that passed the checks of its YAML: its plain values, and the line of each."""

    plain: dict[str, Any]
    lines: Lines


def read_text(path: Path, kind: FileKind) -> str:
    """Return the text of the file. Raise ProblemError if it cannot be read, is too large, or is not UTF-8."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ProblemError(Problem((), None, f"over {FILE_BYTES_MAX} bytes; no {kind.noun} is so large"))
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProblemError(Problem((), None, f"cannot be read: {error.strerror}")) from error
    except UnicodeDecodeError as error:
        raise ProblemError(Problem((), None, "is no UTF-8 text")) from error


def parsed(text: str, kind: FileKind) -> Document:
    """Return the document in ``text``.

    Raise ProblemError if it is no YAML, is nested too deep, uses an anchor, has a field twice, or a number that
    YAML reads otherwise than people: each of these hides a mistake."""
    try:
        _refuse_depth(text)
        loader = _Loader(text)
        root = loader.get_single_node()
        lines = Lines(root)
        _refuse_oddities(root, lines, kind)
        return Document(loader.construct_document(root), lines)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = str(getattr(error, "problem", None) or error)
        if isinstance(error, ComposerError | ConstructorError):  # these repeat parts of the file
            what = what.partition("'")[0].rstrip()
        raise ProblemError(Problem((), mark.line + 1 if mark else None, f"is no YAML: {what}")) from None
    except (TypeError, ValueError, RecursionError, OverflowError, KeyError, AttributeError) as error:
        raise ProblemError(Problem((), None, no_field_takes(error, kind))) from None


def no_field_takes(error: Exception, kind: FileKind) -> str:
    """Return the text for a value of a type that no field takes."""
    return "holds a value that no field takes" + (f": {error}" if kind.echoes else "")


def type_problems(error: ValidationError, lines: Lines, kind: FileKind) -> Iterator[Problem]:
    """Yield the problems that pydantic found in a document, in our words and with the lines of the file."""
    for detail in error.errors(include_url=False):
        location = tuple(_in_file(detail["loc"], lines, kind))
        text = _text(detail["type"], detail, kind)
        if location[:1] and location[0] in kind.fixed_messages and lines.has(location[:1]):
            location, text = location[:1], kind.fixed_messages[str(location[0])]
        yield Problem(location, lines.of(location), text)


def model_fields_at(
    root: type[BaseModel], loc: Location, tagged: Callable[[str], type[BaseModel] | None]
) -> tuple[str, ...]:
    """Return the fields of the model at the location ``loc`` within the model ``root``.

    ``tagged``: return the model of a branch of a union by its tag, or None."""
    model: type[BaseModel] | None = root
    for part in loc:
        if isinstance(part, int):
            continue
        if model is not None and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation)
        elif (branch := tagged(part)) is not None:
            model = branch
    return tuple(model.model_fields) if model else ()


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for inner in get_args(annotation) if (model := _model_in(inner)) is not None), None)


def _child(node: yaml.Node | None, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        inner: yaml.Node = node.value[part]
        return inner
    return None


def _refuse_depth(text: str) -> None:
    """Raise ProblemError if the text is nested too deep: composing it would use the stack for each level."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX + 1:
            line = event.start_mark.line + 1 if event.start_mark else None
            raise ProblemError(Problem((), line, f"is nested deeper than {DEPTH_MAX} levels"))


def _refuse_oddities(root: yaml.Node | None, lines: Lines, kind: FileKind) -> None:
    """Raise ProblemError for anchors, repeated fields, misread numbers, and fields whose name is no text."""
    if not isinstance(root, yaml.MappingNode):
        raise ProblemError(Problem((), 1, f"a {kind.noun} is a mapping that begins with 'version: 1'"))
    seen: set[int] = set()
    for location, node in _walk(root, ()):
        if len(location) > DEPTH_MAX:
            text = f"is nested deeper than {DEPTH_MAX} levels"
            raise ProblemError(Problem(location[:3], lines.of(location[:3]), text))
        if id(node) in seen:
            text = f"anchors are not used in {kind.noun}s; write it out"
            raise ProblemError(Problem(location, lines.of(location), text))
        misread = [why for how, why in _MISREAD.items() if node.tag in _NUMBERS and how.fullmatch(node.value)]
        if misread:
            text = (f"got {node.value}; " if kind.echoes else "") + f"YAML reads {misread[0]}, or a text in quotes"
            raise ProblemError(Problem(location, lines.of(location), text))
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
                raise ProblemError(Problem(location, line, "the name of a field is plain text"))
            if key.value in seen:
                raise ProblemError(Problem((*location, key.value), line, "is given twice"))
            seen.add(key.value)
            yield from _walk(inner, (*location, key.value))


def _in_file(loc: Location, lines: Lines, kind: FileKind) -> Iterator[str | int]:
    """Yield the parts of pydantic's location that are in the file: pydantic adds the branches of unions."""
    location: Location = ()
    for i, part in enumerate(loc):
        last = i == len(loc) - 1
        if lines.has((*location, part)) or (last and part not in kind.tags):
            location = (*location, part)
            yield part


def _text(what: str, detail: Any, kind: FileKind) -> str:  # noqa: PLR0911 - one for each kind of problem
    got, context = detail.get("input"), detail.get("ctx", {})
    if what == "extra_forbidden":
        fields = kind.fields_at(detail["loc"][:-1])
        near = difflib.get_close_matches(str(detail["loc"][-1]), fields, n=1)
        return "no such field; " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(fields)}")
    if what == "missing":
        return "is missing"
    if what == "union_tag_invalid":
        near = difflib.get_close_matches(str(context.get("tag")), kind.tags, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(kind.tags)}"
        return f"{context.get('tag')!r} is no {kind.tagged}; {hint}"
    if what == "too_short":
        return f"has {context['actual_length']} and needs {context['min_length']} at least"
    if what == "union_tag_not_found":
        if mistyped := difflib.get_close_matches(kind.tagged, [*map(str, got or ())], n=1):
            return f"no such field {mistyped[0]}; did you mean {kind.tagged}?"
        return f"says no {kind.tagged}; add {kind.tagged}: with one of {', '.join(kind.tags)}"
    if what == "value_error":
        return str(context.get("error", detail["msg"]))
    if str(got).startswith(FILL_IN):
        return f"is still to be filled in{str(got).removeprefix(FILL_IN)}"
    message = str(detail["msg"])
    shown = f"got {json.dumps(got, default=str)[:80]}; " if kind.echoes else ""
    return f"{shown}{message[0].lower()}{message[1:]}"
