"""Play the runs of a sweep as tests of pytest, and enter the result of each."""

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

from rabbitmq_resilience.extensions.attached import on_clusters
from rabbitmq_resilience.extensions.nights import lines
from rabbitmq_resilience.extensions.nights.night_file import Header
from rabbitmq_resilience.extensions.setup.perf_test import find_perf_test
from rabbitmq_resilience.extensions.sweeps.cells import Cell, PlayedOn, rounds
from rabbitmq_resilience.extensions.sweeps.comparison_page import write_comparisons
from rabbitmq_resilience.extensions.sweeps.estimates import round_s
from rabbitmq_resilience.extensions.sweeps.measures import disturbed_by, measured, shortfall
from rabbitmq_resilience.extensions.sweeps.of_brokers import depth_over_time
from rabbitmq_resilience.extensions.sweeps.perf_test_runs import play_perf_test, takes_s
from rabbitmq_resilience.extensions.sweeps.results import Of, ResultRow, Results, ResultsError, Status
from rabbitmq_resilience.extensions.sweeps.seen import JudgedRun
from rabbitmq_resilience.extensions.sweeps.sweep_file import Sweep
from rabbitmq_resilience.extensions.sweeps.sweep_page import write_page
from rabbitmq_resilience.extensions.sweeps.sweep_summary import PAGE
from rabbitmq_resilience.extensions.sweeps.table import write_tables
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.plugin import sessions, side_by_side
from rabbitmq_resilience.plugin.options import driver as options_driver
from rabbitmq_resilience.plugin.options import folder, runs_folder
from rabbitmq_resilience.report.wording import duration_text, verdict_word
from rabbitmq_resilience.runner import run_line
from rabbitmq_resilience.runner.environments import Environment, Environments
from rabbitmq_resilience.runner.examination import recorded_history
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.workload.perf_test_options import Window

_ONE_AT_A_TIME = (
    "a sweep compares rates, and clusters side by side would change them: play it without pytest-xdist's -n"
)
#: The most disk space of a thinned run, with its page, its verdict and its scenario.
KEPT_MB = 2.0
#: The files of a run that are kept when its cell is in the table: those that people read, and those to play it again.
KEPT = frozenset({"report.html", "verdict.json", "fault.yaml", "configuration", "rules"})

#: What is shown as driver and broker of all results if each cell has its own.
VARIES = "as each cell says"


@dataclass(frozen=True)
class CellTurn:
    """One cell in one round: one run of the sweep."""

    round: int
    cell: Cell

    @property
    def name(self) -> str:
        return f"{self.cell.name} (round {self.round})"

    @property
    def key(self) -> tuple[int, tuple[tuple[str, str], ...]]:
        return self.round, tuple(sorted(self.cell.labels.items()))


class SweepInPlay:
    """A sweep that is played. Its results are in ``folder``; ``root``: the checkout whose commit is recorded."""

    def __init__(self, sweep: Sweep, folder: Path, root: Path) -> None:
        self._sweep = sweep
        self._root = root
        self._results = Results.read(folder)
        self._began_s: float | None = None
        self._left: list[CellTurn] = []
        self._entered: list[ResultRow] = []
        self._header: Header | None = None

    def turns(self, *, whole: bool) -> list[CellTurn]:
        """Return the turns that were not played yet, in order.

        Raise ResultsError if the folder holds results of another sweep file."""
        if self._results.of is not None and self._results.of.digest != self._sweep.digest:
            folder = self._results.folder
            other = "another sweep file, or the files that it names had other contents"
            raise ResultsError(f"{folder} holds results of {other}; move the folder away to begin again")
        spec = self._sweep.spec
        order = rounds(self._sweep.chosen(whole=whole), spec.repeats, seed=spec.seed)
        done = {line.key for line in self._results.lines if not line.is_played_again}
        turns = [CellTurn(*each) for each in order]
        self._left = [turn for turn in turns if turn.key not in done]
        return self._left

    def test(self, turn: CellTurn, *, checks_only: bool) -> Callable[..., None]:
        """Return the test function of a turn. ``checks_only``: nothing is played, so that no broker is needed."""

        def plays(
            resilience_play: Callable[..., Any],
            resilience_show: Callable[[str], None],
            request: pytest.FixtureRequest,
        ) -> None:
            if not checks_only:
                if side_by_side.is_worker(request.config):
                    pytest.fail(_ONE_AT_A_TIME, pytrace=False)
                self._results.require(self._of(request))
                self._require_same_broker(turn, request)
                if turn.cell.perf_test:
                    find_perf_test()  # a missing PerfTest is reported before anything is played
                self._begin(resilience_show)
            self._play(turn, resilience_play, request, checks_only=checks_only)

        return plays

    def _require_same_broker(self, turn: CellTurn, request: pytest.FixtureRequest) -> None:
        """Raise ResultsError if the cell was played on another version under the same name of a broker."""
        now = self._ground(turn.cell.on, request).opened.broker_version
        labels = dict(turn.cell.labels)
        before = {line.broker_version for line in self._results.lines if dict(line.labels) == labels and line.run}
        if before - {now}:
            was = ", ".join(sorted(before - {now}))
            raise ResultsError(
                f"{turn.cell.name} was played on RabbitMQ {was}, and this is {now}: results of two versions are never "
                f"mixed; move {self._results.folder} away to begin again"
            )

    def _ground(self, on: PlayedOn, request: pytest.FixtureRequest) -> Environment:
        """Return the testbed of a cell. Cells that name neither a driver nor a broker are all played on one broker."""
        grounds: Environments = request.getfixturevalue("resilience_grounds")
        if on != PlayedOn():
            return grounds.at(on.driver, on.broker)
        return grounds.of(*(cell.scenario for cell in self._sweep.cells if cell.on == on))

    def _begin(self, show: Callable[[str], None]) -> None:
        """Announce the sweep before its first run. Skip a run if the time budget is used up."""
        budget_min = self._sweep.spec.budget_min
        if self._began_s is None:
            self._began_s = time.monotonic()
            by_round = itertools.groupby(self._left, key=lambda turn: turn.round)
            took_s = sum(round_s([turn.cell for turn in turns]) for _, turns in by_round)
            show(
                f"{'SWEEP':<8} {self._sweep.spec.title}: {len(self._left)} runs, about {duration_text(took_s)}, "
                f"at most {KEPT_MB * len(self._left):.0f} MB: {self._results.folder / PAGE}"
            )
        elif budget_min is not None and time.monotonic() - self._began_s > 60 * budget_min:
            pytest.skip(f"the sweep's budget of {budget_min:g} min is used up; the next session goes on")

    def _play(
        self, turn: CellTurn, play: Callable[..., Any], request: pytest.FixtureRequest, *, checks_only: bool
    ) -> None:
        """Play one run, and PerfTest before it in even rounds, after it in odd ones.

        Each round has its own seed, the same for every cell, so that cells differ only in what the axes state."""
        scenario = turn.cell.scenario.model_copy(update={"seed": self._seed(turn)})
        perf_test = functools.cache(lambda: self._perf_test(turn, scenario, request))
        entered = False

        def enter(result: Result) -> None:
            nonlocal entered
            windows = perf_test()
            entered = True
            self._enter(turn, result, request, scenario, windows)

        try:
            if turn.round % 2 == 0 and not checks_only:
                perf_test()
            if checks_only:
                play(scenario, driver=turn.cell.on.driver, broker=turn.cell.on.broker)
            else:
                play(scenario, each=enter, ground=self._ground(turn.cell.on, request))
        except Exception as error:
            if not entered:
                self._broken_off(turn, f"{type(error).__name__}: {error}", request, scenario)
            raise

    def _perf_test(self, turn: CellTurn, scenario: Scenario, request: pytest.FixtureRequest) -> Sequence[Window]:
        """Play PerfTest on the cluster of the cell, if the sweep asks for that; return the measured windows."""
        ground = self._ground(turn.cell.on, request)
        if not turn.cell.perf_test or not scenario.applies_to(ground.opened.broker_version):
            return ()
        show: Callable[[str], None] = request.getfixturevalue("resilience_show")
        show(f"{'PERFTEST':<8} PerfTest with the same load, about {duration_text(takes_s(scenario))}")
        topology, equipment = scenario.topology, scenario.equipment
        return play_perf_test(ground.clusters.acquire(topology, scenario.touched_links, equipment), scenario)

    def _seed(self, turn: CellTurn) -> int:
        """Return the seed of a round, from the seeds of the sweep and of the first cell's scenario."""
        return (self._sweep.spec.seed + self._sweep.cells[0].scenario.seed + turn.round - 1) % 2**63

    def _enter(
        self,
        turn: CellTurn,
        result: Result,
        request: pytest.FixtureRequest,
        scenario: Scenario,
        windows: Sequence[Window],
    ) -> None:
        played = run_line.played(result, scenario=request.node.nodeid)
        history = recorded_history(result.run, scenario)
        awaited = scenario.generated.confirms == "awaited"
        seen = JudgedRun(history, self._sweep.spec.over, played, result.document, windows, awaited)
        status, why = status_of(seen)
        values = measured(seen, self._sweep.spec.measures) if status == "measured" else {}
        line = ResultRow(
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
            took_s=played.duration_s,
            at=run_line.moment(),
        )
        self._add(line, request)
        if status == "disturbed":
            request.getfixturevalue("resilience_show")(f"{'AGAIN':<8} the next session plays it again: {why}")
        if result.as_expected:
            thin(result.run)

    def _broken_off(self, turn: CellTurn, why: str, request: pytest.FixtureRequest, scenario: Scenario) -> None:
        """Enter a run that did not come to its end. The next session plays it again."""
        line = ResultRow(
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
            at=run_line.moment(),
        )
        self._add(line, request)

    def _add(self, line: ResultRow, request: pytest.FixtureRequest) -> None:
        self._results.begin(self._of(request), self._sweep.text)
        self._results.enter(line)
        self._entered.append(line)
        request.config.stash[sessions.NO_NUMBERS][self._sweep.spec.title] = all_disturbed(
            self._sweep.spec.title, self._entered
        )
        write_tables(self._results, self._sweep)
        write_page(self._results, self._sweep, runs_folder(request.config))
        write_comparisons(self._results, self._sweep.spec)

    def _of(self, request: pytest.FixtureRequest) -> Of:
        if self._header is None:
            driver = options_driver(request.config)
            self._header = lines.header(
                self._root, name=None, machine_name=None, driver=driver, budget_min=None, at=run_line.moment()
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


def status_of(seen: JudgedRun) -> tuple[Status, str]:
    """Return the status of a run, and why. A run that broke a promise is never played again: its cell must show it."""
    verdict, first = verdict_word(seen.document), run_line.broke_first(seen.document)
    broke, others = first.summary if first else "", disturbed_by(seen)
    if others and verdict != "INVALID":
        return "disturbed", others
    if verdict == "UNKNOWN":
        return "unknown", broke
    if missed := others or shortfall(seen):
        return "not held", f"{broke}; in addition, {missed}" if broke else missed
    return "measured", broke


def all_disturbed(title: str, entered: Sequence[ResultRow]) -> str:
    """Return a sentence if all runs of a session were disturbed, so that none counts; else an empty text."""
    if any(line.status != "disturbed" for line in entered):
        return ""
    return (
        f"{title}: no numbers, as other programs kept this machine busy in all runs of this session ({len(entered)}); "
        "call pytest again in a quiet hour to play them again"
    )


def thin(run: RunDirectory) -> None:
    """Delete all files of a run except those that people read and those to play it again."""
    for path in run.path.iterdir():
        if path.name not in KEPT:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
