"""What ``heal`` says is healed was seen to be; the journal of what is left, whatever was written into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached import commanded, healing
from rabbitmq_resilience.extensions.attached.cluster_command import heal
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.healing import not_healed
from rabbitmq_resilience.extensions.attached.journal import Journal, cluster_state, journal_file
from rabbitmq_resilience.extensions.attached.node_backends import NodeBackends
from rabbitmq_resilience.extensions.attached.same_cluster import refuse_others
from rabbitmq_resilience.extensions.attached.watchdog import arm
from rabbitmq_resilience.extensions.attached.watchdog import heal as watchdog_heal
from rabbitmq_resilience.model.errors import WrongClusterError
from rabbitmq_resilience.sut.broker.management import ApiUnreachable
from tests.messages import Messages

#: Nobody listens at these addresses.
SAID = """\
version: 1
cluster: orders
user: {file: secret}
password: {file: secret}
partition_handling: pause_minority
nodes:
  - {name: rabbit@h1, zone: a, amqp: "amqp://127.0.0.1:11", management: "http://127.0.0.1:11"}
  - {name: rabbit@h2, zone: b, amqp: "amqp://127.0.0.1:21", management: "http://127.0.0.1:22"}
"""
KILLED = """\
offers:
  commands:
    process: "cat pid 2> /dev/null || true"
    kill: {do: "rm pid", proof: "! test -e pid", heal: "test -e spare && mv spare pid"}
allow: {kill: 1}
"""
NODES = ("rabbit@h1", "rabbit@h2")
TIMES = {r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*": "TIME"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(healing, "SEEN_WITHIN_S", 0.3)
    monkeypatch.setattr(commanded, "BACK_WITHIN_S", 0.3)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text("x\n")
    (tmp_path / "pid").write_text("7\n")
    return tmp_path


def file_of(folder: Path, text: str) -> Path:
    path = folder / "orders.yaml"
    path.write_text(text)
    return path


def journal(**origin: str) -> Journal:
    return Journal(journal_file("orders"), nodes=NODES, **origin)


@pytest.mark.core
@pytest.mark.parametrize(
    ("offered", "done"),
    [
        ("", ("kill", "rabbit@h1", "")),
        (KILLED, ("kill", "rabbit@gone", "")),
        (KILLED, ("drain_node", "rabbit@h1", "")),
        (KILLED, ("kill", "rabbit@h1", "the namespace shop of https://other")),
    ],
    ids=["not offered", "another node", "another act", "another place"],
)
def test_what_was_not_seen_to_be_healed_stays_in_the_journal(
    folder: Path, capsys: pytest.CaptureFixture[str], offered: str, done: tuple[str, str, str], message: Messages
) -> None:
    act, node, place = done
    file = file_of(folder, SAID + offered)
    journal(place=place, file="/their/orders.yaml").begun(act, node, heals_by_itself_s=9)
    journal().begun("kill", "rabbit@h2", heals_by_itself_s=9)
    assert heal([str(file)]) == 1
    told = capsys.readouterr().err
    assert f"{act} at {node}" in told
    assert "/their/orders.yaml" in told
    message(told, hide=TIMES)
    left = [(row["act"], row["node"]) for row in journal().unhealed()]
    assert left == [(act, node)] if offered else [(act, node), ("kill", "rabbit@h2")]


@pytest.mark.core
def test_what_was_seen_to_be_healed_leaves_nothing(folder: Path) -> None:
    journal().begun("kill", "rabbit@h1", heals_by_itself_s=9)
    assert heal([str(file_of(folder, SAID + KILLED))]) == 0
    assert not journal().path.exists()


@pytest.mark.core
def test_a_broker_that_does_not_run_is_not_healed(
    folder: Path, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    (folder / "pid").unlink()
    journal().begun("kill", "rabbit@h1", heals_by_itself_s=9)
    assert heal([str(file_of(folder, SAID + KILLED))]) == 1
    told = capsys.readouterr().err
    assert "kill at rabbit@h1" in told
    message(told, hide=TIMES)
    assert [row["node"] for row in journal().unhealed()] == ["rabbit@h1"]


@pytest.mark.core
@pytest.mark.parametrize("proof", ["true", "exit 255", "exit 126", "./not-there", "kill -9 $$"])
def test_a_proof_that_holds_or_does_not_say_leaves_the_act_unhealed(
    folder: Path, capsys: pytest.CaptureFixture[str], proof: str, message: Messages
) -> None:
    offered = KILLED.replace("! test -e pid", proof).replace("test -e spare && mv spare pid", "true")
    journal().begun("kill", "rabbit@h1", heals_by_itself_s=9)
    assert heal([str(file_of(folder, SAID + offered))]) == 1
    message(capsys.readouterr().err, hide=TIMES)
    assert [row["node"] for row in journal().unhealed()] == ["rabbit@h1"]


@pytest.mark.core
def test_a_watchdog_that_is_gone_is_stood_in_for(folder: Path) -> None:
    (folder / "pid").rename(folder / "spare")
    offered = KILLED.replace("cat pid 2> /dev/null || true", "cat pid spare 2> /dev/null || true")
    journal().begun("kill", "rabbit@h1", heals_by_itself_s=9)
    assert heal([str(file_of(folder, SAID + offered))]) == 0
    assert (folder / "pid").exists()


@pytest.mark.core
def test_acts_on_brokers_of_other_clusters_are_left(
    folder: Path, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    known = load(file_of(folder, SAID + KILLED))
    with NodeBackends.of(known) as backends:
        (machine,) = backends.keepers.values()
        for key in ("rabbit@h1:kill", "rabbit@h1-2:packets"):
            arm(machine, key, heal=f"touch {folder}/{key}", after_s=3600)
        assert heal([str(known.path)]) == 0
        assert [(folder / key).exists() for key in ("rabbit@h1:kill", "rabbit@h1-2:packets")] == [True, False]
        message(capsys.readouterr().out, hide=TIMES)
        watchdog_heal(machine, "rabbit@h1-2:packets")


class Answers:
    """The management API of one node: who it says that it is."""

    def __init__(self, node: str | None, cluster: str) -> None:
        self.node, self.cluster = node, cluster

    def overview(self) -> dict[str, str]:
        if self.node is None:
            raise ApiUnreachable("http://h1", "no one answers")
        return {"node": self.node, "cluster_name": self.cluster}


@pytest.mark.parametrize(
    ("answers", "refused"),
    [
        ([("rabbit@h1", "orders"), ("rabbit@h2", "orders")], False),
        ([("rabbit@h1", "rabbit@host1.example"), ("rabbit@h2", "orders")], False),
        ([(None, ""), ("rabbit@h2", "orders")], False),
        ([(None, ""), (None, "")], False),
        ([("rabbit@other", "orders"), ("rabbit@h2", "orders")], True),
        ([("rabbit@h1", "orders"), ("rabbit@h2", "bills")], True),
        ([("rabbit@h1", "bills"), (None, "")], True),
    ],
)
def test_nothing_is_healed_where_another_cluster_answers(
    folder: Path, answers: list[tuple[str | None, str]], refused: bool, message: Messages
) -> None:
    known = load(file_of(folder, SAID))
    apis: list[Any] = [Answers(*answer) for answer in answers]
    if not refused:
        refuse_others(known, apis)
        return
    with message.of(WrongClusterError):
        refuse_others(known, apis)


def test_nothing_is_healed_beneath_a_run(folder: Path, capsys: pytest.CaptureFixture[str], message: Messages) -> None:
    journal().begun("kill", "rabbit@h1", heals_by_itself_s=9)
    with journal().held() as ours:
        assert ours
        assert heal([str(file_of(folder, SAID + KILLED))]) == 1
    message(capsys.readouterr().err)
    assert len(journal().unhealed()) == 1


@pytest.mark.core
def test_another_cluster_of_the_name_is_neither_asked_about_nor_cleared(folder: Path) -> None:
    theirs = Journal(journal_file("orders"), nodes=["rabbit@elsewhere"])
    theirs.begun("kill", "rabbit@elsewhere", heals_by_itself_s=9)
    journal().begun("kill", "rabbit@h1", heals_by_itself_s=9)
    assert heal([str(file_of(folder, SAID + KILLED))]) == 0
    assert journal().left() == []
    assert len(theirs.unhealed()) == 1


@pytest.mark.core
@pytest.mark.parametrize("file", ["", "/their/bills.yaml"])
def test_what_is_left_of_another_cluster_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], file: str, message: Messages
) -> None:
    """The cluster file that was given may be the wrong one, also if it is of the same name."""
    for name, node in (("bills", "rabbit@h1"), ("orders", "rabbit@elsewhere")):
        Journal(journal_file(name), nodes=[node], file=file).begun("kill", node, heals_by_itself_s=9)
    Journal(journal_file("healed")).healed("kill", "rabbit@h3")
    assert heal([str(file_of(folder, SAID + KILLED))]) == 0
    left = [line for line in capsys.readouterr().err.splitlines() if "another cluster" in line]
    assert [("rabbit@h1" in line, "rabbit@elsewhere" in line) for line in left] == [(True, False), (False, True)]
    message("\n".join(left), hide=TIMES)


@pytest.mark.core
def test_what_another_machine_or_user_has_left_lets_no_run_begin(folder: Path, message: Messages) -> None:
    known = load(file_of(folder, SAID + KILLED))
    with NodeBackends.of(known) as backends:
        assert not_healed(known, backends, journal()) == ""
        (machine,) = backends.keepers.values()
        for key in ("rabbit@h9:kill", "rabbit@h1:kill"):
            arm(machine, key, heal="test -e over", after_s=3600)
            text = not_healed(known, backends, journal())
            assert f"{key} (this machine)" in text
            message(text)
        (folder / "over").touch()
        assert heal([str(known.path)]) == 0
        assert watchdog_heal(machine, "rabbit@h9:kill"), "heal left it alone"


@pytest.mark.core
def test_a_line_that_broke_off_swallows_no_other_and_is_reported(
    folder: Path, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    found = journal()
    found.path.parent.mkdir(parents=True)
    found.path.write_bytes(b'{"at": "2026-11-25T09:00:00+00:00", "act": "ki')
    found.begun("kill", "rabbit@h1", heals_by_itself_s=9)
    assert [row["node"] for row in found.unhealed()] == ["rabbit@h1"]
    (unreadable,) = found.unreadable()
    assert unreadable.endswith(str(found.path))
    message(unreadable)
    assert heal([str(file_of(folder, SAID + KILLED))]) == 1
    message(capsys.readouterr().err, hide=TIMES)
    (left,) = found.left()
    message(left)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe garbage\n",
        b"[1]\n",
        b'{"act": "kill", "node": "rabbit@h1"}\n',
        b'{"act": "kill", "node": "rabbit@h1", "state": "starting"}\n',
        b'{"act": "kill", "node": "rabbit@h1", "state": "begun", "nodes": null}\n',
        b'{"act": "kill", "node": "rabbit@h1", "state": "begun", "place": []}\n',
    ],
    ids=["garbage", "a list", "no state", "another state", "no nodes", "a place that is a list"],
)
def test_whatever_is_no_line_counts_as_not_healed(folder: Path, line: bytes, message: Messages) -> None:  # noqa: ARG001 - its state
    found = journal()
    found.path.parent.mkdir(parents=True)
    found.path.write_bytes(line)
    (left,) = found.left()
    assert str(found.path) in left
    message(left)


def test_every_name_of_a_cluster_has_a_journal_of_its_own() -> None:
    names = ["shop/eu", "shop eu", "shop_eu", "café", "caf_", "..", "x" * 200, "é" * 199 + "x", "é" * 199 + "y"]
    assert len({journal_file(name) for name in names} | {cluster_state(name) for name in names}) == 2 * len(names)
    assert max(len(journal_file(name).name) for name in names) < 250


def test_two_runs_of_one_user_tell_each_other(folder: Path) -> None:
    known = load(file_of(folder, SAID))
    with journal().held(), NodeBackends.of(known) as backends:
        assert backends.place == ""
        with journal().held() as ours:
            assert not ours
    with journal().held() as ours:
        assert ours
