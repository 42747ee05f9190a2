"""Shrinking against schedules whose failure is known: which steps it takes, how long, and how often it happens."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.explore.shrinking import FOR_S_MIN, MISS_CHANCE_MAX, Answer, FailureRate, Shrinking, without
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.conditions import AfterStep, When
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.scenario.model import Invariants, Scenario
from rabbitmq_resilience.scenario.validation import ValidatedScenario, validated

THREE = topology_catalogue.load("three_nodes_three_zones")
NODES = ("a1", "b1", "c1")


def scenario(*steps: AnyFault) -> ValidatedScenario:
    demanded = Invariants.model_validate({"no_loss": {}})
    return validated(Scenario(title="Made up", topology=THREE, schedule=steps, invariants=demanded), driver="local")


def kills(*for_s: float) -> ValidatedScenario:
    """One after another, 10 s apart from begin to begin."""
    return scenario(*(Kill(at_s=5 + 10 * i, for_s=lasting_s, node=NODES[i % 3]) for i, lasting_s in enumerate(for_s)))


def in_time() -> bool:
    return False


def culprits(*at_least_s: tuple[str, float]) -> Callable[[Scenario], bool]:
    """Fails where each of these nodes is killed for that long, in that order."""

    def fails(tried: Scenario) -> bool:
        left = list(at_least_s)
        for step in tried.schedule:
            assert isinstance(step, Kill)
            if left and step.node == left[0][0] and step.for_s >= left[0][1]:
                left.pop(0)
        return not left

    return fails


def answering(fails: Callable[[Scenario], bool], *, rate: float = 1.0, seed: int = 0) -> Callable[[Scenario], Answer]:
    luck = random.Random(seed)  # noqa: S311 - no secret
    return lambda tried: "fails" if fails(tried) and luck.random() < rate else "passes"


def test_six_faults_become_the_two_that_matter_and_short() -> None:
    found = kills(4, 4, 4, 4, 4, 4)
    shrinking = Shrinking(found, answering(culprits(("b1", 1), ("a1", 2))), in_time)
    smallest = shrinking.shrink()
    assert [(step.node, step.for_s) for step in smallest.schedule if isinstance(step, Kill)] == [("b1", 1), ("a1", 2)]
    assert [step.at_s for step in smallest.schedule] == [1, 3]  # a second is left between them
    assert shrinking.complete
    assert shrinking.rate.failed == shrinking.rate.runs


def test_one_fault_is_never_shrunk_to_none() -> None:
    smallest = Shrinking(kills(4), lambda _: "fails", in_time).shrink()
    assert [step.for_s for step in smallest.schedule] == [0.5]


def test_what_cannot_be_decided_is_not_taken() -> None:
    found = kills(4, 4)
    shrinking = Shrinking(found, lambda tried: "fails" if tried == found else "unknown", in_time)
    assert shrinking.shrink() == found
    assert shrinking.undecided == 6, "each fault was left out and shortened, and idle time removed in two steps"


def test_time_is_over() -> None:
    found = kills(*[4] * 8)
    runs: list[Scenario] = []

    def play(tried: Scenario) -> Answer:
        runs.append(tried)
        return "fails"

    shrinking = Shrinking(found, play, lambda: len(runs) >= 4)
    smallest = shrinking.shrink()
    assert (len(smallest.schedule), shrinking.complete, shrinking.runs) == (4, False, 4)  # two replays, two chunks


@given(st.lists(st.floats(0.5, 9), min_size=1, max_size=9), st.data())
def test_what_is_left_fails_and_no_single_step_can_go(lengths_s: list[float], data: st.DataObject) -> None:
    found = kills(*(round(length_s, 1) for length_s in lengths_s))
    chosen = sorted(data.draw(st.sets(st.integers(0, len(lengths_s) - 1), min_size=1, max_size=3)))
    wanted = [found.schedule[i] for i in chosen]
    fails = culprits(*((step.node, step.for_s / 3) for step in wanted if isinstance(step, Kill)))

    smallest = Shrinking(found, answering(fails), in_time).shrink()

    assert fails(smallest)
    assert len(smallest.schedule) == len(chosen)
    for step, was in zip(smallest.schedule, wanted, strict=True):
        assert step.for_s < 2 * max(was.for_s / 3, 0.5) + 0.1  # half of it would not do


@pytest.mark.generated
@pytest.mark.parametrize("rate", [1.0, 0.5, 0.25])
def test_a_failure_that_happens_sometimes_is_seldom_lost(rate: float) -> None:
    """Of the candidates that do fail, fewer than one in twenty are taken for innocent (with some room for chance)."""
    fails = culprits(("b1", 0.1))
    missed = tried = 0
    for seed in range(200):
        shrinking = Shrinking(
            kills(0.5, 0.5), answering(fails, rate=rate, seed=seed), in_time, rate=FailureRate(round(20 * rate), 20)
        )
        missed += len(shrinking.shrink().schedule) > 1
        tried += 1
    assert missed <= 2 * MISS_CHANCE_MAX * tried


@given(st.integers(1, 30), st.integers(0, 30))
def test_repeats_are_the_fewest_that_leave_little_to_chance(failed: int, passed: int) -> None:
    rate = FailureRate(failed, failed + passed)
    assert rate.miss_chance(rate.repeats) < MISS_CHANCE_MAX <= rate.miss_chance(rate.repeats - 1)


@given(st.integers(1, 6), st.integers(0, 6), st.integers(1, 6))
def test_the_chance_of_a_miss_is_that_of_drawing_it(failed: int, passed: int, passes: int) -> None:
    """By integrating over all rates, each weighed by how well it explains the runs."""
    grid = [(i + 0.5) / 4000 for i in range(4000)]
    weights = [p**failed * (1 - p) ** passed for p in grid]
    expected = sum(w * (1 - p) ** passes for p, w in zip(grid, weights, strict=True)) / sum(weights)
    assert FailureRate(failed, failed + passed).miss_chance(passes) == pytest.approx(expected, rel=1e-3)


def test_a_step_that_waits_for_another_stays_with_it() -> None:
    waiting = Kill(when=When(after_step=AfterStep(step=1)), for_s=3, node="c1")
    whole = scenario(*kills(4, 4).schedule, waiting)
    assert without(whole, range(1, 2)) is None
    first_gone = without(whole, range(1))
    assert first_gone is not None
    assert _waits_for(first_gone.schedule) == [None, 0]


def _waits_for(steps: Sequence[AnyFault]) -> list[int | None]:
    return [step.when.after_step.step if step.when and step.when.after_step else None for step in steps]


def test_a_step_that_lasts_for_ticks_is_shortened_too() -> None:
    cut = Partition(at_s=1, for_s=25, for_ticks=5, between=("a1", "rest"))
    shrinking = Shrinking(scenario(cut), lambda _: "fails", in_time)
    (step,) = shrinking.shrink().schedule
    assert (step.for_s, step.for_ticks) == (FOR_S_MIN, None)
