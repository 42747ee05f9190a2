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

from rabbitmq_resilience.clusters.attached.commanded import run_here
from rabbitmq_resilience.clusters.attached.kubernetes.job_states import Seen
from rabbitmq_resilience.clusters.attached.machine import MachineError
from rabbitmq_resilience.jobs import parcels, playing
from rabbitmq_resilience.jobs.interrupts import Interrupts
from rabbitmq_resilience.jobs.places import WORK
from rabbitmq_resilience.jobs.playing import LOST, NOT_PLAYED, Playing

WAITS = Seen("p", waits="a node for pod p: 0/3 nodes are available")
PLAYS = Seen("p", plays=True, kept=True)


def ended(status: int, reason: str = "Completed") -> Seen:
    return Seen("p", status=status, reason=reason, kept=True)


@dataclass
class Container:
    """A container of the pod, whose /scratch is a folder here."""

    work: Path
    run_there: list[str] = field(default_factory=list)
    harm: Callable[[str], str] = str
    state: str = ""
    told: str = "pod p"

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        self.run_there.append(script)
        if "pack" in script:
            return parcels.pack(self.work / "results", self.work / "parcel.tar.gz").text
        if "kill" in script:
            return ""
        here = tuple(one.replace(WORK, str(self.work)) for one in arguments)
        return self.harm(run_here(script, here, {}, timeout_s=timeout_s))

    def connect(self, host: str, port: int, *, timeout_s: float | None) -> socket.socket:
        raise NotImplementedError


@dataclass
class StandIn:
    """``sees`` is what it tells, one after another, the last again and again; errors are raised."""

    container: Container
    sees: list[Seen | Exception]
    why: str = ""
    made: list[str] = field(default_factory=list)
    removed: int = 0
    left: bool = False

    def make(self, job: Mapping[str, Any], belongings: Sequence[Mapping[str, Any]]) -> None:
        self.made += [job["kind"], *(one["kind"] for one in belongings)]

    def look(self) -> Seen:
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

    def plays(self) -> int:
        one = Playing(self.remote, self.interrupts, self.said.append, self.shown.append)
        status = one.play({"kind": "Job"}, [{"kind": "ConfigMap"}, {"kind": "Secret"}], self.to)
        assert self.remote.removed == 1
        return status


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(playing, "_LOOK_EVERY_S", 0.001)
    results = tmp_path / "work" / "results"
    (results / "runs" / "a").mkdir(parents=True)
    (results / "runs" / "a" / "fault.yaml").write_text("title: A\n", encoding="utf-8")
    (results / "ended.json").write_text(json.dumps({"status": 1}), encoding="utf-8")
    with Interrupts() as interrupts:
        yield Desk(tmp_path / "back", StandIn(Container(tmp_path / "work"), [PLAYS, ended(1, "Error")]), interrupts)


def test_it_ends_as_pytest_did_and_what_was_recorded_is_here(desk: Desk) -> None:
    desk.remote.sees[:0] = [Seen(waits="its pod to be made"), WAITS, WAITS]
    assert desk.plays() == 1
    assert desk.remote.made == ["Job", "ConfigMap", "Secret"]
    assert (desk.to / "runs" / "a" / "fault.yaml").read_text(encoding="utf-8") == "title: A\n"
    assert desk.shown == ["what pytest prints"]
    assert (desk.remote.container.work / "fetched").exists()
    assert desk.said == [
        "waits for a node for pod p: 0/3 nodes are available",
        "pytest has ended, status 1; fetching what was recorded",
        f"2 files came back whole, in {desk.to}",
        "removes what it made there",
        "all of it is gone",
    ]


def test_a_pod_that_is_evicted_takes_what_was_recorded_with_it(desk: Desk) -> None:
    evicted = Seen("p", lost="pod p was ended by its node (Evicted): The node was low on resource: memory.")
    desk.remote.sees = [PLAYS, PLAYS, evicted]
    assert desk.plays() == LOST
    assert "low on resource: memory.; what it had recorded is lost with it" in desk.said[0]
    assert not desk.to.exists()


def test_a_pod_that_is_being_ended_is_fetched_from(desk: Desk) -> None:
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
    assert desk.said[0] == f"{why}; pytest is given its time to heal"
    assert desk.said.count(desk.said[0]) == 1
    assert (desk.to / "runs").is_dir()


def test_a_node_that_does_not_come_back_is_not_waited_for_for_ever(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "GRACE_S", 0.0)
    monkeypatch.setattr(playing, "_NODE_TELLS_WITHIN_S", 0.01)
    (desk.remote.container.work / "results" / "ended.json").unlink()
    desk.remote.sees = [PLAYS, replace(PLAYS, ends="the node of pod p (node1) does not answer any more")]
    assert desk.plays() == LOST
    assert desk.said[1].startswith("the node of pod p (node1) does not answer any more; what it had recorded is lost")


def test_a_job_whose_time_is_over_is_told(desk: Desk) -> None:
    desk.remote.sees = [PLAYS, Seen(lost="the Job was ended, as its time was over (60 s)")]
    assert desk.plays() == LOST
    assert "its time was over (60 s)" in desk.said[0]


def test_an_image_that_cannot_be_had_is_told_at_once_and_nothing_was_played(desk: Desk) -> None:
    desk.remote.sees = [Seen("p", lost="play cannot be started (ErrImageNeverPull): no such image")]
    assert desk.plays() == NOT_PLAYED
    assert desk.said[0] == "play cannot be started (ErrImageNeverPull): no such image"


def test_a_job_of_which_no_pod_is_made_says_why(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "_POD_WITHIN_S", 0.01)
    desk.remote.sees, desk.remote.why = [Seen(waits="its pod to be made")], "FailedCreate: exceeded quota: small"
    assert desk.plays() == NOT_PLAYED
    assert desk.said[0] == "no pod was made of the Job: FailedCreate: exceeded quota: small"


def test_what_does_not_start_in_time_says_what_it_waits_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "STARTS_WITHIN_S", 0.01)
    desk.remote.sees = [WAITS]
    assert desk.plays() == NOT_PLAYED
    assert desk.said[1] == "it did not start within 0 s: a node for pod p: 0/3 nodes are available"


def test_a_pytest_that_was_killed_leaves_what_it_had_recorded(desk: Desk) -> None:
    (desk.remote.container.work / "results" / "ended.json").unlink()
    desk.remote.sees = [PLAYS, ended(137, "OOMKilled")]
    assert desk.plays() == 137
    assert "pytest has ended, status 137 (OOMKilled); fetching what was recorded" in desk.said
    assert "pytest did not come to its end: what it had recorded until then is there, and not more" in desk.said
    assert (desk.to / "runs" / "a" / "fault.yaml").exists()


def test_a_container_that_ends_well_without_pytest_is_no_success(desk: Desk) -> None:
    (desk.remote.container.work / "results" / "ended.json").unlink()
    desk.remote.sees = [PLAYS, ended(0)]
    assert desk.plays() == LOST


def test_what_does_not_come_whole_is_no_success(desk: Desk) -> None:
    desk.remote.container.harm = lambda text: text[:8]
    desk.remote.sees = [PLAYS, ended(0)]
    assert desk.plays() == LOST
    assert desk.said[-3].startswith("what was recorded is lost: bytes from 0 on do not come")
    assert not desk.to.exists()


def test_what_nobody_kept_is_lost(desk: Desk) -> None:
    desk.remote.sees = [PLAYS, Seen("p", status=137, reason="OOMKilled")]
    assert desk.plays() == LOST
    assert "what was recorded is lost: what kept it has ended, too" in desk.said


def test_a_disk_that_has_no_room_for_it_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(parcels, "fetch", full)
    assert desk.plays() == LOST
    assert f"what was recorded is lost: it cannot be written to {desk.to}: No space left on device" in desk.said


def test_an_api_server_that_is_away_for_a_moment_is_asked_again(desk: Desk) -> None:
    away = MachineError("Job j in shop: connection refused")
    desk.remote.sees = [PLAYS, away, away, ended(1)]
    assert desk.plays() == 1
    assert desk.said.count("Job j in shop: connection refused; asks again") == 1


def test_an_api_server_that_stays_away_is_given_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "_UNHEARD_S", 0.01)
    desk.remote.sees = [PLAYS, MachineError("Job j in shop: connection refused")]
    assert desk.plays() == LOST
    assert "nobody tells of the Job any more: Job j in shop: connection refused" in desk.said


def test_what_may_be_left_is_told(desk: Desk) -> None:
    desk.remote.left = True
    assert desk.plays() == 1
    assert desk.said[-1].startswith("it may be left, and removes itself some time after its end: waited")


def test_an_interrupt_asks_pytest_once_to_end_in_order(desk: Desk) -> None:
    (desk.remote.container.work / "results" / "ended.json").write_text('{"status": 2}', encoding="utf-8")
    desk.remote.sees = [PLAYS, PLAYS, PLAYS, ended(2, "Error")]
    looks = desk.remote.look

    def look() -> Seen:
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
