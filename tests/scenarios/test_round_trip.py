"""Whatever a scenario says, the fault file made from it says the same: title, text and numbers of every kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.conditions import DepthOver, LeaderOn, NodeIs, When
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.latency import Latency
from rabbitmq_resilience.nemesis.limit import Limit
from rabbitmq_resilience.nemesis.netem import Netem
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.nemesis.stop import Stop
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.expectations import Expectation
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.scenario.problems import problems
from rabbitmq_resilience.workload.parts import RateStep
from rabbitmq_resilience.workload.services import ProcessingStep
from rabbitmq_resilience.workload.workload_model import Workload

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
moments_s = st.floats(0, 86_400)
lengths_s = st.floats(0, 86_400, exclude_min=True)
keys = st.from_regex(r"[a-z_]{1,8}\.[a-z_.]{1,12}", fullmatch=True)

conditions = st.builds(
    When,
    depth_over=st.builds(DepthOver, queue=st.just("q1"), messages=st.integers(0, 10**12)),
    node_is=st.none() | st.builds(NodeIs, node=st.just("a1"), state=st.sampled_from(["up", "paused", "down"])),
    leader_on=st.none() | st.builds(LeaderOn, queue=st.just("q1"), zone=st.just("b")),
)
beginnings = st.one_of(
    moments_s.map(lambda at_s: {"at_s": at_s}),
    conditions.map(lambda when: {"when": when}),
)


@st.composite
def steps(draw: st.DrawFn) -> Any:
    begins = {**draw(beginnings), "for_s": draw(lengths_s)}
    kind = draw(st.sampled_from([Kill, Stop, Partition, Latency, Netem, Limit]))
    fields: dict[type, dict[str, Any]] = {
        Kill: {"node": "leader:q1"},
        Stop: {"node": "all", "drain": draw(st.booleans()), "configure": draw(st.dictionaries(keys, texts))},
        Partition: {"between": draw(st.permutations(["zone:a", "rest", "publisher:0"])), "one_way": False},
        Latency: {"links": "a1 <-> b1", "latency_ms": draw(st.integers(1, 6500))},
        Netem: {"links": "zone:a -> c1", "loss_percent": draw(st.floats(0, 100, exclude_min=True))},
        Limit: {"node": "a1", "cpus": draw(st.floats(0.05, 8))},
    }
    return kind(**begins, **fields[kind])


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    return Scenario(
        title=draw(texts),
        reference=draw(st.none() | texts),
        broker=draw(st.sampled_from(["", ">=3.8,<4.3", "==4.0.5"])),
        seed=draw(st.integers(0, 2**63 - 1)),
        topology=topology_catalogue.load(draw(st.sampled_from(topology_catalogue.names()))),
        workload=Workload(
            rate_per_s=draw(st.none() | st.integers(1, 10**6)),
            variable_rate=tuple(draw(st.lists(st.builds(RateStep, rate_per_s=st.none(), for_s=lengths_s), max_size=2))),
            variable_processing=tuple(
                draw(st.lists(st.builds(ProcessingStep, processing_ms=st.floats(0, 6e4), for_s=lengths_s), max_size=2))
            ),
            confirm_timeout_s=draw(st.floats(0.001, 3600)),
        ),
        phases=Phases(steady_s=draw(lengths_s), chaos_s=draw(st.none() | lengths_s)),
        metrics=draw(st.booleans()),
        schedule=tuple(draw(st.lists(steps(), max_size=4))),
        invariants=Invariants.model_validate({"no_loss": {}, "recovery": {"within_s": draw(st.floats(0.1, 1e9))}}),
        expect=tuple(
            draw(st.lists(st.builds(Expectation, broker=st.just("<4"), verdict=st.sampled_from(Verdict)), max_size=2))
        ),
    )


@given(scenarios())
def test_a_scenario_comes_back_as_it_was(scenario: Scenario) -> None:
    """Or is refused for what was wrong with it before, such as two steps that take the same node away."""
    wrong = set(problems(scenario, None))
    try:
        again = fault_file.parse(fault_file.dump(scenario), driver=None)
    except fault_file.FaultFileError as error:
        assert {(problem.location, problem.text) for problem in error.problems} == wrong
    else:
        assert (again, wrong) == (scenario, set())


def test_no_limit_of_the_rate_is_not_the_default_one() -> None:
    steps = (RateStep(rate_per_s=None, for_s=5),)
    unlimited = Scenario(
        title="As fast as confirms allow",
        topology=topology_catalogue.load("three_nodes_three_zones"),
        workload=Workload(rate_per_s=None, variable_rate=steps),
        phases=Phases(chaos_s=5),
        invariants=Invariants.model_validate({"no_loss": {}}),
    )
    assert fault_file.parse(fault_file.dump(unlimited)) == unlimited


@pytest.mark.parametrize("title", ["\x85", "a\x85b", "\u2028", "x\u2029 ", "\ufeff", "\n", " \t ", "ä\x85: {"])
def test_ends_of_lines_that_only_yaml_knows_come_back(title: str) -> None:
    fields = {"title": title, "topology": "three_nodes_three_zones", "invariants": {"no_loss": {}}}
    scenario = Scenario.model_validate(fields)
    assert fault_file.parse(fault_file.dump(scenario)).title == title
