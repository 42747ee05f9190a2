"""What a Job is asked to play: refused here where it is wrong, and written as it is found there."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rabbitmq_resilience.extensions.attached.cluster_model import ClusterFile
from rabbitmq_resilience.extensions.jobs import job_command
from rabbitmq_resilience.extensions.jobs.job_request import OrderError, ordered
from rabbitmq_resilience.model.yaml_files import FileRefusedError
from rabbitmq_resilience.scenario import fault_file
from tests.messages import Messages

CLUSTER = """\
version: 1
cluster: orders
user: {env: ORDERS_USER}
password: {file: secret}
partition_handling: pause_minority
net_ticktime_s: 30
nodes:
  - {name: rabbit@rabbit-0.rabbit.shop.svc, zone: a, amqp: "port-forward:5672", management: "port-forward:15672"}
  - {name: rabbit@rabbit-1, zone: b, amqp: "port-forward:5672", management: "port-forward:15672"}
  - {name: rabbit@rabbit-2.rabbit.shop.svc, zone: c, amqp: "amqp://10.0.0.3:5672", management: "http://10.0.0.3:15672"}
offers: {kubernetes: {namespace: shop, kubeconfig: mine, context: prod, pull: Never}}
allow: {kill: 1}
"""
KILL = """\
version: 1
title: A node dies  # as it happened to us
topology: three_nodes_three_zones
schedule: [{fault: kill, node: a1, at_s: 1, for_s: 5}]
invariants: {no_loss: {}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORDERS_USER", "chaos")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text("hunter2\n", encoding="utf-8")
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    (tmp_path / "kill.fault.yaml").write_text(KILL, encoding="utf-8")
    return tmp_path


def test_a_program_is_not_taken_along(folder: Path, message: Messages) -> None:
    application = """\
version: 1
title: A node dies under a program
topology: three_nodes_three_zones
workload: {kind: application, processes: [{name: worker, command: ["true"]}]}
schedule: [{fault: kill, node: a1, at_s: 1, for_s: 5}]
invariants: {no_loss: {}}
"""
    (folder / "program.fault.yaml").write_text(application, encoding="utf-8")
    with message.of(OrderError):
        ordered(folder / "cluster.yaml", [folder / "program.fault.yaml"])


def test_the_cluster_file_is_as_it_is_seen_there(folder: Path) -> None:
    order = ordered(folder / "cluster.yaml", [folder / "kill.fault.yaml"])
    plain = yaml.safe_load(order.files["cluster.yaml"])
    there = ClusterFile.model_validate_json(ClusterFile.model_validate(plain).model_dump_json())
    assert [node.amqp for node in there.nodes] == [
        "amqp://rabbit-0.rabbit.shop.svc:5672",
        "port-forward:5672",  # its host is known to nobody there
        "amqp://10.0.0.3:5672",
    ]
    assert there.nodes[0].management == "http://rabbit-0.rabbit.shop.svc:15672"
    assert plain["user"] == {"file": "/credentials/user"}
    assert plain["password"] == {"file": "/credentials/password"}
    assert plain["offers"] == {"kubernetes": {"namespace": "shop", "pull": "Never"}}
    assert plain["allow"] == {"kill": 1}


def test_fault_files_go_along_as_they_were_written(folder: Path) -> None:
    order = ordered(folder / "cluster.yaml", [folder])
    assert order.scenarios == ["001-kill.fault.yaml"]
    assert order.files["001-kill.fault.yaml"] == KILL


def test_a_topology_of_its_own_goes_along(folder: Path) -> None:
    mine = "name: mine\nzones: {a: 1, b: 1, c: 1}\npartition_handling: pause_minority\n"
    (folder / "mine.yaml").write_text(mine, encoding="utf-8")
    (folder / "kill.fault.yaml").write_text(KILL.replace("three_nodes_three_zones", "mine.yaml"), encoding="utf-8")
    text = ordered(folder / "cluster.yaml", [folder / "kill.fault.yaml"]).files["001-kill.fault.yaml"]
    assert fault_file.parse(text, folder=Path("/nowhere"), driver="attached").topology.name == "mine"


def test_what_cannot_be_played_is_reported_and_alone_it_is_refused(folder: Path, message: Messages) -> None:
    other = KILL.replace("three_nodes_three_zones", "five_nodes_three_zones")
    (folder / "other.fault.yaml").write_text(other, encoding="utf-8")
    order = ordered(folder / "cluster.yaml", [folder])
    assert len(order.scenarios) == 2
    assert [text.partition(": ")[0] for text in order.left_out] == [str(folder / "other.fault.yaml")]
    message(order.left_out[0])
    with message.of(OrderError):
        ordered(folder / "cluster.yaml", [folder / "other.fault.yaml"])


@pytest.mark.parametrize(
    ("cluster", "fault", "named"),
    [
        pytest.param(
            CLUSTER.replace("kubernetes: {namespace: shop, kubeconfig: mine, context: prod, pull: Never}", ""),
            KILL,
            "offers: {kubernetes",
            id="no_kubernetes",
        ),
        pytest.param(CLUSTER, KILL.replace("fault: kill", "fault: kil"), "mean kill?", id="no_such_fault"),
        pytest.param(CLUSTER, KILL.replace("fault: kill", "fault: pause"), "schedule[0].fault", id="not_offered"),
        pytest.param(
            CLUSTER.replace("pull: Never", "cut_by: network_policy").replace("{kill: 1}", "{kill: 1, cut: 1}"),
            KILL,
            "cut_by: network_policy",
            id="no_end_of_its_own",
        ),
    ],
)
def test_what_is_wrong_is_refused(folder: Path, cluster: str, fault: str, named: str, message: Messages) -> None:
    for n in range(3):
        cluster = cluster.replace('"port-forward:5672"', f'"amqp://h{n}:5672"', 1)
        cluster = cluster.replace('"port-forward:15672"', f'"http://h{n}:15672"', 1)
    file = folder / "wrong.yaml"
    file.write_text(cluster, encoding="utf-8")
    (folder / "kill.fault.yaml").write_text(fault, encoding="utf-8")
    with message.of(OrderError, FileRefusedError) as refused:
        ordered(file, [folder / "kill.fault.yaml"])
    assert named in str(refused.value)


def test_an_act_that_would_not_end_without_its_machine_is_refused(folder: Path, message: Messages) -> None:
    file = folder / "drained.yaml"
    file.write_text(CLUSTER.replace("{kill: 1}", "{kill: 1, drain: 1}"), encoding="utf-8")
    with message.of(OrderError) as refused:
        ordered(file, [folder / "kill.fault.yaml"])
    assert "allow: drain" in str(refused.value)


def test_what_is_not_there_is_refused(folder: Path, message: Messages) -> None:
    (folder / "empty").mkdir()
    with message.of(OrderError) as refused:
        ordered(folder / "cluster.yaml", [folder / "away.fault.yaml"])
    assert "away.fault.yaml" in str(refused.value)
    with message.of(OrderError):
        ordered(folder / "cluster.yaml", [folder / "empty"])


def test_more_than_a_config_map_holds_is_refused(folder: Path, message: Messages) -> None:
    padded = KILL + "# " + "x" * 600_000 + "\n"
    for name in "ab":
        (folder / f"{name}.fault.yaml").write_text(padded, encoding="utf-8")
    with message.of(OrderError) as refused:
        ordered(folder / "cluster.yaml", [folder])
    assert "3 fault files" in str(refused.value)


def test_a_password_that_would_be_another_one_there_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setenv("ORDERS_USER", "two\nlines")
    with message.of(OrderError) as refused:
        ordered(folder / "cluster.yaml", [folder / "kill.fault.yaml"])
    assert "user: " in str(refused.value)


@pytest.mark.usefixtures("folder")
def test_a_dry_run_prints_what_would_be_made_without_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["cluster.yaml", "kill.fault.yaml", "--image", "local/resilience:1", "--dry-run", "--", "-k", "dies"]
    assert job_command.main(asked, program="job") == 0
    printed = capsys.readouterr().out
    config, secret, job = yaml.safe_load_all(printed)
    assert "hunter2" not in printed
    assert "chaos" not in printed
    assert secret["stringData"] == {"user": "(left out)", "password": "(left out)"}
    assert config["data"]["001-kill.fault.yaml"] == KILL
    assert {one["metadata"]["name"] for one in (config, secret, job)} == {config["metadata"]["name"]}
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["activeDeadlineSeconds"] == 600 + 3600 + 120 + 900
    player, keeper = job["spec"]["template"]["spec"]["containers"]
    assert player["command"][-3:] == ["-k", "dies", "/scenarios/001-kill.fault.yaml"]
    assert "credentials" not in {mount["name"] for mount in keeper["volumeMounts"]}
    assert {one["image"] for one in (player, keeper)} == {"local/resilience:1"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--image", "Not An Image"], "--image"),
        (["--image", "x", "--limit-min", "0"], "--limit-min"),
        (["--image", "x", "--memory", "much"], "--memory"),
        ([], "--image"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    folder: Path, options: list[str], named: str, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    with pytest.raises(SystemExit) as ended:
        job_command.main([str(folder / "cluster.yaml"), "kill.fault.yaml", *options], program="job")
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert named in last
    message(last)


def test_a_folder_that_holds_something_is_not_written_into(
    folder: Path, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    asked = ["cluster.yaml", "kill.fault.yaml", "--image", "x", "--to", str(folder)]
    assert job_command.main(asked, program="job") == 4
    message(capsys.readouterr().err)
