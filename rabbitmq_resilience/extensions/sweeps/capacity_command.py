"""The command ``rabbitmq-resilience capacity``: compute what a load needs from the results of a sweep."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from rabbitmq_resilience.extensions.sweeps.capacity import CapacityRequest
from rabbitmq_resilience.extensions.sweeps.capacity_answer import capacity
from rabbitmq_resilience.extensions.sweeps.results import STATED, Results, ResultsError
from rabbitmq_resilience.extensions.sweeps.sweep_file import SweepFileError, stated_spec
from rabbitmq_resilience.extensions.sweeps.sweep_summary import TEMPLATES, WORDS
from rabbitmq_resilience.report.markdown_tables import markdown


class NothingToReportError(Exception):
    """No capacity can be computed from the folder. The text says why."""


def main(arguments: Sequence[str], *, program: str) -> int:
    """Print what the load needs. Return the exit status: 1 if nothing can be computed, else 0."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Compute what a load needs (nodes, cores, queues), from a sweep whose file has a section capacity.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", type=Path, help="the folder of results, such as reports/sweeps/messages_a_core")
    parser.add_argument("--per-s", type=float, help="messages a second that are wanted; by default as the sweep says")
    parser.add_argument("--cores-a-node", type=float, help="cores that a node has; by default as the sweep says")
    parser.add_argument(
        "--at", action="append", default=[], metavar="AXIS=NUMBER", help="likewise, such as connections=13000"
    )
    given = parser.parse_args(list(arguments))
    try:
        print(_markdown(given))
    except (NothingToReportError, ResultsError, SweepFileError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _markdown(given: argparse.Namespace) -> str:
    results = Results.read(given.folder)
    if results.of is None:
        raise NothingToReportError(f"{given.folder} holds no results of a sweep")
    spec = stated_spec(given.folder / STATED)
    if spec.capacity is None:
        raise NothingToReportError(f"{given.folder / STATED} has no section capacity: see docs/sweeps.md")
    found = capacity(results, spec, wanted=_wanted(given, spec.capacity.wanted))
    if isinstance(found, str):
        raise NothingToReportError(found)
    return markdown(TEMPLATES / "capacity.md.j2", capacity=found, **WORDS)


def _wanted(given: argparse.Namespace, stated: CapacityRequest) -> CapacityRequest:
    numbers = list(map(_number, given.at))
    if twice := [axis for axis, count in Counter(axis for axis, _ in numbers).items() if count > 1]:
        raise NothingToReportError(f"--at {twice[0]}: is given twice")
    at = {**stated.at, **dict(numbers)}
    if unknown := sorted(at.keys() - stated.at.keys()):
        raise NothingToReportError(f"--at {unknown[0]}: there is no such axis; there are {', '.join(stated.at)}")
    asked = {**stated.model_dump(), "at": at}
    asked |= {name: value for name in ("per_s", "cores_a_node") if (value := getattr(given, name)) is not None}
    try:
        return CapacityRequest.model_validate(asked)
    except ValidationError as error:
        first = error.errors()[0]
        raise NothingToReportError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _number(text: str) -> tuple[str, float]:
    axis, _, number = text.partition("=")
    try:
        return axis, float(number)
    except ValueError:
        raise NothingToReportError(f"--at {text}: write AXIS=NUMBER, such as connections=13000") from None
