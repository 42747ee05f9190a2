"""Read the price file of a sweep with a leaderboard, and check that it pays for the machines that are played."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from rabbitmq_resilience.extensions.sweeps.cells import Cell
from rabbitmq_resilience.extensions.sweeps.prices import Leaderboard, Prices
from rabbitmq_resilience.extensions.sweeps.sweep_model import SweepSpec
from rabbitmq_resilience.model.yaml_files import (
    Document,
    FileKind,
    Lines,
    Location,
    Problem,
    ProblemError,
    no_field_takes,
    parsed,
    read_text,
    type_problems,
)

_KIND = FileKind("price file", lambda _: tuple(Prices.model_fields))


def priced(spec: SweepSpec, lines: Lines, path: Path) -> SweepSpec:
    """Return the sweep with the prices of its price file. Raise ProblemError if that file is refused."""
    board = spec.leaderboard
    if board is None or not isinstance(board.prices, str):
        return spec
    named = (path.parent / board.prices).resolve()
    at: Location = ("leaderboard", "prices")
    try:
        document = parsed(read_text(named, _KIND), _KIND)
        prices = _prices(document)
        board.check_nodes(prices)
    except ProblemError as error:
        raise ProblemError(Problem(at, lines.of(at), f"{named}: {error.problem}")) from None
    except ValueError as error:
        raise ProblemError(Problem(at, lines.of(at), str(error))) from None
    return spec.model_copy(update={"leaderboard": board.model_copy(update={"prices": prices})})


def _prices(document: Document) -> Prices:
    """Return the prices. Raise ProblemError with the line and the field of a mistake."""
    try:
        return Prices.model_validate_json(json.dumps(document.plain, allow_nan=False), strict=True)
    except ValidationError as error:
        raise ProblemError(next(type_problems(error, document.lines, _KIND))) from None
    except (TypeError, ValueError) as error:
        raise ProblemError(Problem((), None, no_field_takes(error, _KIND))) from None


def machine_problems(board: Leaderboard, cells: Sequence[Cell]) -> Iterator[tuple[Location, str]]:
    """Yield a problem for each cluster that has more or fewer nodes than are paid for."""
    for label, nodes in board.clusters.items():
        mine = (cell for cell in cells if cell.labels[board.axis] == label)
        played = {len(cell.scenario.topology.nodes) for cell in mine} - {nodes.count}
        if played:
            at: Location = ("leaderboard", "clusters", label)
            yield at, f"{nodes.count} machines are paid for, but {min(played)} brokers are played"
