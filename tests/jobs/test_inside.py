"""What the containers of a Job run, as far as it does not take a pod."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.extensions.jobs import entrypoint
from rabbitmq_resilience.extensions.jobs.folder_archive import Label, unpack
from rabbitmq_resilience.extensions.jobs.paths import ENDED, FETCHED_WITHIN_S
from rabbitmq_resilience.tools.waiting import wait_until
from tests.clock import waits_by_clock

PLACES = (("RESULTS", "results"), ("PARCEL", "parcel.tar.gz"), ("FETCHED", "fetched"), ("BEGUN", "begun"))
HANDLED = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = {number: signal.getsignal(number) for number in HANDLED}
    for name, place in PLACES:
        monkeypatch.setattr(entrypoint, name, str(tmp_path / place))
    waits_by_clock(monkeypatch)
    yield tmp_path
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.core
def test_pytest_is_played_and_its_status_written_down(work: Path) -> None:
    (work / "test_it.py").write_text("def test_it():\n    assert False\n", encoding="utf-8")
    asked = ["-q", "-p", "no:cacheprovider", f"--junitxml={work}/results/junit.xml", str(work / "test_it.py")]
    assert entrypoint.main(["play", "3600", *asked]) == 1
    assert json.loads((work / "results" / ENDED).read_text(encoding="utf-8")) == {"status": 1}
    assert (work / "results" / "junit.xml").exists()


def test_what_is_packed_is_reported(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "results").mkdir()
    (work / "results" / ENDED).write_text("{}", encoding="utf-8")
    assert entrypoint.main(["pack"]) == 0
    unpack(work / "parcel.tar.gz", Label.read(capsys.readouterr().out), work / "back")
    assert [path.name for path in (work / "back").iterdir()] == [ENDED]


def test_what_was_recorded_is_kept_until_it_is_fetched(work: Path) -> None:
    (work / "fetched").touch()
    assert entrypoint.main(["keep"]) == 0


def ended_while_it_waits(monkeypatch: pytest.MonkeyPatch, fetched: Path) -> list[bool]:
    """The pod's end is asked for once it waits, and what was recorded is fetched after its third look."""
    looks: list[bool] = []

    def waited(look: Callable[[], bool], **options: Any) -> bool:
        def looked() -> bool:
            looks.append(look())
            if len(looks) == 3:
                fetched.touch()
            return looks[-1]

        os.kill(os.getpid(), signal.SIGTERM)
        found: bool = wait_until(looked, **options)
        return found

    monkeypatch.setattr(entrypoint, "wait_until", waited)
    return looks


def test_a_pod_that_is_ended_before_pytest_began_is_not_held_up(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = ended_while_it_waits(monkeypatch, work / "fetched")
    assert entrypoint.main(["keep"]) == 0
    assert looks == [True]


def test_a_pod_that_is_ended_keeps_what_was_recorded_until_it_is_fetched(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "begun").touch()
    looks = ended_while_it_waits(monkeypatch, work / "fetched")
    assert entrypoint.main(["keep"]) == 0
    assert looks == [False, False, False, True]


def test_it_is_not_kept_for_ever_where_no_one_comes(work: Path) -> None:
    (work / "results").mkdir()
    (work / "results" / ENDED).touch()
    ended_s = time.time() - FETCHED_WITHIN_S - 1
    os.utime(work / "results" / ENDED, (ended_s, ended_s))
    assert entrypoint.main(["keep"]) == 0
