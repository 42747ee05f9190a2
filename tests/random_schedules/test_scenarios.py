"""Whatever is drawn would be played and not refused: thousands of draws, and no broker."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.explore.scenarios import draw_scenarios, rescheduled, scenarios
from rabbitmq_resilience.explore.schedules import OF_BROKERS, OF_LINKS_AND_CLIENTS
from rabbitmq_resilience.nemesis.combining import spell, surely_provable
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.sut.drivers import DRIVERS

KINDS = {kind for kind, _ in (*OF_BROKERS, *OF_LINKS_AND_CLIENTS)}
#: The versions whose promises differ.
GROUNDS = [("3.10.8", "local"), ("4.0.5", "docker"), ("4.3.6", "local")]


@pytest.mark.generated
@pytest.mark.parametrize(("version", "driver"), GROUNDS)
def test_each_is_accepted_unchanged(version: str, driver: str) -> None:
    strategy = scenarios(version=version, driver=driver, net_ticktime_s=5)

    @given(strategy)
    def accepted(scenario: Scenario) -> None:
        assert fault_file.parse(fault_file.dump(scenario), driver=driver) == scenario
        assert scenario.applies_to(version)
        assert len(scenario.schedule) >= 6
        assert {step.acts_on for step in scenario.schedule} <= DRIVERS[driver].offers
        assert {step.fault for step in scenario.schedule} <= KINDS
        if scenario.workload.queue_type == "quorum":  # whatever a version is known for, it loses none of their messages
            excused = [name for e in scenario.expect for name in (e.invariant, *e.invariants_also)]
            assert not {"no_loss", "order"} & set(excused)
            assert all(e.verdict is Verdict.INVALID and e.intermittent for e in scenario.expect)

    accepted()


@settings(max_examples=settings().max_examples // 3)  # each is drawn, checked and parsed
@given(
    st.data(),
    st.sampled_from(["quorum", "mirrored", "classic"]),
    st.sampled_from(["a: 2, b: 1", "a: 3", "a: 1, b: 1", "a: 2", "a: 1"]),
    st.sampled_from(["no_loss", "availability"]),
)
def test_any_scenario_can_have_another_schedule(
    data: st.DataObject, queue_type: str, zones: str, invariant: str
) -> None:
    base = fault_file.parse(
        f"""
        version: 1
        title: Someone's own
        topology: {{name: mine, zones: {{{zones}}}, partition_handling: ignore}}
        workload: {{queue_type: {queue_type}, queues: 2, publishers: 2}}
        invariants: {{{invariant}: {{}}}}
        """
    )
    drawn = data.draw(rescheduled(base, driver="local"))
    assert fault_file.parse(fault_file.dump(drawn)) == drawn
    assert drawn.title == "Someone's own, random schedule"
    assert drawn.model_copy(update={"schedule": (), "title": base.title}) == base


@pytest.mark.generated
def test_faults_overlap_and_each_can_be_shown() -> None:
    drawn = draw_scenarios(scenarios(version="3.10.8", driver="local", net_ticktime_s=5), from_seed=3, count=50)
    assert all(surely_provable(scenario.schedule, scenario.topology) for scenario in drawn)
    assert sum(at_once(scenario) >= 3 for scenario in drawn) > 10


def at_once(scenario: Scenario) -> int:
    """How many steps are at work at the same time, at most."""
    spells = list(map(spell, scenario.schedule))
    return max(sum(begins <= at_s < ends for begins, ends in spells) for at_s, _ in spells)


def test_the_same_seed_draws_the_same() -> None:
    def drawn(seed: int) -> list[Scenario]:
        strategy = scenarios(version="3.10.8", driver="local", net_ticktime_s=5)
        return list(draw_scenarios(strategy, from_seed=seed, count=3))

    first, other = drawn(1), drawn(2)
    assert first == drawn(1)
    assert not any(scenario in other for scenario in first)
