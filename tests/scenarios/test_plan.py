"""What a scenario would do to a cluster that is there already, told and not done."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached.kubernetes.finding import NEEDED
from rabbitmq_resilience.extensions.attached.on_clusters import fitted, known
from rabbitmq_resilience.extensions.attached.plan import plan
from rabbitmq_resilience.model.errors import NotPlayableError
from rabbitmq_resilience.nemesis.fault_catalogue import FAULTS
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.tools.locations import content
from tests.messages import Messages
from tests.scenarios.test_fault_file_pages import STEPS

pytest_plugins = ["pytester"]

CLUSTER = """
version: 1
cluster: orders
user: {file: name}
password: {file: name}
partition_handling: pause_minority
net_ticktime_s: 60
nodes:
  - {name: rabbit@host1, zone: eu-1, amqp: "amqps://host1:5671", management: "https://host1:15671"}
  - {name: rabbit@host2, zone: eu-2, amqp: "amqps://host2:5671", management: "https://host2:15671"}
  - {name: rabbit@host3, zone: eu-3, amqp: "amqps://host3:5671", management: "https://host3:15671"}
offers:
  ssh: {user: chaos, addresses: {rabbit@host2: 10.0.0.2}, disk: /var/lib/rabbitmq}
allow:
  {kill: 3, stop: 3, pause: 3, cut: 3, refuse: 3, lose_packets: 3, rebalance: 3, alarm: 1, drain: 1, fill_disk: 1,
   delay: 3}
"""
HEAD = "version: 1\ntitle: t\ntopology: three_nodes_three_zones\ninvariants: {no_loss: {}}\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    (tmp_path / "name").write_text("nobody\n")
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return path


def told(cluster: Path, *steps: str) -> list[str]:
    text = f"{HEAD}schedule:\n" + "".join(f"- {step}\n" for step in steps)
    return list(plan(fitted(fault_file.parse(text, driver="attached"), cluster), cluster))


def machines(lines: list[str]) -> set[str]:
    return {f"host{i}" for i in (1, 2, 3) for line in lines if line.startswith(f"      rabbit@host{i}, by ssh ")}


@pytest.mark.parametrize(
    ("step", "act", "at"),
    [
        ("{at_s: 2, for_s: 6, fault: kill, node: b1}", "kill: ", {"host2"}),
        ("{at_s: 2, for_s: 6, fault: kill, node: 'leader:q1'}", "kill: ", {"host1", "host2", "host3"}),
        ("{at_s: 2, for_s: 6, fault: pause, node: 'zone:c'}", "pause: ", {"host3"}),
        ("{at_s: 2, for_s: 6, fault: stop, node: a1}", "stop: ", {"host1"}),
        ("{at_s: 2, for_s: 6, fault: stop, node: a1, drain: true}", "drain: ", {"host1"}),
        ("{at_s: 2, for_s: 6, fault: alarm, node: b1, resource: memory}", "alarm: ", {"host2"}),
        ("{at_s: 2, for_s: 60, fault: disk_full, node: c1}", "fill_disk: ", {"host3"}),
        (
            "{at_s: 2, for_s: 20, fault: partition, between: ['zone:c', rest]}",
            "cut: ",
            {"host1", "host2", "host3"},
        ),
        ("{at_s: 2, for_s: 20, fault: partition, between: [a1, b1]}", "cut: ", {"host1", "host2"}),
        ("{at_s: 2, for_s: 20, fault: latency, links: 'a1 -> b1', latency_ms: 50}", "delay: ", {"host1"}),
        (
            "{at_s: 2, for_s: 20, fault: netem, links: 'a1 -> b1', loss_percent: 5, by: iptables}",
            "lose_packets: ",
            {"host2"},
        ),
    ],
)
def test_each_act_names_its_machines(cluster: Path, step: str, act: str, at: set[str]) -> None:
    lines = told(cluster, step)
    assert sum(line.startswith(f"    {act}") for line in lines) == 1
    assert machines(lines) == at
    by = {line.split(", by ")[1].split(":")[0].split(";")[0] for line in lines if ", by ssh " in line}
    address = {"host1": "host1", "host2": "10.0.0.2", "host3": "host3"}
    assert by == {f"ssh chaos@{address[host]}" for host in at}


@pytest.mark.parametrize(
    ("step", "receivers"),
    [
        ("{at_s: 1, for_s: 40, fault: partition, links: 'a1 -> b1'}", {"host2"}),
        ("{at_s: 1, for_s: 40, fault: partition, links: 'a1 <-> b1'}", {"host1", "host2"}),
        ("{at_s: 1, for_s: 40, fault: partition, between: [zone:a, rest], one_way: true}", {"host2", "host3"}),
    ],
)
def test_a_cut_of_one_way_is_done_at_the_machines_that_receive(cluster: Path, step: str, receivers: set[str]) -> None:
    assert machines(told(cluster, step)) == receivers


def test_what_is_done_to_our_own_clients_is_done_on_no_machine(cluster: Path, message: Messages) -> None:
    lines = told(cluster, "{at_s: 2, for_s: 6, fault: kill_client, client: 'publisher:0'}")
    message("\n".join(lines[1:]))
    assert machines(lines) == set()


def test_what_the_management_api_does_names_no_machine(cluster: Path, message: Messages) -> None:
    lines = told(cluster, "{at_s: 2, for_s: 10, fault: rebalance}")
    message("\n".join(lines[1:]))
    assert any("management API" in line for line in lines)


def test_every_step_that_may_be_played_there_is_reported(cluster: Path) -> None:
    """The examples of all faults that act on clusters that are there already, and are allowed here."""
    seen = set()
    for step in STEPS:
        name = step.partition("fault: ")[2].split(",")[0].split("\n")[0].strip()
        try:
            scenario = fault_file.parse(f"{HEAD}schedule:\n{step}\n", driver="attached")
            lines = list(plan(fitted(scenario, cluster), cluster))
        except Exception as error:
            assert str(error)
            continue
        seen.add(name)
        acts = scenario.footprints[0].acts
        assert bool(acts) == bool(machines(lines) or any("management API" in line for line in lines)), name
    assert {"kill", "pause", "partition", "disconnect", "netem", "rebalance"} <= seen <= set(FAULTS)


def kill(node: str, *, at_s: int) -> str:
    return f"{{at_s: {at_s}, for_s: 20, fault: kill, node: {node}}}"


def cut(*between: str, at_s: int) -> str:
    return f"{{at_s: {at_s}, for_s: 20, fault: partition, between: {list(between)}}}"


AFTER = "{when: {after_step: {step: 0}}, for_s: 20, fault: kill, node: b1}"
ANY_TIME = "{when: {node_is: {node: a1, state: down}}, for_s: 20, fault: kill, node: b1}"


@pytest.mark.parametrize(
    ("steps", "refused"),
    [
        ([kill("a1", at_s=2), kill("b1", at_s=5)], ("step 0,", "kill", "2 nodes")),
        ([kill("a1", at_s=2), kill("b1", at_s=22)], ("step 0,", "kill", "2 nodes")),
        ([kill("a1", at_s=2), kill("b1", at_s=23)], ()),
        ([kill("a1", at_s=2), kill("b1", at_s=5), kill("c1", at_s=8)], ("step 0 and 1,", "kill", "3 nodes")),
        ([kill("a1", at_s=2), kill("'leader:q1'", at_s=5)], ("2 nodes",)),
        ([kill("a1", at_s=2), AFTER], ()),
        ([kill("a1", at_s=2), ANY_TIME], ("step 0,", "kill", "2 nodes")),
        ([cut("a1", "rest", at_s=2), cut("b1", "rest", at_s=5)], ("step 0,", "cut", "2 nodes")),
        ([cut("a1", "b1", at_s=2), cut("a1", "c1", at_s=5)], ()),
        ([kill("a1", at_s=2), cut("b1", "rest", at_s=5)], ()),
    ],
)
def test_steps_that_overlap_are_counted_together_before_anything_starts(
    cluster: Path, steps: list[str], refused: tuple[str, ...], message: Messages
) -> None:
    cluster.write_text(CLUSTER.partition("allow:")[0] + "allow: {kill: 1, cut: 1}\n")
    if not refused:
        told(cluster, *steps)
        return
    with message.of(NotPlayableError) as caught:
        told(cluster, *steps)
    assert all(fact in str(caught.value) for fact in refused)


def test_how_many_nodes_all_acts_take_together_is_reported(cluster: Path, message: Messages) -> None:
    """Each is allowed by itself."""
    cluster.write_text(CLUSTER.partition("allow:")[0] + "allow: {kill: 1, pause: 1, stop: 1}\n")
    steps = [f"{{at_s: {i}, for_s: 30, fault: {f}, node: {n}}}" for i, (f, n) in enumerate(ACTS_ON.items(), 1)]
    (line,) = [line for line in told(cluster, *steps) if "at once: " in line]
    assert "3 of 3" in line
    message(line)
    assert not any("at once: " in line for line in told(cluster, steps[0]))


ACTS_ON = {"kill": "a1", "pause": "b1", "stop": "c1"}

IN_PODS = """
offers:
  kubernetes: {namespace: shop, cut_by: chaos_mesh, drain_node: brokers, lose_data: claim}
allow: {kill: 1, cut: 1, delay: 2, lose_packets: 1, drain_node: 1, restart_all: 1, lose_data: 1}
"""


@pytest.mark.parametrize(
    ("step", "acts", "pods", "ends"),
    [
        (
            "{at_s: 2, for_s: 9, fault: drain_node, node: 'zone:b', whole_zones: true}",
            ["drain_node"],
            {"host2"},
            "uncordon",
        ),
        ("{at_s: 2, for_s: 9, fault: lose_disk, node: c1}", ["kill", "lose_data"], {"host3"}, "not heal"),
        (
            "{at_s: 2, for_s: 9, fault: rolling_restart}",
            ["restart_all"],
            {"host1", "host2", "host3"},
            "restarted the last broker",
        ),
        (
            "{at_s: 2, for_s: 9, fault: latency, links: 'a1 -> b1', latency_ms: 90}",
            ["delay"],
            {"host2"},
            "its duration",
        ),
    ],
)
def test_each_act_on_pods_shows_how_it_ends(
    cluster: Path, step: str, acts: list[str], pods: set[str], ends: str, *, message: Messages
) -> None:
    cluster.write_text(CLUSTER.partition("offers:")[0] + IN_PODS.lstrip())
    lines = told(cluster, step)
    assert [act for act in acts if any(line.startswith(f"    {act}: ") for line in lines)] == acts
    places = [line for line in lines if ", by pod shop/" in line]
    assert places
    message("\n".join(places))
    assert all(ends in line for line in places)
    assert {line.split("shop/")[1].split(" ")[0] for line in places} == pods


@pytest.mark.parametrize(
    ("fields", "kind", "by_rules"),
    [
        ("fault: netem, loss_percent: 10, by: iptables", "loss by iptables", True),
        ("fault: netem, loss_percent: 10", "loss by netem", False),
        ("fault: netem, delay_ms: 50", "delay by netem", False),
    ],
)
def test_what_is_not_done_to_packets_there_is_refused(
    cluster: Path, fields: str, kind: str, by_rules: bool, message: Messages
) -> None:
    step = f"{{at_s: 2, for_s: 9, links: 'a1 -> b1', {fields}}}"
    if by_rules:
        assert told(cluster, step)
    else:
        with message.of(NotPlayableError) as caught:
            told(cluster, step)
        assert kind in str(caught.value)
    in_pods = cluster.with_name("pods.yaml")
    in_pods.write_text(CLUSTER.partition("offers:")[0] + IN_PODS.lstrip())
    assert told(in_pods, step)


def test_check_only_shows_it_and_plays_nothing(
    cluster: Path, pytester: pytest.Pytester, monkeypatch: Any, message: Messages
) -> None:
    monkeypatch.chdir(pytester.path)
    step = "- {at_s: 2, for_s: 6, fault: kill, node: b1}\n"
    (pytester.path / "x.fault.yaml").write_text(f"{HEAD}schedule:\n{step}")
    result = pytester.runpytest("--check-only", f"--resilience-cluster={cluster}", "x.fault.yaml")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["WOULD DO t", "*step 0, 2 s *6 s, kill*b1:", "*rabbit@host2*"])
    (line,) = (line for line in result.outlines if "step 0, " in line)
    message(line)


def shipped(cluster: Path, allow: Mapping[str, int]) -> list[str]:
    """Those of ``faults/platforms`` that are refused where that is allowed."""
    cluster.write_text(CLUSTER.partition("allow:")[0] + f"allow: {dict(allow)}\n")
    known.cache_clear()
    refused = []
    for path in sorted((content("faults") / "platforms").glob("*.fault.yaml")):
        scenario = fault_file.load(path, driver="attached")
        try:
            fitted(scenario, cluster)
        except NotPlayableError:
            refused.append(path.name)
    return refused


def test_what_find_pods_says_is_needed_is_enough_and_no_more(cluster: Path) -> None:
    assert shipped(cluster, NEEDED) == []
    for act, nodes in NEEDED.items():
        less = {other: count for other, count in NEEDED.items() if other != act}
        assert shipped(cluster, {**less, act: nodes - 1} if nodes > 1 else less) != []
