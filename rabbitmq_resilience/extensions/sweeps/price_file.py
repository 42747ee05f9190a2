"""Read the price file of a sweep with a leaderboard, and check that it pays for the machines that are played."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from rabbitmq_resilience.extensions.sweeps.cells import Cell
from rabbitmq_resilience.extensions.sweeps.prices import Leaderboard, Prices
from rabbitmq_resilience.extensions.sweeps.sweep_model import SweepSpec
from rabbitmq_resilience.model.yaml_files import FileKind, Lines, Location, Problem, ProblemError, parsed, read_text

_KIND = FileKind("price file", lambda _: tuple(Prices.model_fields))


def priced(spec: SweepSpec, lines: Lines, path: Path) -> SweepSpec:
    """Return the sweep with the prices of its price file. Raise ProblemError if that file is refused."""
    board = spec.leaderboard
    if board is None or not isinstance(board.prices, str):
        return spec
    named = (path.parent / board.prices).resolve()
    at: Location = ("leaderboard", "prices")
    try:
        prices = Prices.model_validate(parsed(read_text(named, _KIND), _KIND).plain)
        board.check_nodes(prices)
    except ProblemError as error:
        raise ProblemError(Problem(at, lines.of(at), f"{named}: {error.problem}")) from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ProblemError(Problem(at, lines.of(at), f"{named}: {field}: {first['msg']}")) from None
    except ValueError as error:
        raise ProblemError(Problem(at, lines.of(at), str(error))) from None
    return spec.model_copy(update={"leaderboard": board.model_copy(update={"prices": prices})})


def machine_problems(board: Leaderboard, cells: Sequence[Cell]) -> Iterator[tuple[Location, str]]:
    """Yield a problem for each cluster that has more or fewer nodes than are paid for."""
    for label, nodes in board.clusters.items():
        mine = (cell for cell in cells if cell.labels[board.axis] == label)
        played = {len(cell.scenario.topology.nodes) for cell in mine} - {nodes.count}
        if played:
            at: Location = ("leaderboard", "clusters", label)
            yield at, f"{nodes.count} machines are paid for, but {min(played)} brokers are played"
