"""Fault files: what is right is read whole, what is wrong is refused by line, step and field."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.topology import PauseIfAllDown, Topology
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.expectations import VALID_EXPECTED
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from rabbitmq_resilience.sut.drivers import DRIVERS, Driver
from tests.messages import Messages

SANE: dict[str, Any] = {
    "version": 1,
    "title": "Zone b is cut off while confirms are in flight",
    "broker": ">=3.8,<4.3",
    "seed": 4711,
    "topology": "five_nodes_three_zones",
    "workload": {"kind": "confirmed_publish", "queue_type": "quorum", "queues": 4, "publishers": 4, "consumers": 4},
    "phases": {"steady_s": 10, "recovery_s": 60, "drain_s": 60},
    "schedule": [
        {"at_s": 2, "for_s": 20, "fault": "partition", "between": ["zone:b", "rest"]},
        {"at_s": 8, "for_s": 5, "fault": "latency", "links": "zone:a -> zone:c", "latency_ms": 120, "jitter_ms": 30},
        {
            "when": {"depth_over": {"queue": "q1", "messages": 1000}},
            "fault": "kill",
            "node": "leader:q1",
            "for_s": 10,
        },
    ],
    "invariants": {"no_loss": {}, "order": {}, "availability": {"stall_s_max": 15}, "recovery": {"within_s": 30}},
    "expect": [
        {
            "broker": "<3.10.10",
            "verdict": "INVALID",
            "invariant": "no_loss",
            "queue_types": ["quorum"],
            "trace": "pauses_late",
        }
    ],
}


#: Hide lists of names that grow with the project.
NAMES = {r"((?:known|there) are )\w+(?:, \w+){6,}": r"\1NAMES"}


def refused(plain: Any) -> str:
    text = plain if isinstance(plain, str) else yaml.safe_dump(plain, sort_keys=False)
    with pytest.raises(FaultFileError) as caught:
        fault_file.parse(text, source="incident.yaml")
    return str(caught.value)


def changed(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    plain: Any = copy.deepcopy(SANE)
    inner = plain
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    result: dict[str, Any] = plain
    return result


@pytest.mark.parametrize("name", ["memory", "alarms", "followers", "unacked"])
def test_an_invariant_on_metrics_needs_them(name: str, message: Messages) -> None:
    plain = changed(("invariants", name), {})
    text = refused(plain)
    assert name in text
    assert "metrics: true" in text
    message(text)
    assert fault_file.parse(yaml.safe_dump({**plain, "metrics": True})).metrics


def test_sane_file() -> None:
    scenario = fault_file.parse(yaml.safe_dump(SANE))
    assert scenario.topology.node_names == ("a1", "a2", "b1", "b2", "c1")
    assert scenario.schedule[0].footprint(scenario.topology).links >= {Link("b1", "a1"), Link("c1", "b2")}
    assert list(scenario.chosen_invariants) == ["no_loss", "order", "availability", "recovery"]
    assert scenario.expected("3.10.8")[0].verdict == "INVALID"
    assert scenario.expected("3.10.10") == (VALID_EXPECTED,)


def test_order_may_be_demanded_of_shared_queues() -> None:
    plain = changed(("workload", "consumers"), 5)
    plain["invariants"]["order"] = {"shared_queues": "judged"}
    assert fault_file.parse(yaml.safe_dump(plain)).generated.consumers == 5


def test_it_says_how_to_demand_order_of_one_active_consumer_after_another(message: Messages) -> None:
    plain = changed(("workload", "consumers"), 8)
    plain["workload"]["single_active_consumer"] = True
    told = refused(plain)
    message(told)
    assert "{shared_queues: judged}" in told


@pytest.mark.parametrize("fault", ["purge_queue", "delete_queue"])
def test_a_queue_that_is_not_there_is_not_lost(fault: str, message: Messages) -> None:
    told = refused(changed(("schedule", 2), {"at_s": 1, "for_s": 1, "fault": fault, "queue": "q7"}))
    message(told)
    assert "schedule[2].queue: " in told
    assert "q1, q2, q3, q4" in told


def test_a_condition_has_its_time_after_the_step_that_it_waits_for() -> None:
    """The first step is over at 190 s, the second 5 s, two minutes and 10 s later at the latest."""
    plain = changed(("schedule",), [{"at_s": 150, "for_s": 40, "fault": "kill", "node": "a1"}])
    for n, (wait_s, for_s) in enumerate([(5, 10), (0, 20)]):
        when = {"after_step": {"step": n, "wait_s": wait_s}}
        plain["schedule"].append({"when": when, "for_s": for_s, "fault": "kill", "node": "b1"})
    lasts_s = fault_file.parse(yaml.safe_dump(plain)).chaos_s
    assert lasts_s == 190 + (5 + 120 + 10) + (0 + 120 + 20)
    plain["schedule"][0] = {
        "when": {"node_is": {"node": "a1", "state": "up"}},
        "for_s": 3,
        "fault": "kill",
        "node": "a1",
    }
    assert fault_file.parse(yaml.safe_dump(plain)).chaos_s == (120 + 3) + (5 + 120 + 10) + (0 + 120 + 20)


def test_the_chaos_phase_lasts_as_long_as_the_load_varies(message: Messages) -> None:
    plain = changed(("workload", "variable_rate"), [{"rate_per_s": 900, "for_s": 100}, {"rate_per_s": 0, "for_s": 80}])
    plain["schedule"] = []
    assert fault_file.parse(yaml.safe_dump(plain)).chaos_s == 180
    plain["phases"]["chaos_s"] = 150
    told = refused(plain)
    message(told)
    assert "workload.variable_rate: " in told
    assert "180 s" in told
    assert "(phases.chaos_s is 150)" in told


def test_what_a_run_leaves_is_the_same_scenario() -> None:
    scenario = fault_file.parse(yaml.safe_dump(SANE))
    assert fault_file.parse(fault_file.dump(scenario)) == scenario


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        pytest.param(("workload", "publisers"), 4, ("workload.publisers", "publishers?"), id="misspelt"),
        pytest.param(("schedule", 0, "betwen"), [], ("schedule[0].betwen", "between?"), id="misspelt_step"),
        pytest.param(("schedule", 0, "between"), ["zone:x", "rest"], ("zone:x", "a, b, c"), id="unknown_zone"),
        pytest.param(("schedule", 0, "between"), ["zone:b", "b1"], ("b1",), id="overlap"),
        pytest.param(("schedule", 0, "at_s"), -3, ("schedule[0].at_s", "got -3"), id="negative_time"),
        pytest.param(("schedule", 1, "latency_ms"), "fast", ("schedule[1].latency_ms", '"fast"'), id="wrong_type"),
        pytest.param(("schedule", 1, "links"), "zone:a", ("schedule[1].links", "zone:a -> zone:b"), id="no_link"),
        pytest.param(("schedule", 1, "jitter_ms"), 500, ("schedule[1].jitter_ms", "latency_ms"), id="jitter"),
        pytest.param(("schedule", 1, "fault"), "latencyy", ("schedule[1]", "latency?"), id="unknown_fault"),
        pytest.param(("schedule", 2, "node"), "leader:q9", ("schedule[2].node", "q1, q2, q3, q4"), id="unknown_queue"),
        pytest.param(
            ("schedule", 2),
            {"at_s": 1, "for_s": 1, "fault": "kill_client", "client": "consumer:4"},
            ("schedule[2].client", "consumer:0"),
            id="unknown_client",
        ),
        pytest.param(("schedule", 2, "when", "depth_over", "queue"), "q7", ("schedule[2].when", "q7"), id="when_queue"),
        pytest.param(("schedule", 2, "at_s"), 3, ("schedule[2]",), id="at_and_when"),
        pytest.param(("phases", "chaos_s"), 15, ("schedule[0].for_s", "chaos_s"), id="past_the_end"),
        pytest.param(("topology",), "five_nodes", ("topology", "five_nodes_three_zones"), id="unknown_topology"),
        pytest.param(("topology",), {"name": "x", "zones": {"a": 5, "b": 3}}, ("1 to 7",), id="too_large"),
        pytest.param(("workload", "ack_every"), 1000, ("workload", "prefetch"), id="waits_for_ever"),
        pytest.param(("workload", "leaders_on"), ["zone:q"], ("workload.leaders_on[0]", "a, b, c"), id="leaders_zone"),
        pytest.param(("workload", "group_size"), 7, ("workload.group_size", "has 5"), id="group_too_large"),
        pytest.param(("broker",), "three", ("broker", ">=3.8,<4.3"), id="version_range"),
        pytest.param(("expect", 0, "invariant"), "throughput", ("expect[0].invariant", "no_loss"), id="expectation"),
        pytest.param(("invariants", "no_los"), {}, ("invariants.no_los", "no_loss?"), id="invariant"),
        pytest.param(("invariants",), {}, ("invariants: ", "no_loss"), id="nothing_demanded"),
        pytest.param(("workload", "consumers"), 5, ("workload.consumers", "4 queues"), id="order_of_shared_queues"),
        pytest.param(
            ("invariants", "single_active_consumer"), {}, ("workload.consumers", "8 consumers"), id="no_stand_by"
        ),
        pytest.param(("workload", "consumers"), 0, ("workload.consumers", "consume: at_drain"), id="nobody_receives"),
        pytest.param(
            ("workload", "processing_ms"),
            2000,
            ("workload.processing_ms", "50 messages", "100 s", "phases.recovery_s (60)", "ack_every"),
            id="acknowledges_too_seldom",
        ),
        pytest.param(
            ("invariants", "metadata"), {}, ("workload.declare_every_s", "such as 0.5"), id="nothing_declared"
        ),
        pytest.param(("version",), 2, ("version", "got 2"), id="version"),
        pytest.param(("seed",), "4711", ("seed", "integer"), id="text_for_number"),
        pytest.param(("title",), "", ("title",), id="no_title"),
    ],
)
def test_refused(path: tuple[str | int, ...], value: Any, told: tuple[str, ...], message: Messages) -> None:
    text = refused(changed(path, value))
    assert text.startswith("incident.yaml: ")
    for part in told:
        assert part in text
    message(text, hide=NAMES)


def test_refusal_names_the_line(message: Messages) -> None:
    text = yaml.safe_dump(SANE, sort_keys=False).replace("at_s: 2", "at_s: -2")
    line = text.splitlines().index("- at_s: -2") + 1
    told = refused(text)
    assert f"line {line}, schedule[0].at_s: " in told
    message(told.replace(f"line {line}", "line N"))


CUT = {"at_s": 1, "for_s": 4, "fault": "partition", "between": ["zone:b", "rest"]}
FLAP = {**CUT, "fault": "flapping", "period_s": 0.2}


@pytest.mark.parametrize(
    ("step", "told"),
    [
        pytest.param({"between": ["publisher:4", "all"]}, ("between: publisher:4", "4 publishers"), id="no_client"),
        pytest.param({"between": ["publisher:x", "all"]}, ("between: 'publisher:x'", "publisher:0"), id="client_name"),
        pytest.param({"between": ["publisher:0", "publisher:0"]}, ("between", "named twice"), id="client_twice"),
        pytest.param({"between": ["publisher:0", "consumer:0"]}, ("schedule[0].between",), id="only_clients"),
        pytest.param({"between": ["producer:0", "all"]}, ("between", "publisher:0"), id="no_role"),
        pytest.param({"between": ["zone:a"]}, ("between",), id="one_side"),
        pytest.param(
            {"between": ["zone:a", "zone:b", "rest"], "one_way": True}, ("one_way: ", "names 3"), id="three_ways"
        ),
        pytest.param({**FLAP, "period_s": 0.05}, ("schedule[0].period_s", "got 0.05"), id="period_too_small"),
        pytest.param({**FLAP, "period_s": 3}, ("period_s: 3 s", "for_s (4)"), id="period_too_long"),
        pytest.param({**FLAP, "period_s": None}, ("schedule[0]", "period_s"), id="no_period"),
        pytest.param({"fault": "disconnect", "one_way": True}, ("schedule[0].one_way",), id="disconnect_one_way"),
        pytest.param({"for_s": 0}, ("schedule[0].for_s", "got 0"), id="for_no_time"),
    ],
)
def test_sides_that_are_refused(step: dict[str, Any], told: tuple[str, ...], message: Messages) -> None:
    text = refused(changed(("schedule", 0), {**CUT, **step}))
    for part in told:
        assert part in text
    message(text)


def test_a_client_is_no_place_for_other_faults(message: Messages) -> None:
    node = refused(changed(("schedule", 2, "node"), "publisher:0"))
    assert "schedule[2].node: " in node
    assert "publisher:0" in node
    message(node)
    leaders = refused(changed(("workload", "leaders_on"), ["publisher:0"]))
    assert "workload.leaders_on[0]: " in leaders
    assert "publisher:0" in leaders
    message(leaders)


@pytest.mark.parametrize(
    ("step", "links"),
    [
        ({**CUT, "between": ["publisher:0", "zone:b"]}, {("publisher:0", "b1"), ("publisher:0", "b2")}),
        ({**CUT, "between": ["zone:c", "publisher:0"], "one_way": True}, {("publisher:0", "c1")}),
        ({**FLAP, "between": ["consumer:1", "publisher:0", "c1"]}, {("consumer:1", "c1"), ("publisher:0", "c1")}),
        ({**CUT, "fault": "disconnect", "between": ["a1", "b1"], "for_s": 0.004}, {("a1", "b1")}),
        ({**CUT, "between": ["consumer:0", "one"]}, {("consumer:0", n) for n in ("a1", "a2", "b1", "b2", "c1")}),
        (
            {"at_s": 0, "for_s": 9, "fault": "latency", "links": "consumer:0 -> a1", "latency_ms": 50},
            {("consumer:0", "a1")},
        ),
    ],
)
def test_links_that_need_a_proxy(step: dict[str, Any], links: set[tuple[str, str]]) -> None:
    plain = changed(("schedule",), [step])
    scenario = fault_file.parse(yaml.safe_dump(plain))
    assert scenario.touched_links == {Link(*pair) for pair in links} | {Link(b, a) for a, b in links}


def test_steps_that_take_the_same_node_away(message: Messages) -> None:
    plain = changed(("schedule", 2), {"at_s": 0, "for_s": 9, "fault": "kill", "node": "b1"})
    plain["schedule"].append({"at_s": 5, "for_s": 9, "fault": "pause", "node": "zone:b"})
    told = refused(plain)
    message(told)
    assert "schedule[3].at_s: " in told
    assert "step 2" in told
    assert "b1" in told


def test_fault_that_the_driver_cannot_do(monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    driver = Driver(frozenset({"clients"}), DRIVERS["local"].open)
    monkeypatch.setitem(DRIVERS, "external", driver)
    with pytest.raises(FaultFileError) as caught:
        fault_file.parse(yaml.safe_dump(SANE), driver="external")
    told = str(caught.value)
    message(told)
    assert "schedule[0].fault: partition" in told
    assert "schedule[2].fault: kill" in told
    assert "external" in told


def test_a_topology_with_preferred_nodes_is_written_and_read_again() -> None:
    chosen = PauseIfAllDown(nodes=("a1", "b1"), recover="ignore")
    topology = Topology(
        name="t", zones={"a": 2, "b": 1}, partition_handling="pause_if_all_down", pause_if_all_down=chosen
    )
    sane = fault_file.parse(yaml.safe_dump(SANE))
    scenario = sane.model_copy(update={"topology": topology, "schedule": ()})
    assert fault_file.parse(fault_file.dump(scenario)).topology == topology


def test_availability_needs_a_publisher_for_each_queue(message: Messages) -> None:
    kill = {"at_s": 2, "for_s": 5, "fault": "kill_client", "client": "publisher:1"}
    told = refused(changed(("schedule", 2), kill))
    message(told)
    assert "q2" in told
    assert "q1" not in told
    plain = changed(("workload", "reconnect"), "own_zone")
    told = refused(plain)
    message(told)
    assert "q1, q2, q3, q4" in told
    enough = {**plain, "workload": {**plain["workload"], "publishers": 20}}
    fault_file.parse(yaml.safe_dump(enough))
