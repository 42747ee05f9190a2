"""Cluster files: what they may state, and how they are refused; which scenarios fit them, and what is let be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.attached import fault_budget
from rabbitmq_resilience.extensions.attached.cluster_file import ClusterFileError, KnownCluster, load
from rabbitmq_resilience.extensions.attached.fault_budget import BlastRadius, FaultBudget
from rabbitmq_resilience.extensions.attached.journal import Journal
from rabbitmq_resilience.extensions.attached.on_clusters import check, refusals
from rabbitmq_resilience.extensions.attached.on_clusters import fitted as fitted_scenario
from rabbitmq_resilience.extensions.attached.shape import ShapeError, fitted, matched
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.actions import ACTIONS
from rabbitmq_resilience.model.errors import ClusterError, NotPlayableError
from rabbitmq_resilience.nemesis.fault_catalogue import FAULTS
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from tests.messages import Messages

SAID = """\
version: 1
cluster: orders
user: {env: ORDERS_USER}
password: {file: secret}
partition_handling: pause_minority
net_ticktime_s: 30
nodes:
  - {name: rabbit@h1, zone: east, amqp: "amqp://h1:5672", management: "http://h1:15672"}
  - {name: rabbit@h2, zone: c, amqp: "amqp://h2", management: "https://h2"}
  - {name: rabbit@h3, zone: west, amqp: "amqps://h3:5671", management: "http://h3:15672"}
"""
KILLED = """\
version: 1
title: A leader dies
topology: three_nodes_three_zones
schedule:
  - {at_s: 1, for_s: 30, fault: kill, node: "leader:q1"}
invariants: {no_loss: {}}
"""
SSH = "offers: {ssh: {user: chaos, sudo: true}}\nallow: {kill: 1, cut: 1, rebalance: 3}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORDERS_USER", "chaos")
    (tmp_path / "secret").write_text("hunter2\nand more\n")
    return tmp_path


def known(folder: Path, text: str = SAID) -> KnownCluster:
    path = folder / "cluster.yaml"
    path.write_text(text)
    return load(path)


def test_it_says_who_we_are_and_shows_no_password(folder: Path) -> None:
    found = known(folder)
    assert (found.access.user, found.access.password) == ("chaos", "hunter2")
    assert "hunter2" not in repr(found)
    endpoints = [node.endpoint for node in found.stated.nodes]
    assert endpoints == [("h1", 5672, ""), ("h2", 5672, ""), ("h3", 5671, "h3")]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("cluster: orders", "clustre: orders", "line 2, clustre: "),
        ("rabbit@h2", "rabbit@h1", "nodes: rabbit@h1 "),
        ("amqp://h1:5672", "amqp://guest:guest@h1", "line 8, nodes[0].amqp: "),
        ("amqp://h1:5672", "h1:5672", "line 8, nodes[0].amqp: "),
        ("http://h1:15672", "http://h1:none", "line 8, nodes[0].management: "),
        ("rabbit@h3", "h3", "line 10, nodes[2].name"),
        ("ORDERS_USER", "ORDERS_NOBODY", "line 3, user: the environment has no variable ORDERS_NOBODY, "),
        ("file: secret", "file: nowhere", "line 4, password: "),
        ("{file: secret}", "hunter2", "line 4, password: "),
        ("password: {file: secret}", "", "password: "),
        ("{file: secret}", "{file: secret, env: X}", "line 4, password: "),
        ("pause_minority", "pause", "line 5, partition_handling"),
        ("net_ticktime_s: 30", "virtual_host: /", "virtual_host: /"),
        ("net_ticktime_s: 30", "allow: {destroy: 1}", "allow: "),
        ("net_ticktime_s: 30", "ca: nowhere.pem", "line 6, ca: "),
        ("net_ticktime_s: 30", "offers: {ssh: {addresses: {rabbit@h9: h9}}}", "rabbit@h9 "),
        ("net_ticktime_s: 30", "offers: {ssh: {broker: {start: x}}}", "start and stop "),
        ("net_ticktime_s: 30", "offers: {ssh: {}, commands: {process: x}}", "ssh and commands"),
        ("net_ticktime_s: 30", "offers: {commands: {kill: {do: x, proof: y, heal: z}}}", "process"),
        ("net_ticktime_s: 30", "offers: {commands: {process: p, kill: {do: x, heal: z}}}", "proof"),
        ("net_ticktime_s: 30", "offers: {commands: {process: p, kill: {do: x, proof: y}}}", "kill"),
        (
            "net_ticktime_s: 30",
            "offers: {commands: {process: p, kill: {do: x, proof: y, heal: z, ends: never}}}",
            "ends: never",
        ),
        ("version: 1", "version: 2", "line 1, version"),
        (
            "net_ticktime_s: 30",
            "offers: {kubernetes: {pods: {rabbit@h1: h2}}}",
            "offers.kubernetes",
        ),
        ("amqp://h2", "amqp://H1:5672", "h1:5672"),
        ("https://h2", "https://h1:15672", "h1:15672"),
        (
            "net_ticktime_s: 30",
            "offers: {ssh: {addresses: {rabbit@h1: box, rabbit@h3: Box}}}",
            "offers.ssh.addresses: ",
        ),
        ("net_ticktime_s: 30", "offers: {ssh: {log: '/x/{hostname}'}}", "line 6, offers.ssh.log: "),
        ("net_ticktime_s: 30", "offers: {ssh: {log: '/x/{node.real}'}}", "offers.ssh.log: "),
        ("net_ticktime_s: 30", "offers: {ssh: {log: '/x/{node'}}", "offers.ssh.log: "),
        ("net_ticktime_s: 30", "offers: {ssh: {log: '/x/{}'}}", "offers.ssh.log: "),
    ],
)
def test_what_is_wrong_is_shown_with_its_line(folder: Path, old: str, new: str, told: str, message: Messages) -> None:
    with message.of(ClusterFileError) as refused:
        known(folder, SAID.replace(old, new))
    assert told in str(refused.value)
    assert "hunter2" not in str(refused.value)


METRICS = "abort_when: {{metrics: [{{prometheus: '{}', query: up, above: 1}}]}}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{file: secret}", "hunter2"),
        ("{file: secret}", "{env: hunter2}"),
        ("{file: secret}", "{env: 'hunter2-'}"),
        ("{file: secret}", "{file: hunter2}"),
        ("{file: secret}", "{hunter2}"),
        ("{file: secret}", "{value: hunter2}"),
        ("{file: secret}", "[hunter2]"),
        ("{file: secret}", "'FILL IN hunter2'"),
        ("{file: secret}", "*hunter2"),
        ("{file: secret}", "!hunter2 x"),
        ("{file: secret}", "!!int hunter2"),
        ("{env: ORDERS_USER}", "hunter2"),
        ("amqp://h1:5672", "amqp://me:hunter2@h1"),
        ("amqp://h1:5672", "amqp://me:hunter2#a@h1:5672"),
        ("amqp://h1:5672", "amqp://me:hunter2/a@h1:5672"),
        ("amqp://h1:5672", "amqp:/me:hunter2@h1:5672"),
        ("amqp://h1:5672", "me:hunter2@h1:5672"),
        ("http://h1:15672", "http://h1:15672?auth=hunter2"),
        ("http://h1:15672", "http://hunter2:x"),
        ("http://h1:15672", "port-forward:hunter2"),
        ('"http://h1:15672"', '{of: "me:hunter2@h1"}'),
        ('"http://h1:15672"', '"http://h1:15672", prometheus: "http://h1/hunter2"'),
        ('"http://h1:15672"', '"http://h1:15672", prometheus: ["me:hunter2@h1"]'),
        ("nodes:", "nodes: hunter2\nothers:"),
        ("net_ticktime_s: 30", METRICS.format("http://me:hunter2/a@prometheus")),
        ("net_ticktime_s: 30", METRICS.format("http://prometheus?token=hunter2")),
        ("net_ticktime_s: 30", "net_ticktime_s: hunter2"),
        ("net_ticktime_s: 30", "abort_when: {check: [curl, 'me:hunter2@shop']}"),
        ("net_ticktime_s: 30", "offers: {commands: {process: {do: 'curl -u me:hunter2'}}}"),
        ("net_ticktime_s: 30", "offers: {ssh: {addresses: {rabbit@h1: 'me:hunter2@h1'}}}"),
    ],
)
def test_what_may_be_a_secret_is_not_repeated(folder: Path, old: str, new: str) -> None:
    assert old in SAID
    with pytest.raises(ClusterFileError) as refused:
        known(folder, SAID.replace(old, new))
    assert "hunter2" not in str(refused.value)
    assert str(refused.value).count("\n  ") >= 1, "what is wrong is told"


def test_nodes_of_one_machine_differ_in_their_ports(folder: Path) -> None:
    text = SAID.replace("amqp://h1:5672", "amqp://127.0.0.1:5672").replace("amqp://h2", "amqp://127.0.0.1:5673")
    assert [node.endpoint.port for node in known(folder, text).stated.nodes][:2] == [5672, 5673]


def test_where_a_broker_logs_may_have_its_name_and_host_in_it(folder: Path) -> None:
    ssh = known(folder, SAID + "offers: {ssh: {log: '/x/{host}/{node}.log'}}\n").stated.offers.ssh
    assert ssh is not None
    assert ssh.log_of("rabbit@h1") == "/x/h1/rabbit@h1.log"


def test_zones_go_to_those_of_their_name_and_otherwise_in_order(folder: Path) -> None:
    named = matched(topology_catalogue.load("three_nodes_three_zones"), known(folder).stated)
    assert {node: one.name for node, one in named.items()} == {
        "a1": "rabbit@h1",
        "b1": "rabbit@h3",
        "c1": "rabbit@h2",
    }


def test_a_zone_of_the_same_name_and_another_size_is_no_hindrance(folder: Path) -> None:
    text = SAID.replace("zone: east", "zone: c")
    topology = topology_catalogue.load("three_nodes_three_zones").model_copy(update={"zones": {"c": 1, "a": 2}})
    named = matched(topology, known(folder, text).stated)
    assert {node: one.name for node, one in named.items()} == {
        "c1": "rabbit@h3",
        "a1": "rabbit@h1",
        "a2": "rabbit@h2",
    }


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("five_nodes_three_zones", {}),
        ("three_nodes_three_zones", {"zones": {"a": 2, "b": 1}}),
        ("three_nodes_three_zones", {"partition_handling": "autoheal"}),
        ("three_nodes_three_zones", {"rabbitmq_conf": Path("x")}),
        ("three_nodes_three_zones", {"ram_nodes": ("a1",)}),
    ],
)
def test_another_shape_is_reported(folder: Path, name: str, changes: dict[str, object], message: Messages) -> None:
    with message.of(ShapeError):
        fitted(topology_catalogue.load(name).model_copy(update=changes), known(folder).stated)


def test_a_topology_that_fits_has_the_clusters_ticktime(folder: Path) -> None:
    assert fitted(topology_catalogue.load("three_nodes_three_zones"), known(folder).stated).net_ticktime_s == 30


@pytest.mark.parametrize(
    ("act", "nodes", "told"),
    [
        ("kill", 1, ""),
        ("kill", 2, "kill: 1"),
        ("pause", 1, "allow: {pause: 1}"),
        ("delay", 1, "allow: {delay: 1}"),
        ("fill_disk", 1, "ssh with disk: /FOLDER"),
        ("rebalance", 3, ""),
    ],
)
def test_what_is_offered_must_be_allowed_too(folder: Path, act: str, nodes: int, told: str, message: Messages) -> None:
    text = FaultBudget(known(folder, SAID + SSH).stated).refusal(act, nodes)
    assert told in text
    assert (text == "") == (told == "")
    if text:
        message(text)


def test_without_a_way_in_nothing_is_done_to_brokers(folder: Path, message: Messages) -> None:
    stated = known(folder, SAID + "allow: {kill: 1, rebalance: 3}\n").stated
    text = FaultBudget(stated).refusal("kill", 1)
    assert "commands or kubernetes or ssh" in text
    message(text)
    assert FaultBudget(stated).refusal("rebalance", 3) == ""


def test_what_is_in_hand_counts_and_is_in_the_journal_before(folder: Path, message: Messages) -> None:
    hands = BlastRadius(known(folder, SAID + SSH).stated, Journal(folder / "state" / "journal.jsonl"))
    hands.take("kill", ["rabbit@h1"], for_s=5)
    assert [(row["act"], row["node"]) for row in hands.journal.unhealed()] == [("kill", "rabbit@h1")]
    with message.of(ClusterError):
        hands.take("kill", ["rabbit@h2"], for_s=5)
    hands.take("kill", ["rabbit@h1"], for_s=9)
    hands.leave("kill", ["rabbit@h1"])
    assert hands.journal.unhealed() == []
    hands.take("kill", ["rabbit@h2"], for_s=5)


def test_alarms_are_ours_by_node_and_resource_and_a_little_longer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = BlastRadius(known(folder).stated, Journal(folder / "journal.jsonl"))
    hands.alarming("rabbit@h1", "memory")
    hands.alarming("rabbit@h1", "disk")
    hands.calmed("rabbit@h1", "disk")
    hands.calmed("rabbit@h2", "disk")
    assert hands.alarmed() == {("rabbit@h1", "memory"), ("rabbit@h1", "disk")}, "brokers may still tell of it"
    monkeypatch.setattr(fault_budget, "ALARM_LINGERS_S", 0.0)
    hands.calmed("rabbit@h1", "disk")
    assert hands.alarmed() == {("rabbit@h1", "memory")}


def test_a_journal_that_cannot_be_written_lets_nothing_be_done(folder: Path, message: Messages) -> None:
    (folder / "state").write_text("a file")
    hands = BlastRadius(known(folder, SAID + SSH).stated, Journal(folder / "state" / "journal.jsonl"))
    with message.of(ClusterError):
        hands.take("kill", ["rabbit@h1"], for_s=5)
    assert hands.held(["kill"]) == []


def test_a_line_of_a_journal_that_broke_off_hides_no_other(folder: Path) -> None:
    journal = Journal(folder / "journal.jsonl")
    journal.begun("kill", "rabbit@h1", heals_by_itself_s=5)
    with journal.path.open("a") as file:
        file.write('{"act": "cut", "no')
    assert [row["node"] for row in journal.unhealed()] == ["rabbit@h1"]


def test_a_fault_file_is_refused_for_what_may_not_be_done(folder: Path, message: Messages) -> None:
    known(folder, SAID + SSH)
    scenario = fault_file.parse(KILLED, driver="attached")
    allowed = {act for step in scenario.footprints for act in step.acts}
    assert allowed
    (folder / "cluster.yaml").rename(folder / "closed.yaml")
    (folder / "closed.yaml").write_text(SAID)
    with message.of(FaultFileError) as refused:
        check(scenario, folder / "closed.yaml", source="mine")
    assert "schedule[0].fault: " in str(refused.value)
    with message.of(NotPlayableError):
        fitted_scenario(scenario, folder / "closed.yaml")


@pytest.mark.parametrize(
    ("percent", "offers", "told"),
    [
        ("100, by: iptables", "{ssh: {}}", "fault: partition"),
        ("99, by: iptables", "{ssh: {}}", ""),
        ("100", "{kubernetes: {cut_by: chaos_mesh}}", "fault: partition"),
        ("99.999", "{kubernetes: {cut_by: chaos_mesh}}", "fault: partition"),
        ("99.9", "{kubernetes: {cut_by: chaos_mesh}}", ""),
        ("5", "{ssh: {}}", "loss by iptables"),
    ],
)
def test_a_loss_of_all_packets_is_no_loss_of_some(
    folder: Path, percent: str, offers: str, told: str, message: Messages
) -> None:
    step = f'{{at_s: 1, for_s: 30, fault: netem, links: "zone:a <-> zone:b", loss_percent: {percent}}}'
    text = KILLED.replace('{at_s: 1, for_s: 30, fault: kill, node: "leader:q1"}', step)
    scenario = fault_file.parse(text, driver="attached")
    stated = known(folder, f"{SAID}offers: {offers}\nallow: {{lose_packets: 3}}\n").stated
    found = [text for _, text in refusals(scenario, stated)]
    assert len(found) == bool(told)
    assert told in "".join(found)
    for text in found:
        message(text)


def test_every_act_of_a_fault_is_known() -> None:
    topology = topology_catalogue.load("three_nodes_three_zones")
    for name, fault in FAULTS.items():
        if fault.acts_on in ("links", "processes", "orchestrator") and fault.example:
            step = fault_file.parse(
                f"version: 1\ntitle: x\ntopology: three_nodes_three_zones\nschedule:\n"
                f"  - {{at_s: 1, for_s: 30, fault: {name}, {fault.example}}}\ninvariants: {{no_loss: {{}}}}\n",
                driver=None,
            ).schedule[0]
            assert set(step.footprint(topology).acts) <= set(ACTIONS), name


def test_a_fault_that_does_not_say_what_it_does_to_brokers_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    """Of a fault of somebody else's that acts on nodes nothing could be permitted, nor planned."""
    stated = known(folder, SAID + SSH).stated
    assert not [*refusals(fault_file.parse(KILLED, driver="attached"), stated)]
    monkeypatch.setattr(Kill, "does", ())
    (refused,) = refusals(fault_file.parse(KILLED, driver="attached"), stated)
    message(refused[1])
