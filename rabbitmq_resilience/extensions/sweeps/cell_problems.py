"""Find what is wrong with the cells of a sweep taken together: too many, alike, or not what is measured or paid for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rabbitmq_resilience.extensions.sweeps import perf_test_runs
from rabbitmq_resilience.extensions.sweeps.capacity import Capacity, number_of
from rabbitmq_resilience.extensions.sweeps.cells import Cell, not_measured
from rabbitmq_resilience.extensions.sweeps.comparison import words_of
from rabbitmq_resilience.extensions.sweeps.estimates import round_s
from rabbitmq_resilience.extensions.sweeps.price_file import machine_problems
from rabbitmq_resilience.extensions.sweeps.statistics import ALPHA, enough_runs, runs_needed
from rabbitmq_resilience.extensions.sweeps.sweep_model import CELLS_MAX, SweepSpec
from rabbitmq_resilience.model.yaml_files import Location


def cell_problems(spec: SweepSpec, cells: Sequence[Cell], driver: str | None) -> Iterator[tuple[Location, str]]:
    """Yield each problem of the cells as its place in the sweep file and a text."""
    yield from not_measured(cells)
    yield from _grid_problems(spec, cells)
    yield from _money_problems(spec, cells)
    yield from _perf_test_problems(cells, driver)


def _grid_problems(spec: SweepSpec, cells: Sequence[Cell]) -> Iterator[tuple[Location, str]]:
    if len(cells) > CELLS_MAX:
        yield ("axes",), f"{len(cells)} cells are too many; at most {CELLS_MAX}"
    if not any(cell.here for cell in cells):
        yield ("axes",), "no cell is left to play"
    seen: dict[str, Cell] = {}
    for cell in cells:
        played = f"{cell.on} {cell.scenario.model_copy(update={'title': ''}).model_dump_json()}"
        if played in seen:
            text = f"{seen[played].name} and {cell.name} are the same scenario"
            yield ("axes",), f"{text}; a value has no effect if the base has it, or if another one replaces it"
        seen.setdefault(played, cell)
    family = 0 if spec.compared is None else _comparisons(spec, cells)
    if family and not enough_runs(spec.repeats, spec.repeats, ALPHA / family):
        least = runs_needed(ALPHA / family)
        yield ("repeats",), f"{spec.repeats} can never show a difference among {family} comparisons; {least} can"
    if spec.budget_min is not None:
        took_s = round_s([cell for cell in cells if cell.here])
        if took_s > 60 * spec.budget_min:
            text = f"one round of {sum(c.here for c in cells)} cells takes about {took_s / 60:.0f} min"
            yield ("budget_min",), f"{text}; raise the budget, make the phases shorter, or leave out cells"


def _money_problems(spec: SweepSpec, cells: Sequence[Cell]) -> Iterator[tuple[Location, str]]:
    """Yield the problems by which a leaderboard, or a model of capacity, would not describe what is played."""
    if spec.leaderboard is not None:
        yield from machine_problems(spec.leaderboard, cells)
        if blind := [cell for cell in cells if "no_loss" not in cell.scenario.chosen_invariants]:
            yield ("leaderboard",), f"{blind[0].name} must demand no_loss: clusters that lose messages would be ranked"
    if spec.capacity is not None:
        yield from _mislabelled(spec.capacity, cells)


def _mislabelled(capacity: Capacity, cells: Sequence[Cell]) -> Iterator[tuple[Location, str]]:
    """Yield a problem for each cell whose label differs from the number of nodes or queues that is played."""
    for cell in cells:
        played = {capacity.nodes: len(cell.scenario.topology.nodes), capacity.queues: cell.scenario.generated.queues}
        for axis, number in played.items():
            stated = cell.labels.get(axis or "")
            if stated is not None and number_of(stated) != number:
                yield ("capacity",), f"{cell.name} plays {number} {'nodes' if axis == capacity.nodes else 'queues'}"


def _perf_test_problems(cells: Sequence[Cell], driver: str | None) -> Iterator[tuple[Location, str]]:
    asked = [cell for cell in cells if cell.perf_test]
    if asked and driver == "attached":
        yield ("measures",), "PerfTest is played only on clusters that the suite forms; leave out measures perf_test_*"
        return
    refused = {what: cell for cell in reversed(asked) if (what := perf_test_runs.refused(cell.scenario))}
    for what, cell in refused.items():
        yield ("measures",), f"PerfTest cannot be played with the load of {cell.name}: {what}"


def _comparisons(spec: SweepSpec, cells: Sequence[Cell]) -> int:
    """Return how many words all comparisons will have together."""
    here = Counter(cell.labels[str(spec.compared)] for cell in cells if cell.here)
    _, *others = here.values()
    return sum(words_of(count, len(spec.measures)) for count in others)
