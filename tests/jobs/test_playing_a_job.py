"""A Job from its making to its end, with a stand-in for the API server: what becomes of it in between."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached.kubernetes.job_states import JobStatus
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.jobs import folder_archive, job_player
from rabbitmq_resilience.extensions.jobs.interrupts import Interrupts
from rabbitmq_resilience.extensions.jobs.job_player import LOST, NOT_PLAYED, Playing
from rabbitmq_resilience.extensions.jobs.paths import WORK
from tests.clock import waits_by_clock
from tests.jobs.shell import run_in_shell
from tests.messages import Messages

WAITS = JobStatus("p", waits="a node for pod p: 0/3 nodes are available")
PLAYS = JobStatus("p", plays=True, kept=True)


def ended(status: int, reason: str = "Completed") -> JobStatus:
    return JobStatus("p", status=status, reason=reason, kept=True)


@dataclass
class Container:
    """A container of the pod, whose /scratch is a folder here."""

    work: Path
    run_there: list[str] = field(default_factory=list)
    harm: Callable[[str], str] = str
    state: str = ""
    description: str = "pod p"

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:  # noqa: ARG002 - as machines have it
        self.run_there.append(script)
        if "pack" in script:
            return folder_archive.pack(self.work / "results", self.work / "parcel.tar.gz").text
        if "kill" in script:
            return ""
        here = tuple(one.replace(WORK, str(self.work)) for one in arguments)
        return self.harm(run_in_shell(script, *here))

    def connect(self, host: str, port: int, *, timeout_s: float | None) -> socket.socket:
        raise NotImplementedError


@dataclass
class StandIn:
    """``sees`` is what it tells, one after another, the last again and again; errors are raised."""

    container: Container
    sees: list[JobStatus | Exception]
    why: str = ""
    made: list[str] = field(default_factory=list)
    removed: int = 0
    left: bool = False

    def make(self, job: Mapping[str, Any], belongings: Sequence[Mapping[str, Any]]) -> None:
        self.made += [job["kind"], *(one["kind"] for one in belongings)]

    def look(self) -> JobStatus:
        found = self.sees.pop(0) if len(self.sees) > 1 else self.sees[0]
        if isinstance(found, Exception):
            raise found
        return found

    def refusals(self) -> str:
        return self.why

    def player(self, _pod: str) -> Container:
        return self.container

    keeper = player

    @contextmanager
    def output(self, _pod: str, say: Callable[[str], None]) -> Iterator[None]:
        say("what pytest prints")
        yield

    def remove(self, *, within_s: float) -> None:
        self.removed += 1
        if self.left:
            raise MachineError(f"waited {within_s:g} s for it to be gone")


@dataclass
class Desk:
    to: Path
    remote: StandIn
    interrupts: Interrupts
    said: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    @property
    def talk(self) -> str:
        return "\n".join(self.said)

    def saying(self, part: str) -> str:
        """Return the only line that contains ``part``."""
        (line,) = (line for line in self.said if part in line)
        return line

    def plays(self) -> int:
        one = Playing(self.remote, self.interrupts, self.said.append, self.shown.append)
        status = one.play({"kind": "Job"}, [{"kind": "ConfigMap"}, {"kind": "Secret"}], self.to)
        assert self.remote.removed == 1
        return status


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    waits_by_clock(monkeypatch, job_player)
    results = tmp_path / "work" / "results"
    (results / "runs" / "a").mkdir(parents=True)
    (results / "runs" / "a" / "fault.yaml").write_text("title: A\n", encoding="utf-8")
    (results / "ended.json").write_text(json.dumps({"status": 1}), encoding="utf-8")
    with Interrupts() as interrupts:
        yield Desk(tmp_path / "back", StandIn(Container(tmp_path / "work"), [PLAYS, ended(1, "Error")]), interrupts)


def test_it_ends_as_pytest_did_and_what_was_recorded_is_here(desk: Desk, message: Messages) -> None:
    desk.remote.sees[:0] = [JobStatus(waits="its pod to be made"), WAITS, WAITS]
    assert desk.plays() == 1
    assert desk.remote.made == ["Job", "ConfigMap", "Secret"]
    assert (desk.to / "runs" / "a" / "fault.yaml").read_text(encoding="utf-8") == "title: A\n"
    assert desk.shown == ["what pytest prints"]
    assert (desk.remote.container.work / "fetched").exists()
    assert WAITS.waits in desk.said[0]
    assert "status 1" in desk.said[1]
    assert str(desk.to) in desk.said[2]
    message(desk.talk)


def test_a_pod_that_is_evicted_takes_what_was_recorded_with_it(desk: Desk, message: Messages) -> None:
    evicted = JobStatus("p", lost="pod p was ended by its node (Evicted): The node was low on resource: memory.")
    desk.remote.sees = [PLAYS, PLAYS, evicted]
    assert desk.plays() == LOST
    assert evicted.lost in desk.said[0]
    message(desk.said[0])
    assert not desk.to.exists()


def test_a_pod_that_is_being_ended_is_fetched_from(desk: Desk, message: Messages) -> None:
    """Its node still says that it plays, until the last container has ended."""
    why = "pod p was ended by the cluster (Eviction): so it is"
    written = desk.remote.container.work / "results" / "ended.json"
    written.unlink()
    looked = iter([False, True])

    def heals(told: str) -> str:
        if next(looked, False):
            written.write_text('{"status": 2}', encoding="utf-8")
        return told

    desk.remote.container.harm = heals
    desk.remote.sees = [PLAYS, replace(PLAYS, ends=why)]
    assert desk.plays() == 2
    assert desk.said[0].startswith(why)
    message(desk.said[0])
    assert desk.said.count(desk.said[0]) == 1
    assert (desk.to / "runs").is_dir()


def test_a_node_that_does_not_come_back_is_not_waited_for_for_ever(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setattr(job_player, "GRACE_S", 0.0)
    (desk.remote.container.work / "results" / "ended.json").unlink()
    why = "the node of pod p (node1) does not answer any more"
    desk.remote.sees = [PLAYS, replace(PLAYS, ends=why)]
    assert desk.plays() == LOST
    assert desk.said[1].startswith(why)
    message(desk.said[1])


def test_a_job_whose_time_is_over_is_reported(desk: Desk) -> None:
    lost = "the Job was ended, as its time was over (60 s)"
    desk.remote.sees = [PLAYS, JobStatus(lost=lost)]
    assert desk.plays() == LOST
    assert lost in desk.said[0]


def test_an_image_that_cannot_be_had_is_reported_at_once_and_nothing_was_played(desk: Desk) -> None:
    lost = "play cannot be started (ErrImageNeverPull): no such image"
    desk.remote.sees = [JobStatus("p", lost=lost)]
    assert desk.plays() == NOT_PLAYED
    assert desk.said[0] == lost


def test_a_job_of_which_no_pod_is_made_says_why(desk: Desk, message: Messages) -> None:
    desk.remote.sees, desk.remote.why = [JobStatus(waits="its pod to be made")], "FailedCreate: exceeded quota: small"
    assert desk.plays() == NOT_PLAYED
    assert desk.remote.why in desk.said[0]
    message(desk.said[0])


def test_what_does_not_start_in_time_says_what_it_waits_for(desk: Desk, message: Messages) -> None:
    desk.remote.sees = [WAITS]
    assert desk.plays() == NOT_PLAYED
    assert WAITS.waits in desk.said[1]
    message(desk.said[1])


def test_a_pytest_that_was_killed_leaves_what_it_had_recorded(desk: Desk, message: Messages) -> None:
    (desk.remote.container.work / "results" / "ended.json").unlink()
    desk.remote.sees = [PLAYS, ended(137, "OOMKilled")]
    assert desk.plays() == 137
    assert "137 (OOMKilled)" in desk.said[0]
    message(desk.talk)
    assert (desk.to / "runs" / "a" / "fault.yaml").exists()


def test_a_container_that_ends_well_without_pytest_is_no_success(desk: Desk) -> None:
    (desk.remote.container.work / "results" / "ended.json").unlink()
    desk.remote.sees = [PLAYS, ended(0)]
    assert desk.plays() == LOST


def test_what_does_not_come_whole_is_no_success(desk: Desk, message: Messages) -> None:
    desk.remote.container.harm = lambda text: text[:8]
    desk.remote.sees = [PLAYS, ended(0)]
    assert desk.plays() == LOST
    message(desk.said[-3], hide={r"\d+ of \d+ bytes": "N of M bytes"})
    assert not desk.to.exists()


def test_what_no_one_kept_is_lost(desk: Desk, message: Messages) -> None:
    desk.remote.sees = [PLAYS, JobStatus("p", status=137, reason="OOMKilled")]
    assert desk.plays() == LOST
    message(desk.talk)


def test_a_disk_that_has_no_room_for_it_is_reported(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folder_archive, "fetch", full)
    assert desk.plays() == LOST
    told = desk.saying("No space left on device")
    assert str(desk.to) in told
    message(told)


def test_an_api_server_that_is_away_for_a_moment_is_asked_again(desk: Desk, message: Messages) -> None:
    away = MachineError("Job j in shop: connection refused")
    desk.remote.sees = [PLAYS, away, away, ended(1)]
    assert desk.plays() == 1
    message(desk.saying(str(away)))


def test_an_api_server_that_stays_away_is_given_up(desk: Desk, message: Messages) -> None:
    desk.remote.sees = [PLAYS, MachineError("Job j in shop: connection refused")]
    assert desk.plays() == LOST
    assert sum("Job j in shop: connection refused" in line for line in desk.said) == 2
    message(desk.talk)


def test_what_may_be_left_is_reported(desk: Desk, message: Messages) -> None:
    desk.remote.left = True
    assert desk.plays() == 1
    assert "to be gone" in desk.said[-1]
    message(desk.said[-1])


def test_an_interrupt_asks_pytest_once_to_end_in_order(desk: Desk) -> None:
    (desk.remote.container.work / "results" / "ended.json").write_text('{"status": 2}', encoding="utf-8")
    desk.remote.sees = [PLAYS, PLAYS, PLAYS, ended(2, "Error")]
    looks = desk.remote.look

    def look() -> JobStatus:
        desk.interrupts.asked = desk.interrupts.asked or len(desk.remote.sees) == 3
        return looks()

    desk.remote.look = look  # type: ignore[method-assign]
    assert desk.plays() == 2
    assert desk.remote.container.run_there.count("kill -INT 1") == 1
    assert (desk.to / "runs").is_dir()


def test_an_interrupt_before_anything_plays_only_removes(desk: Desk) -> None:
    desk.interrupts.asked = True
    desk.remote.sees = [WAITS]
    with pytest.raises(KeyboardInterrupt):
        desk.plays()
    assert desk.remote.removed == 1
