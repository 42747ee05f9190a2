"""A search without brokers: what is played, for how long, and what is kept. Results are made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.explore.search import Search
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.expectations import Expectation
from rabbitmq_resilience.scenario.model import Invariants, Scenario
from rabbitmq_resilience.scenario.validation import validated
from tests.messages import Messages

MADE = Scenario(
    title="Made up",
    topology=topology_catalogue.load("three_nodes_three_zones"),
    schedule=tuple(Kill(at_s=10 * i, for_s=4, node="abc"[i % 3] + "1") for i in range(6)),
    invariants=Invariants.model_validate({"no_loss": {}}),
)
SCENARIO = validated(MADE, driver="local")

#: Runs are named by their moment.
RUNS = {r"TMP/\S+": "TMP/RUN"}


@dataclass
class MadeUp:
    """Plays in no time and lets 30 s pass; INVALID where ``fails`` says so."""

    root: Path
    fails: Callable[[Scenario], bool]
    now_s: float = 0.0
    played: list[Scenario] = field(default_factory=list)
    proxied: set[frozenset[Link]] = field(default_factory=set)

    def play(self, scenario: Scenario, proxied: frozenset[Link]) -> Result:
        self.now_s += 30
        self.played.append(scenario)
        self.proxied.add(proxied)
        verdict = Verdict.INVALID if self.fails(scenario) else Verdict.VALID
        document = {"verdict": verdict, "title": scenario.title, "invariants": {"no_loss": {"verdict": verdict}}}
        run = RunDirectory.create(self.root, scenario.title)
        return Result(run, verdict, verdict is Verdict.VALID, document)

    def search(self, budget_s: float, lines: list[str]) -> Search:
        return Search(7, budget_s, "3.10.8", self.root, self.play, lines.append, clock=lambda: self.now_s)


def kills_b1(scenario: Scenario) -> bool:
    return any(isinstance(step, Kill) and step.node == "b1" for step in scenario.schedule)


def test_plays_as_many_as_fit(tmp_path: Path, message: Messages) -> None:
    lines: list[str] = []
    world = MadeUp(tmp_path, lambda _: False)
    search = world.search(100, lines)
    assert search.run([SCENARIO] * 20) is None
    assert len(world.played) == 3  # a fourth would end at 120 s
    assert not search.all_unknown
    assert sum(line.startswith("EXAMPLE  ") for line in lines) == 3
    message("\n".join(lines), hide=RUNS)
    message(search.summary(), hide=RUNS)
    listed = json.loads(search.file.read_text())
    assert [row["verdict"] for row in listed["runs"]] == ["VALID"] * 3
    assert all((tmp_path / row["run"]).is_dir() for row in listed["runs"])


def test_the_first_is_played_however_short_the_budget(tmp_path: Path) -> None:
    world = MadeUp(tmp_path, lambda _: False)
    world.search(1, []).run([SCENARIO] * 3)
    assert len(world.played) == 1


def test_a_session_without_a_verdict_shows_nothing(tmp_path: Path) -> None:
    world = MadeUp(tmp_path, lambda _: False)

    def play(scenario: Scenario, proxied: frozenset[Link]) -> Result:
        result = world.play(scenario, proxied)
        return Result(result.run, Verdict.UNKNOWN, False, {**result.document, "verdict": Verdict.UNKNOWN})

    search = Search(7, 100, "3.10.8", tmp_path, play, lambda _: None, clock=lambda: world.now_s)
    assert search.run([SCENARIO] * 3) is None
    assert search.all_unknown


def test_a_failure_is_shrunk_and_kept_as_an_incident(tmp_path: Path, message: Messages) -> None:
    world = MadeUp(tmp_path, kills_b1)
    search = world.search(1000, [])
    found = search.run([SCENARIO] * 3)
    assert found is not None
    kept = fault_file.load(found.file)
    assert [(step.node, step.for_s) for step in kept.schedule if isinstance(step, Kill)] == [("b1", 0.5)]
    assert not kept.expect  # what was lost is not excused before somebody knows why
    message(found.text(), hide=RUNS)
    assert len(world.proxied) == 1  # so that the cluster is kept, and nothing else changes
    listed = json.loads(search.file.read_text())
    assert listed["found"]["faults"] == [6, 1]
    assert len(listed["runs"]) == 1 + found.runs
    assert "1 INVALID" in search.summary()
    message(search.summary(), hide=RUNS)


def test_a_failure_of_another_kind_is_not_taken_for_it(tmp_path: Path) -> None:
    """Each candidate breaks something, but another promise."""
    world = MadeUp(tmp_path, lambda _: True)

    def play(scenario: Scenario, proxied: frozenset[Link]) -> Result:
        result = world.play(scenario, proxied)
        if scenario.schedule == SCENARIO.schedule:
            return result
        document = {**result.document, "invariants": {"order": {"verdict": Verdict.INVALID}}}
        return Result(result.run, result.verdict, False, document)

    search = Search(7, 10_000, "3.10.8", tmp_path, play, lambda _: None, clock=lambda: world.now_s)
    found = search.run([SCENARIO])
    assert found is not None
    assert found.smallest.schedule == SCENARIO.schedule
    assert found.complete


def test_what_was_played_is_listed_also_where_it_breaks_off(tmp_path: Path) -> None:
    world = MadeUp(tmp_path, lambda _: False)

    def play(scenario: Scenario, proxied: frozenset[Link]) -> Result:
        if world.played:
            raise KeyboardInterrupt
        return world.play(scenario, proxied)

    search = Search(7, 1000, "3.10.8", tmp_path / "new", play, lambda _: None, clock=lambda: world.now_s)
    with pytest.raises(KeyboardInterrupt):
        search.run([SCENARIO] * 3)
    assert len(json.loads(search.file.read_text())["runs"]) == 1


#: A scenario that demands more than one promise.
DEMANDING = MADE.model_copy(
    update={
        "invariants": Invariants.model_validate(
            {"no_loss": {}, "availability": {"stall_s_max": 30}, "recovery": {"within_s": 60}}
        )
    }
)


def breaking(
    world: MadeUp, broken: Callable[[Scenario], set[str]], known: frozenset[str] = frozenset()
) -> Callable[[Scenario, frozenset[Link]], Result]:
    """Play runs that break the invariants that ``broken`` says; the known ones alone are as expected."""

    def play(scenario: Scenario, proxied: frozenset[Link]) -> Result:
        result, names = world.play(scenario, proxied), broken(scenario)
        verdict = Verdict.INVALID if names else Verdict.VALID
        findings = {name: {"verdict": Verdict.INVALID} for name in names}
        document = {**result.document, "verdict": verdict, "invariants": findings}
        return Result(result.run, verdict, names <= known, document)

    return play


def killed(scenario: Scenario) -> Sequence[str]:
    return [step.node for step in scenario.schedule if isinstance(step, Kill)]


def test_a_known_defect_next_to_another_failure_does_not_make_it_the_same(tmp_path: Path) -> None:
    """The first run breaks availability, and smaller ones lose messages, each next to what is known."""
    known = Expectation(
        broker=">=3.8", verdict=Verdict.INVALID, invariant="recovery", intermittent=True, reference="x#1"
    )
    found_one = validated(DEMANDING.model_copy(update={"expect": (known,)}), driver="local")
    world = MadeUp(tmp_path, lambda _: False)

    def broken(scenario: Scenario) -> set[str]:
        if killed(scenario).count("a1") == 2:
            return {"recovery", "availability"}
        return {"recovery", "no_loss"} if "b1" in killed(scenario) else set()

    play = breaking(world, broken, frozenset({"recovery"}))
    search = Search(7, 10_000, "3.10.8", tmp_path, play, lambda _: None, clock=lambda: world.now_s)
    found = search.run([found_one])
    assert found is not None
    assert killed(found.smallest) == ["a1", "a1"]
    (_, mine) = found.smallest.expect
    assert (mine.invariant, mine.invariants_also) == ("availability", ())


def test_the_file_expects_what_its_own_schedule_broke(tmp_path: Path) -> None:
    world = MadeUp(tmp_path, lambda _: False)

    def broken(scenario: Scenario) -> set[str]:
        if len(scenario.schedule) == len(MADE.schedule):
            return {"availability", "recovery"}
        return {"recovery"} if "b1" in killed(scenario) else set()

    search = Search(7, 10_000, "3.10.8", tmp_path, breaking(world, broken), lambda _: None, clock=lambda: world.now_s)
    found = search.run([validated(DEMANDING, driver="local")])
    assert found is not None
    (mine,) = fault_file.load(found.file).expect
    assert (mine.invariant, mine.invariants_also) == ("recovery", ())
