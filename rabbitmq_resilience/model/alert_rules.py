"""Read and check rule files of Prometheus, and make the copies for a run's server.

A copy has one more rule at the end of each group. It records a series at each evaluation. This distinguishes the time
without evaluations of the group from the time in which no alert fired. Source: Prometheus, "Alerting rules",
"Recording rules", "Configuration".
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

#: The series that each group records at its evaluation, and the label with the group's number.
EVALUATED, GROUP_LABEL = "resilience:rule_group:evaluated", "resilience_group"

#: How often the server evaluates groups that state no interval.
EVALUATED_EVERY_S = 1.0

_PROMTOOL_WITHIN_S = 30
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_DURATION = r"^(?:(?:\d+(?:ms|[smhdwy]))+|0)$"

Duration = Annotated[str, Field(pattern=_DURATION)]
Text = Annotated[str, Field(min_length=1)]


class RulesError(Exception):
    """A rule file is refused. The text has one line for each problem, with file and line."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AlertRule(_Part):
    """One alerting or recording rule of a group."""

    alert: Text | None = None
    record: Text | None = None
    expr: str | int | float
    for_: Duration = Field("0s", alias="for")
    keep_firing_for: Duration = "0s"
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


class AlertGroup(_Part):
    """One group of rules, which the server evaluates together."""

    name: Text
    interval: Duration | None = None
    query_offset: Duration | None = None
    limit: int = 0
    labels: Mapping[str, str] | None = None
    partial_response_strategy: str | None = None
    rules: Sequence[AlertRule] | None = None

    @property
    def every_s(self) -> float:
        """Return the evaluation interval in seconds."""
        return duration_s(self.interval) if self.interval else EVALUATED_EVERY_S


class _RulesFile(_Part):
    groups: Sequence[AlertGroup]


@dataclass(frozen=True)
class RuleFile:
    """A rule file that was read. ``plain`` is its content as YAML values."""

    path: Path
    groups: Sequence[AlertGroup]
    plain: Any


def duration_s(text: str) -> float:
    """Return a duration in seconds: 90 for ``1m30s``."""
    return sum(int(number) * _UNITS_S[unit] for number, unit in re.findall(r"(\d+)(ms|[smhdwy])", text))


def read_rules(path: Path, *, promtool: Path | None = None) -> RuleFile:
    """Read and check a rule file. If ``promtool`` is given, it checks the expressions too. Raise RulesError if the file
    cannot be read or is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
        root, plain = yaml.compose(text, yaml.SafeLoader), yaml.safe_load(text)
    except OSError as error:
        raise RulesError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        raise RulesError(f"{_at(path, mark and mark.line + 1)}: is no YAML: {error}") from None
    if not isinstance(plain, dict):
        raise RulesError(f"{_at(path, 1)}: a rule file is a mapping that begins with 'groups:'")
    try:
        groups = _RulesFile.model_validate(plain).groups
    except ValidationError as error:
        lines = (f"{_at(path, _line(root, one['loc']))}: {_text(one)}" for one in error.errors(include_url=False))
        raise RulesError("\n".join(lines)) from None
    found = RuleFile(path, groups, plain)
    problems = [f"{_at(path, _line(root, place))}: {what}" for place, what in _problems(groups)]
    if not problems and promtool is not None:
        problems = list(_judged_by(promtool, path))
    if problems:
        raise RulesError("\n".join(problems))
    return found


def promtool_next_to(server: Path) -> Path | None:
    """Return the program promtool, which checks rule files, from the folder of the server; None if it is not there."""
    program = server.resolve().with_name("promtool")
    return program if program.is_file() else None


def given_to_server(files: Sequence[RuleFile]) -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each file's copy. Groups are numbered through all files."""
    number = 0
    for i, file in enumerate(files):
        plain = json.loads(json.dumps(file.plain, default=str))
        for group in plain["groups"]:
            record = {"record": EVALUATED, "expr": "vector(1)", "labels": {GROUP_LABEL: str(number)}}
            group["rules"] = [*(group.get("rules") or []), record]
            number += 1
        yield f"rules-{i}.yml", json.dumps(plain, indent=1)  # JSON is YAML


def _problems(groups: Sequence[AlertGroup]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    names: set[str] = set()
    for i, group in enumerate(groups):
        if group.name in names:
            yield ("groups", i, "name"), f"there is a group {group.name!r} already; give it another name"
        names.add(group.name)
        for j, rule in enumerate(group.rules or ()):
            if (rule.alert is None) == (rule.record is None):
                yield ("groups", i, "rules", j), "a rule needs either alert: or record:, exactly one of them"


def _judged_by(promtool: Path, path: Path) -> Iterator[str]:
    checked = subprocess.run(
        [promtool, "check", "rules", path.resolve()],
        capture_output=True,
        text=True,
        timeout=_PROMTOOL_WITHIN_S,
        check=False,
    )
    if checked.returncode:
        lines = (line.strip() for line in checked.stderr.splitlines())
        messages = [line for line in lines if line and not line.endswith("FAILED:")] or ["promtool refuses this file"]
        for line in messages:
            mark = re.search(r":\s*(\d+):(\d+): (.*)", line)
            yield f"{_at(path, int(mark[1]))}: {mark[3]}" if mark else f"{path}: {line}"


def _text(detail: Any) -> str:
    field = ".".join(str(part) for part in detail["loc"] if not isinstance(part, int))
    if detail["type"] == "extra_forbidden":
        return f"{field}: no such field"
    if detail["type"] == "missing":
        return f"{field}: is missing"
    if detail["type"] == "string_pattern_mismatch":
        return f"{field}: {detail['input']!r} is no duration; write a duration as 30s or 1m30s"
    return f"{field}: got {detail['input']!r}; {detail['msg'][0].lower()}{detail['msg'][1:]}"


def _at(path: Path, line: int | None) -> str:
    return f"{path}, line {line}" if line else str(path)


def _line(root: yaml.Node | None, location: Sequence[str | int]) -> int | None:
    """Return the line of the innermost node on the path ``location`` that the file has."""
    node = root
    for part in location:
        inner: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            inner = next((value for key, value in node.value if key.value == part), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            inner = node.value[part]
        if inner is None:
            break
        node = inner
    return None if node is None else node.start_mark.line + 1
