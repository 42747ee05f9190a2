"""The runs of a sweep as tests of pytest, and what becomes of each."""

from __future__ import annotations

import functools
import itertools
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience import side_by_side
from rabbitmq_resilience.nights import lines
from rabbitmq_resilience.nights.night_file import Header
from rabbitmq_resilience.options import driver as options_driver
from rabbitmq_resilience.options import folder, runs_folder
from rabbitmq_resilience.pages.wording import duration_text, verdict_word
from rabbitmq_resilience.play.examination import recorded_history
from rabbitmq_resilience.play.grounds import Ground, Grounds
from rabbitmq_resilience.play.judging import Result
from rabbitmq_resilience.record.run_directory import RunDirectory
from rabbitmq_resilience.scenarios import on_clusters
from rabbitmq_resilience.scenarios.model import Scenario
from rabbitmq_resilience.sweeps.beside import play_beside, takes_s
from rabbitmq_resilience.sweeps.cells import Cell, PlayedOn, rounds
from rabbitmq_resilience.sweeps.comparison_page import write_comparisons
from rabbitmq_resilience.sweeps.estimates import round_s
from rabbitmq_resilience.sweeps.measures import disturbed_by, measured, shortfall
from rabbitmq_resilience.sweeps.of_brokers import depth_over_time
from rabbitmq_resilience.sweeps.page import write_page
from rabbitmq_resilience.sweeps.results import Line, Of, Results, ResultsError, Status
from rabbitmq_resilience.sweeps.seen import Seen
from rabbitmq_resilience.sweeps.summary import PAGE
from rabbitmq_resilience.sweeps.sweep_file import Sweep
from rabbitmq_resilience.sweeps.table import write_tables
from rabbitmq_resilience.tools.perf_test import find_perf_test
from rabbitmq_resilience.workloads.perf_test import Window

_ONE_AT_A_TIME = "a sweep compares rates, which clusters side by side change: play it without pytest-xdist's -n"
#: What a thinned run takes at most: its page, its verdict, its scenario.
KEPT_MB = 2.0
#: Of a run whose cell is in the table: what is looked at by people, and what plays it again.
KEPT = frozenset({"report.html", "verdict.json", "fault.yaml", "configuration", "rules"})

#: What is told of all results together where each cell has a driver or a broker of its own.
VARIES = "as each cell says"


@dataclass(frozen=True)
class Turn:
    """One cell in one round."""

    round: int
    cell: Cell

    @property
    def name(self) -> str:
        return f"{self.cell.name} (round {self.round})"

    @property
    def key(self) -> tuple[int, tuple[tuple[str, str], ...]]:
        return self.round, tuple(sorted(self.cell.labels.items()))


class SweepInPlay:
    """A sweep whose results are in ``folder``; ``root``: of the checkout, whose commit is told."""

    def __init__(self, sweep: Sweep, folder: Path, root: Path) -> None:
        self._sweep = sweep
        self._root = root
        self._results = Results.read(folder)
        self._began_s: float | None = None
        self._left: list[Turn] = []
        self._runs = 0
        self._header: Header | None = None

    def turns(self, *, whole: bool) -> list[Turn]:
        """What was not played yet, in order. Raises ResultsError where results of another file are in the folder."""
        if self._results.of is not None and self._results.of.digest != self._sweep.digest:
            folder = self._results.folder
            other = "another sweep file, or the files that it names said something else"
            raise ResultsError(f"{folder} holds results of {other}; move it away to begin anew")
        spec = self._sweep.spec
        order = rounds(self._sweep.chosen(whole=whole), spec.repeats, seed=spec.seed)
        done = {line.key for line in self._results.lines if not line.is_played_again}
        turns = [Turn(*each) for each in order]
        self._runs = len(turns)
        self._left = [turn for turn in turns if turn.key not in done]
        return self._left

    def test(self, turn: Turn, *, checks_only: bool) -> Callable[..., None]:
        """What pytest calls. ``checks_only``: nothing is played, for which no broker need be there."""

        def plays(
            resilience_play: Callable[..., Any],
            resilience_tell: Callable[[str], None],
            request: pytest.FixtureRequest,
        ) -> None:
            if not checks_only:
                if side_by_side.is_worker(request.config):
                    pytest.fail(_ONE_AT_A_TIME, pytrace=False)
                self._results.require(self._of(request))
                self._require_same_broker(turn, request)
                if turn.cell.perf_test:
                    find_perf_test()  # what is missing is told before anything is played
                self._begin(resilience_tell)
            self._play(turn, resilience_play, request, checks_only=checks_only)

        return plays

    def _require_same_broker(self, turn: Turn, request: pytest.FixtureRequest) -> None:
        """Raises ResultsError where another version has come to bear the name that the cell asks for."""
        now = self._ground(turn.cell.on, request).opened.broker_version
        labels = dict(turn.cell.labels)
        before = {line.broker_version for line in self._results.lines if dict(line.labels) == labels and line.run}
        if before - {now}:
            was = ", ".join(sorted(before - {now}))
            raise ResultsError(
                f"{turn.cell.name} was played on RabbitMQ {was}, and this is {now}: results of two versions are never "
                f"mixed; move {self._results.folder} away to begin anew"
            )

    def _ground(self, on: PlayedOn, request: pytest.FixtureRequest) -> Ground:
        """Return what a cell is played on. Cells that name nothing are all played on one broker."""
        grounds: Grounds = request.getfixturevalue("resilience_grounds")
        if on != PlayedOn():
            return grounds.at(on.driver, on.broker)
        return grounds.of(*(cell.scenario for cell in self._sweep.cells if cell.on == on))

    def _begin(self, tell: Callable[[str], None]) -> None:
        """Says before the first run what there is to do; skips those for which the budget has no time any more."""
        budget_min = self._sweep.spec.budget_min
        if self._began_s is None:
            self._began_s = time.monotonic()
            by_round = itertools.groupby(self._left, key=lambda turn: turn.round)
            took_s = sum(round_s([turn.cell for turn in turns]) for _, turns in by_round)
            tell(
                f"{'SWEEP':<8} {self._sweep.spec.title}: {len(self._left)} runs, about {duration_text(took_s)}, "
                f"at most {KEPT_MB * len(self._left):.0f} MB: {self._results.folder / PAGE}"
            )
        elif budget_min is not None and time.monotonic() - self._began_s > 60 * budget_min:
            pytest.skip(f"the {budget_min:g} min of the sweep are over; the next session goes on")

    def _play(self, turn: Turn, play: Callable[..., Any], request: pytest.FixtureRequest, *, checks_only: bool) -> None:
        """The seed is the round's own: the same for every cell, so that they differ in nothing else."""
        scenario = turn.cell.scenario.model_copy(update={"seed": self._seed(turn)})
        beside = functools.cache(lambda: self._beside(turn, scenario, request))
        entered = False

        def enter(result: Result) -> None:
            nonlocal entered
            windows = beside()
            entered = True
            self._enter(turn, result, request, scenario, windows)

        try:
            if turn.round % 2 == 0 and not checks_only:
                beside()  # first in every other round
            if checks_only:
                play(scenario, driver=turn.cell.on.driver, broker=turn.cell.on.broker)
            else:
                play(scenario, each=enter, ground=self._ground(turn.cell.on, request))
        except Exception as error:
            if not entered:
                self._broken_off(turn, f"{type(error).__name__}: {error}", request, scenario)
            raise

    def _beside(self, turn: Turn, scenario: Scenario, request: pytest.FixtureRequest) -> Sequence[Window]:
        """What PerfTest measures on the cluster of the cell, where it is to be played beside it."""
        ground = self._ground(turn.cell.on, request)
        if not turn.cell.perf_test or not scenario.applies_to(ground.opened.broker_version):
            return ()
        tell: Callable[[str], None] = request.getfixturevalue("resilience_tell")
        tell(f"{'BESIDE':<8} PerfTest with the same load, about {duration_text(takes_s(scenario))}")
        topology, equipment = scenario.topology, scenario.equipment
        return play_beside(ground.clusters.acquire(topology, scenario.touched_links, equipment), scenario)

    def _seed(self, turn: Turn) -> int:
        """By that of the first cell's scenario: all cells of a round have the same one, also those of several files."""
        return (self._sweep.spec.seed + self._sweep.cells[0].scenario.seed + turn.round - 1) % 2**63

    def _enter(
        self,
        turn: Turn,
        result: Result,
        request: pytest.FixtureRequest,
        scenario: Scenario,
        windows: Sequence[Window],
    ) -> None:
        told = lines.played(result, scenario=request.node.nodeid)
        history = recorded_history(result.run, scenario)
        awaited = scenario.workload.confirms == "awaited"
        seen = Seen(history, self._sweep.spec.over, told, result.document, windows, awaited)
        status, why = status_of(seen)
        values = measured(seen, self._sweep.spec.measures) if status == "measured" else {}
        line = Line(
            round=turn.round,
            labels=dict(turn.cell.labels),
            status=status,
            verdict=str(result.verdict),
            broker_version=str(result.document.get("broker_version") or ""),
            depth=tuple(depth_over_time(seen)),
            why=why,
            values=values,
            run=result.run.name,
            seed=scenario.seed,
            took_s=told.duration_s,
            at=lines.moment(),
        )
        self._add(line, request)
        if status == "disturbed":
            request.getfixturevalue("resilience_tell")(f"{'AGAIN':<8} the next session plays it again: {why}")
        if result.as_expected:
            thin(result.run)

    def _broken_off(self, turn: Turn, why: str, request: pytest.FixtureRequest, scenario: Scenario) -> None:
        """It is played again by the next session."""
        line = Line(
            round=turn.round,
            labels=dict(turn.cell.labels),
            status="broken off",
            verdict="",
            broker_version="",
            why=why[:500],
            values={},
            run="",
            seed=scenario.seed,
            took_s=None,
            at=lines.moment(),
        )
        self._add(line, request)

    def _add(self, line: Line, request: pytest.FixtureRequest) -> None:
        self._results.begin(self._of(request), self._sweep.text)
        self._results.enter(line)
        write_tables(self._results, self._sweep)
        write_page(self._results, self._sweep, runs_folder(request.config))
        write_comparisons(self._results, self._sweep.spec, runs=self._runs)

    def _of(self, request: pytest.FixtureRequest) -> Of:
        if self._header is None:
            driver = options_driver(request.config)
            self._header = lines.header(
                self._root, name=None, machine_name=None, driver=driver, budget_min=None, at=lines.moment()
            )
        varies = any(cell.on != PlayedOn() for cell in self._sweep.cells)
        broker = None if varies else self._ground(PlayedOn(), request).opened.broker_version
        header = self._header
        cluster = folder(request.config, "cluster")
        return Of(
            title=self._sweep.spec.title,
            digest=self._sweep.digest,
            machine=header.machine.id,
            machine_told=f"{header.machine.cpus} cores ({header.machine.cpu_model}), {header.machine.memory_gb:g} GB",
            commit=lines.with_changes(header.suite_commit, self._root),
            suite_version=header.suite_version,
            broker_version=broker or VARIES,
            driver=VARIES if varies else header.driver,
            cluster="" if cluster is None else on_clusters.known(cluster).stated.cluster,
            began=header.night,
        )


def status_of(seen: Seen) -> tuple[Status, str]:
    """How a run counts, and why. One that broke a promise is never played again, so that its cell tells of it."""
    verdict, first = verdict_word(seen.document), lines.broke_first(seen.document)
    broke, others = first.summary if first else "", disturbed_by(seen)
    if others and verdict != "INVALID":
        return "disturbed", others
    if verdict == "UNKNOWN":
        return "unknown", broke
    if missed := others or shortfall(seen):
        return "not held", f"{broke}; besides, {missed}" if broke else missed
    return "measured", broke


def thin(run: RunDirectory) -> None:
    """Leave of a run what people look at, and what plays it again."""
    for path in run.path.iterdir():
        if path.name not in KEPT:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
