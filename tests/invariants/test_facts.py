"""What facts make of events: here, which cuts part brokers."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.history.events import Event
from tests.invariants.literal import event, us


def cut(*links: list[str]) -> Event:
    effect = {"nodes_down": [], "links_cut": list(links), "links_slow": []}
    return event(0, "fault", step=0, fault="partition", state="injected", effect=effect)


@pytest.mark.parametrize(
    ("links", "parted"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([["a1", "b1"]], [("a1", "b1")], id="one_way"),
        pytest.param([["a1", "b1"], ["b1", "a1"]], [("a1", "b1")], id="both_ways"),
        pytest.param([["publisher:0", "a1"], ["a1", "publisher:0"]], [], id="client_alone"),
        pytest.param([["b1", "consumer:1"], ["a1", "b1"]], [("a1", "b1")], id="client_and_brokers"),
    ],
)
def test_a_cut_parts_brokers_and_a_client_is_none(links: list[list[str]], parted: list[tuple[str, str]]) -> None:
    (step,) = Facts([cut(*links)]).steps
    assert step.cut == set(map(frozenset, parted))


def test_what_was_seen_of_nodes_is_found_by_its_time() -> None:
    states = [("up", "up"), ("down", "up"), ("down", "up"), ("up", "up")]
    facts = Facts([event(at, "nodes", states={"a1": a, "b1": b}) for at, (a, b) in enumerate(states)])

    assert [facts.first_up_us("a1", after_us=us(at)) for at in (0, 0.5, 1, 3)] == [us(0), us(3), us(3), us(3)]
    assert facts.first_up_us("a1", after_us=us(3.1)) == NEVER_US
    assert facts.first_up_us("c1", after_us=us(0)) == NEVER_US
    assert facts.states_at(us(-1)) is None
    assert facts.states_at(us(2.9)) == {"a1": "down", "b1": "up"}
    assert [t_us for t_us, _ in facts.sightings(us(1), us(2))] == [us(1), us(2)]
    assert facts.sightings(us(4), NEVER_US) == ()


def test_a_phase_lasts_until_the_next_one_begins() -> None:
    facts = Facts([event(at_s, "phase", phase=phase) for at_s, phase in ((1, "steady"), (10, "chaos"))])
    assert [facts.phase_at(us(at_s)) for at_s in (0, 1, 9.9, 10)] == ["start", "steady", "steady", "chaos"]
