"""Read sweep files. A mistake in the file or in any cell is reported with line and field before anything is started."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rabbitmq_resilience.extensions.sweeps.cell_problems import cell_problems
from rabbitmq_resilience.extensions.sweeps.cells import Cell, Choice, PlayedOn, changed, choices
from rabbitmq_resilience.extensions.sweeps.measures import needs_perf_test
from rabbitmq_resilience.extensions.sweeps.price_file import priced
from rabbitmq_resilience.extensions.sweeps.sweep_model import BASE, ON, Axis, SweepSpec
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.yaml_files import (
    Document,
    FileKind,
    FileRefusedError,
    Lines,
    Location,
    Problem,
    ProblemError,
    model_fields_at,
    parsed,
    read_text,
    type_problems,
)
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.named_files import with_digests
from rabbitmq_resilience.scenario.validation import KIND, FaultFileError, ValidatedScenario
from rabbitmq_resilience.sut.drivers import FORMING

TITLE_CHARACTERS_MAX = 200


class SweepFileError(FileRefusedError):
    """The sweep file is refused."""


@dataclass(frozen=True)
class Sweep:
    """A sweep file that was read. ``cells``: all cells, also those of the whole grid. ``text``: the file's text."""

    spec: SweepSpec
    cells: tuple[Cell, ...]
    text: str

    def chosen(self, *, whole: bool) -> list[Cell]:
        """Return the cells to be played: all if ``whole``, else those of ``here``."""
        return [cell for cell in self.cells if whole or cell.here]

    @property
    def is_paced(self) -> bool:
        """Return whether a load states a rate, which its publishers then do not exceed."""
        return any(cell.scenario.generated.rate_per_s is not None for cell in self.cells)

    @property
    def digest(self) -> str:
        """Return a hash of the file, of each cell with the files that it names, and of the prices. Raise OSError."""
        prices = "" if self.spec.leaderboard is None else self.spec.leaderboard.model_dump_json()
        cells = "".join(with_digests(cell.scenario).model_dump_json() for cell in self.cells)
        return hashlib.sha256(f"{self.text}{cells}{prices}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class _Base:
    """The scenario from which cells are made. ``at``: its place in the sweep file; None if it has its own file."""

    document: Document
    at: Location | None
    folder: Path
    source: str


def load(path: Path, *, driver: str | None = "local") -> Sweep:
    """Parse and validate a sweep file with every cell, for a driver. Raise SweepFileError, and no other error."""
    path = Path(path)
    spec, document, text = _read(path)
    try:
        spec = priced(spec, document.lines, path)
        bases = _Bases(spec, document, path)
    except ProblemError as error:
        raise SweepFileError(str(path), [error.problem]) from None
    found = list(_axis_problems(spec, driver))
    if found:
        raise SweepFileError(str(path), [Problem(at, document.lines.of(at), what) for at, what in found])
    cells, problems = [], []
    for choice in choices(spec):
        try:
            on = _played_on(spec, choice, document.lines, driver)
            of_driver = on.driver or driver
            scenario = _scenario(spec, bases.of(choice), choice, document.lines, of_driver)
            cells.append(Cell(choice.labels, scenario, choice.here, on, needs_perf_test(spec.measures)))
        except ProblemError as error:
            problems += [error.problem] if error.problem not in problems else []
        except FaultFileError as error:
            problems += [p for p in error.problems if p not in problems]
    if not problems:  # all cells are there
        problems = [Problem(at, document.lines.of(at), what) for at, what in cell_problems(spec, cells, driver)]
    if problems:
        raise SweepFileError(str(path), problems)
    return Sweep(spec, tuple(cells), text)


def stated_spec(path: Path) -> SweepSpec:
    """Return what a sweep file states, without its cells. Raise SweepFileError, and no other error."""
    return _read(path)[0]


def _read(path: Path) -> tuple[SweepSpec, Document, str]:
    document = Document({}, Lines(None))
    try:
        text = read_text(path, _KIND)
        document = parsed(text, _KIND)
        spec = SweepSpec.model_validate_json(json.dumps(document.plain, allow_nan=False), strict=True)
    except ProblemError as error:
        raise SweepFileError(str(path), [error.problem]) from None
    except ValidationError as error:
        raise SweepFileError(str(path), list(type_problems(error, document.lines, _KIND))) from None
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise SweepFileError(str(path), [Problem((), None, f"holds a value that no field takes: {error}")]) from None
    return spec, document, text


class _Bases:
    """The scenarios from which cells are made. Each file is read once."""

    def __init__(self, spec: SweepSpec, document: Document, path: Path) -> None:
        """Raise ProblemError if the sweep's own base cannot be read."""
        self._lines = document.lines
        self._path = path
        self._read: dict[str, _Base] = {}
        self._own = None if spec.base is None else self._of(spec.base, (BASE,))

    def of(self, choice: Choice) -> _Base:
        """Return the base of a cell. Raise ProblemError if it cannot be read."""
        if BASE not in choice.changes:
            assert self._own is not None, "a sweep without a base has one for each label"
            return self._own
        number, stated = choice.changes[BASE]
        if not isinstance(stated, (str, dict)):
            at: Location = ("axes", number)
            raise ProblemError(Problem(at, self._lines.of(at), "base: write a scenario, or the path of a fault file"))
        return self._of(stated, ("axes", number, "settings", choice.chosen[number], BASE))

    def _of(self, stated: dict[str, Any] | str, at: Location) -> _Base:
        if not isinstance(stated, str):
            lines = self._lines.below(at)
            return _Base(Document(dict(stated), lines), at, self._path.parent, str(self._path))
        if stated not in self._read:
            named = (self._path.parent / stated).resolve()
            try:
                found = parsed(read_text(named, KIND), KIND)
            except ProblemError as error:
                raise ProblemError(Problem(at, self._lines.of(at), f"{named}: {error.problem}")) from None
            self._read[stated] = _Base(found, None, named.parent, str(named))
        return self._read[stated]


def _played_on(spec: SweepSpec, choice: Choice, lines: Lines, driver: str | None) -> PlayedOn:
    """Return what a cell is played on. Raise ProblemError if that cannot be chosen."""
    stated = {path: choice.changes[path] for path in ON if path in choice.changes}
    for path, (number, value) in stated.items():
        what = ""
        if driver == "attached":
            what = "the driver and the broker of an attached cluster cannot be chosen"
        elif not isinstance(value, str):
            what = f"{json.dumps(value)[:60]} is no text; put it into quotes"
        elif path == "on.driver" and value not in FORMING:
            what = f"{value!r} is no driver; there are {', '.join(FORMING)}"
        if what:
            at = _place(spec.axes[number], number, choice.chosen[number], path)
            raise ProblemError(Problem(at, lines.of(at), f"{path}: {what}"))
    return PlayedOn(*(stated[path][1] if path in stated else None for path in ON))


def _axis_problems(spec: SweepSpec, driver: str | None) -> Iterator[tuple[Location, str]]:
    """Yield a problem for each field that two axes state, also one within the other, or that no axis may state."""
    stated: dict[str, int] = {}
    for number, axis in enumerate(spec.axes):
        mine = sorted({path for setting in axis.choices.values() for path in setting})
        for path in mine:
            location: Location = ("axes", number, "field" if axis.field else "settings")
            if path in ("title", "version", "seed"):
                yield location, f"{path} is stated for the whole sweep; a cell cannot have its own"
            if spec.leaderboard is not None and f"{path}.".startswith("topology.broker_size."):
                yield location, f"{path}: the machines that the leaderboard pays for determine the size of brokers"
            if driver == "attached" and path.partition(".")[0] == "topology":
                yield location, f"{path}: an attached cluster has one topology"
            for other, whose in stated.items():
                if path == other or path.startswith(f"{other}.") or other.startswith(f"{path}."):
                    states = f"axis {spec.axes[whose].called!r} states {other}"
                    yield location, f"{path} contradicts another axis: {states}; put both into the settings of one"
        stated |= dict.fromkeys(mine, number)


def _scenario(spec: SweepSpec, base: _Base, choice: Choice, lines: Lines, driver: str | None) -> ValidatedScenario:
    """Make the scenario of a cell.

    Raise FaultFileError; its problems have lines and fields of the sweep file if their cause is there."""
    changes = _of_scenario(spec, choice)
    name = ", ".join(f"{axis} {label}" for axis, label in choice.labels.items())
    try:
        plain = changed(_with_topology(base, changes), changes)
    except LookupError as error:
        path = str(error.args[0])
        problem = _problem(Problem(tuple(path.split(".")), None, f"the base has no {path}"), base, choice, lines, spec)
        raise FaultFileError(base.source, [problem]) from None
    try:
        return _stated(plain, f"{spec.title}: {name}", base, driver)
    except FaultFileError as error:
        found = [_problem(problem, base, choice, lines, spec) for problem in error.problems]
        raise FaultFileError(base.source, found) from None


def _of_scenario(spec: SweepSpec, choice: Choice) -> dict[str, Any]:
    """Return what a cell changes in its base, with the size of its brokers if there is a leaderboard."""
    changes = {path: value for path, (_, value) in choice.changes.items() if path not in (BASE, *ON)}
    board = spec.leaderboard
    if board is not None:
        price = board.known_prices().nodes[board.clusters[choice.labels[board.axis]].node]
        changes["topology.broker_size"] = price.size(board.scale).model_dump()
    return changes


def _stated(plain: dict[str, Any], title: str, base: _Base, driver: str | None) -> ValidatedScenario:
    document = Document({**plain, "title": title[:TITLE_CHARACTERS_MAX]}, base.document.lines)
    return fault_file.stated(document, source=base.source, folder=base.folder, driver=driver)


def _with_topology(base: _Base, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base; a named topology is replaced by its fields if the cell changes one of them."""
    plain, named = base.document.plain, changes.get("topology", base.document.plain.get("topology"))
    if not isinstance(named, str) or not any(path.startswith("topology.") for path in changes):
        return plain
    try:
        in_file = named.endswith((".yaml", ".yml"))
        topology = (
            topology_catalogue.read((base.folder / named).resolve()) if in_file else topology_catalogue.load(named)
        )
    except (topology_catalogue.UnknownTopologyError, topology_catalogue.BadTopologyError):
        return plain  # the topology is refused later, with its name
    return {**plain, "topology": topology.model_dump(mode="json", exclude_none=True)}


def _problem(problem: Problem, base: _Base, choice: Choice, lines: Lines, spec: SweepSpec) -> Problem:
    """Return a cell's problem with the place of its cause in the sweep file.

    That is the axis that states the field, the axis without which the cell would be valid, or the base."""
    of_cell = ".".join(map(str, problem.location))
    if spec.leaderboard is not None and of_cell.startswith("topology.broker_size"):
        return Problem(("leaderboard",), lines.of(("leaderboard",)), f"{of_cell}: {problem.text}")
    for path, (number, value) in choice.changes.items():
        if of_cell == path or of_cell.startswith(f"{path}."):
            at = _place(spec.axes[number], number, choice.chosen[number], path)
            within = f" ({of_cell})" if of_cell != path else ""
            return Problem(at, lines.of(at), f"{path}: {json.dumps(value)[:60]}{within}: {problem.text}")
    near = {number for path, (number, _) in choice.changes.items() if not of_cell or path.startswith(f"{of_cell}.")}
    blamed = [number for number in sorted(near) if not _is_wrong_without(spec, number, problem, base, choice)]
    if blamed:
        number = blamed[-1]
        at = _place(spec.axes[number], number, choice.chosen[number], None)
        return Problem(at, lines.of(at), f"{spec.axes[number].called} {choice.chosen[number]}: {problem.text}")
    if base.at is not None:
        return Problem((*base.at, *problem.location), problem.line or lines.of(base.at), problem.text)
    return Problem(("base",), lines.of(("base",)), f"{base.source}: {problem}")


def _is_wrong_without(spec: SweepSpec, number: int, problem: Problem, base: _Base, choice: Choice) -> bool:
    """Return whether the cell has the problem also without the changes of one axis."""
    stated = {path for path, (whose, _) in choice.changes.items() if whose == number}
    changes = {path: value for path, value in _of_scenario(spec, choice).items() if path not in stated}
    try:
        _stated(changed(_with_topology(base, changes), changes), "-", base, "local")
    except (FaultFileError, LookupError) as error:
        return any(problem.text == other.text for other in getattr(error, "problems", ()))
    return False


def _place(axis: Axis, number: int, label: str, path: str | None) -> Location:
    if axis.settings is not None:
        return ("axes", number, "settings", label, *([path] if path else []))
    return ("axes", number, "values", list(axis.choices).index(label))


def _fields_at(loc: Location) -> tuple[str, ...]:
    return model_fields_at(SweepSpec, loc, lambda _: None)


_KIND = FileKind("sweep file", _fields_at)
