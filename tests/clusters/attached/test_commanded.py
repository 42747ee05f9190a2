"""Acts by commands of those who run brokers, which are files in the place of processes here."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rabbitmq_resilience.extensions.attached import commanded, watchdog
from rabbitmq_resilience.extensions.attached.cluster_command import heal
from rabbitmq_resilience.extensions.attached.cluster_model import AttachedNode
from rabbitmq_resilience.extensions.attached.commanded import (
    CommandedBroker,
    CommandedLinks,
    OurMachine,
    Surroundings,
    key_of,
)
from rabbitmq_resilience.extensions.attached.journal import Journal, journal_file
from rabbitmq_resilience.extensions.attached.machine import MachineError, NoAnswerError
from rabbitmq_resilience.extensions.attached.offers import CommandedAct, Commands
from rabbitmq_resilience.extensions.attached.packet_rules import DROP
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.tools.waiting import wait_until
from tests.messages import Messages

PROCESS = "cat up 2> /dev/null || true"
KILL = CommandedAct(do="rm -f up", proof="! test -e up", heal="echo another > up")


def node(name: str) -> AttachedNode:
    return AttachedNode(name=name, zone="a", amqp="amqp://h", management="http://h:15672")


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OurMachine]:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "up").write_text("first")
    monkeypatch.setattr(commanded, "IN_EFFECT_WITHIN_S", 1.0)
    monkeypatch.setattr(commanded, "BACK_WITHIN_S", 1.0)
    monkeypatch.setattr(watchdog, "MARGIN_S", 0.0)
    found = OurMachine(str(tmp_path / "state"))
    yield found
    for key in watchdog.armed(found):
        os.kill(int((tmp_path / "state" / key / "pid").read_text()), 9)


def broker(keeper: OurMachine, name: str = "rabbit@h1", **acts: CommandedAct) -> CommandedBroker:
    folder = Path(keeper.state).parent / "here"
    return CommandedBroker(name, Commands(process=PROCESS, **acts), keeper, Surroundings.of(node(name), folder))


@pytest.mark.attached
def test_what_takes_longer_than_it_lasts_is_done_before_it_is_healed(keeper: OurMachine) -> None:
    found = broker(keeper, stop=CommandedAct(do="sleep 3; rm -f up", proof=KILL.proof, heal=KILL.heal))
    found.stop(for_s=0)
    wait_until(lambda: found.state() == "running", timeout_s=30, what="its watchdog to heal it")
    found.give_back()
    process = found.process()
    assert process is not None
    assert process.name == "another"


class Impatient(OurMachine):
    """Waits for a script that does an act only until that has written the file ``started``."""

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        if timeout_s != watchdog.DONE_WITHIN_S:
            return super().run(script, *arguments, timeout_s=timeout_s)
        started = Path(self.state).parent / "here" / "started"

        def go_on() -> None:
            with suppress(MachineError):  # it is killed
                super(Impatient, self).run(script, *arguments, timeout_s=60)

        threading.Thread(target=go_on).start()
        wait_until(lambda: started.exists() and started.read_text().strip(), timeout_s=60, what="the act to begin")
        raise NoAnswerError("it took too long")


@pytest.mark.core
def test_what_takes_too_long_is_ended_with_all_that_it_has_started(keeper: OurMachine) -> None:
    machine = Impatient(keeper.state)
    found = broker(machine, stop=CommandedAct(do="sleep 3600 & echo $! > started; wait", proof="true", heal="true"))
    with pytest.raises(NoAnswerError, match="it took too long"):
        found.stop(for_s=60)
    started = int((Path(keeper.state).parent / "here" / "started").read_text())
    wait_until(lambda: not psutil.pid_exists(started), timeout_s=10, what="its process to be gone")
    watchdog.heal(keeper, f"{key_of('rabbit@h1')}-stop")


@pytest.mark.attached
def test_it_is_not_given_back_before_that_is_seen(keeper: OurMachine, message: Messages) -> None:
    found = broker(keeper, kill=CommandedAct(do=KILL.do, proof=KILL.proof, heal="true"))
    found.kill(for_s=60)
    for _ in range(2):
        with message.of(MachineError):
            found.give_back()
    (Path(keeper.state).parent / "here" / "up").write_text("first")
    with message.of(MachineError):
        found.give_back()
    (Path(keeper.state).parent / "here" / "up").write_text("second")
    found.give_back()


@pytest.mark.core
def test_where_no_one_watches_any_more_it_is_healed_all_the_same(keeper: OurMachine) -> None:
    found = broker(keeper, kill=KILL)
    found.kill(for_s=60)
    watched = Path(keeper.state) / "rabbit@h1:kill"
    os.kill(int((watched / "pid").read_text()), 9)
    (watched / "heal").unlink()
    found.give_back()
    assert found.state() == "running"


@pytest.mark.core
def test_what_never_ends_is_never_given_back(keeper: OurMachine, message: Messages) -> None:
    found = broker(keeper, kill=CommandedAct(do=KILL.do, proof=KILL.proof, ends="never"))
    found.kill(for_s=1)
    for _ in range(2):
        (Path(keeper.state).parent / "here" / "up").write_text("another")
        with message.of(MachineError):
            found.give_back()


@pytest.mark.core
def test_nodes_whose_names_are_alike_and_acts_of_one_node_are_watched_over_by_themselves(keeper: OurMachine) -> None:
    pause = CommandedAct(do="touch $NODE.paused", proof="test -e $NODE.paused", heal="rm $NODE.paused")
    nodes = [broker(keeper, name, kill=KILL, pause=pause) for name in ("rabbit@mq_1", "rabbit@mq-1")]
    for found in nodes:
        found.pause(for_s=60)
    nodes[0].kill(for_s=60)
    assert watchdog.armed(keeper) == ["rabbit@mq-1:pause", "rabbit@mq_1:kill", "rabbit@mq_1:pause"]
    for found in nodes:
        found.give_back()
    assert [found.state() for found in nodes] == ["running", "running"]


@pytest.mark.core
def test_commands_are_run_in_the_folder_of_the_cluster_file_wherever_we_are(
    keeper: OurMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    broker(keeper, kill=KILL).kill(for_s=60)
    assert watchdog.heal(keeper, "rabbit@h1:kill")
    assert (tmp_path / "here" / "up").exists()
    assert not (tmp_path / "there" / "up").exists()


@pytest.mark.core
def test_every_command_knows_how_long_it_is_for(keeper: OurMachine) -> None:
    note = 'echo "{} $FOR_S" >> told'
    acts = {"do": f"{note.format('do')}; {KILL.do}", "proof": f"{note.format('proof')}; {KILL.proof}"}
    found = broker(keeper, kill=CommandedAct(**acts, heal=f"{note.format('heal')}; {KILL.heal}"))
    found.commands = found.commands.model_copy(update={"process": f"{note.format('process')}; {PROCESS}"})
    found.kill(for_s=7)
    found.give_back()
    told = (Path(keeper.state).parent / "here" / "told").read_text().splitlines()
    assert {*told} == {"process 0", "do 7", "proof 7", "heal 7"}


@pytest.mark.core
def test_a_link_is_not_whole_before_its_proof_says_so(keeper: OurMachine, tmp_path: Path, message: Messages) -> None:
    heal = "! test -e let || rm $NODE.$PEER"
    act = CommandedAct(do="touch $NODE.$PEER", proof="test -e $NODE.$PEER", heal=heal)
    links = CommandedLinks(act, keeper, tmp_path / "here", {"a1": node("rabbit@h1"), "b1": node("rabbit@h2")})
    link = Link("a1", "b1")
    links.put(DROP, [link], for_s=60)
    assert links.attested([link]) == {link: True}
    assert watchdog.armed(keeper) == ["rabbit@h2:from:rabbit@h1"]
    with message.of(MachineError):
        links.take(DROP, [link])
    (tmp_path / "here" / "let").touch()
    links.take(DROP, [link])
    assert links.attested([link]) == {link: False}


@pytest.mark.core
@pytest.mark.parametrize(
    ("proof", "found"), [("true", {True}), ("false", {False}), ("exit 255", set()), ("./no", set())]
)
def test_a_proof_that_gives_no_answer_shows_neither(keeper: OurMachine, proof: str, found: set[bool]) -> None:
    act = CommandedAct(do="true", proof=proof, heal="true")
    folder = Path(keeper.state).parent / "here"
    links = CommandedLinks(act, keeper, folder, {"a1": node("rabbit@h1"), "b1": node("rabbit@h2")})
    assert {*links.attested([Link("a1", "b1")]).values()} == found


@pytest.mark.core
def test_heal_forgets_nothing_that_it_has_not_seen(
    keeper: OurMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", keeper.state)
    file = tmp_path / "here" / "cluster.yaml"
    (tmp_path / "here" / "secret").write_text("x\n")
    file.write_text(
        "version: 1\ncluster: orders\nuser: {file: secret}\npassword: {file: secret}\n"
        "partition_handling: pause_minority\nallow: {kill: 1}\n"
        "nodes: [{name: rabbit@h1, zone: a, amqp: 'amqp://h1', management: 'http://h1'}]\n"
        f"offers: {{commands: {{process: '{PROCESS}', kill: {{do: rm up, proof: 'false', ends: never}}}}}}\n"
    )
    journal = Journal(journal_file("orders"))
    journal.begun("kill", "rabbit@h1", heals_by_itself_s=1)
    (tmp_path / "here" / "up").unlink()
    assert heal([str(file)]) == 1
    assert len(journal.unhealed()) == 1
    (tmp_path / "here" / "up").write_text("another")
    assert heal([str(file)]) == 0
    assert journal.unhealed() == []


def test_keys_are_different_where_names_are() -> None:
    names = ["rabbit@mq_1", "rabbit@mq-1", "rabbit@mq.1", "rabbit-mq_1", "rabbit@mq/1", "rabbit@mq%2F1"]
    keys = [key_of(name) for name in names]
    assert len({*keys}) == len(names)
    assert not any("/" in key for key in keys)
    assert key_of("rabbit@host-1.example") == "rabbit@host-1.example"
