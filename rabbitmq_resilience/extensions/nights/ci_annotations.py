"""Write what broke as annotations that GitHub Actions shows next to the files. GitLab has none: it reads JUnit XML.

The format is from GitHub's documentation, "Workflow commands for GitHub Actions".
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from rabbitmq_resilience.extensions.nights.night_file import Night
from rabbitmq_resilience.extensions.nights.troubles import FailedScenario, troubles
from rabbitmq_resilience.runner.run_line import RunLine

GITHUB, NONE = "github", "none"
#: The checkout of the repository; GitHub's paths are relative to it.
_WORKSPACE = "GITHUB_WORKSPACE"


def wanted(given: str | None) -> bool:
    """Return whether annotations are wanted: by the option if it is given, else on GitHub Actions."""
    return given == GITHUB if given is not None else os.environ.get("GITHUB_ACTIONS") == "true"


def of(night: Night, places: Mapping[str, tuple[str, int | None]], *, root: Path) -> Iterator[str]:
    """Yield a line for each scenario that broke, or that came to no verdict.

    ``places``: {scenario: (file below ``root``, line from 0)}. The line is None for a fault file; then it is that of
    the invariant that broke."""
    for trouble in troubles(night):
        name, line = places.get(trouble.scenario, (None, None))
        file = None if name is None else root / name
        if file is not None and line is None:
            line = _line_of_invariant(file, trouble.run)
        yield _annotation(trouble, file, line)


def _annotation(trouble: FailedScenario, file: Path | None, line: int | None) -> str:
    kind = "error" if trouble.broke else "warning"
    where = {"file": _in_workspace(file), "line": (line or 0) + 1} if file is not None else {}
    fields = ",".join(
        f"{name}={_escaped(str(value), ':,')}" for name, value in {**where, "title": trouble.head}.items()
    )
    again = f"\nagain: {trouble.run.rerun}" if trouble.run is not None else ""
    return f"::{kind} {fields}::{_escaped(trouble.why + again)}"


def _in_workspace(file: Path) -> Path:
    workspace = Path(os.environ.get(_WORKSPACE) or Path.cwd()).resolve()
    return file.resolve().relative_to(workspace) if file.resolve().is_relative_to(workspace) else file


def _line_of_invariant(file: Path, run: RunLine | None) -> int | None:
    """Return the line, from 0, of the invariant that broke; None if it is not found."""
    if run is None or run.broke_first is None or file.suffix not in (".yaml", ".yml"):
        return None
    try:
        loader = yaml.SafeLoader(file.read_text(encoding="utf-8"))
        root = loader.get_single_node()
    except (OSError, ValueError, yaml.YAMLError):
        return None
    for _, value in _pairs(root, "invariants"):
        for key, _ in _pairs(value, run.broke_first.invariant):
            return int(key.start_mark.line)
    return None


def _pairs(node: yaml.Node | None, name: str) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    yield from ((key, value) for key, value in pairs if key.value == name)


def _escaped(text: str, more: str = "") -> str:
    """Return the text with special characters encoded as GitHub's runner expects.

    So no text can end a command or begin another one."""
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
