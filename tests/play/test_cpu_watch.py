from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

from rabbitmq_resilience.history.events import MachineEvent, NoteEvent
from rabbitmq_resilience.runner.cpu_watch import Others, Spent, Waited, cpu_watched
from rabbitmq_resilience.tools.waiting import wait_until
from tests.messages import Messages

BY = {"make": 0.2, "cc": 0.3, "ld": 0.1}
#: Ends by itself; its parent ends at once, so that it is no child of ours.
SPIN = "import os, time\nif os.fork() == 0:\n    t = time.time()\n    while time.time() - t < 4: pass\n"


def test_parts_of_all_processors() -> None:
    before = Spent(whole_s=100, used_s=50, ours_s={1: 10, 2: 5})
    now = Spent(whole_s=110, used_s=58, ours_s={1: 12, 3: 1})
    assert now.shares(before) == (0.8, 0.5)  # 8 of 10 s were used, 3 of them by us
    assert before.shares(before) == (0, 0)


def test_a_process_that_ended_cannot_make_the_parts_negative() -> None:
    before = Spent(whole_s=100, used_s=50, ours_s={})
    now = Spent(whole_s=110, used_s=51, ours_s={1: 30})
    assert now.shares(before) == (0.1, 0)


def test_what_ended_processes_of_ours_took_is_ours() -> None:
    before = Spent(whole_s=100, used_s=50, ours_s={1: 10, 2: 5}, ended_s=1)
    assert Spent(whole_s=110, used_s=58, ours_s={1: 12}, ended_s=9).shares(before) == (0.8, 0.3)  # 2 took 3 s more
    assert Spent(whole_s=110, used_s=58, ours_s={1: 12}, ended_s=1).shares(before) == (0.8, 0.6)  # no one waited for it


def test_others_are_named_by_what_they_took() -> None:
    before = Spent(100, 50, {}, theirs_s={1: ("make", 9), 2: ("cc", 1), 3: ("sleep", 5)}, stolen_s=3)
    now = Spent(110, 58, {}, theirs_s={2: ("cc", 1.5), 3: ("sleep", 5.05), 4: ("cc", 2)}, stolen_s=4)
    assert now.others(before) == {"cc": 0.25, "the hypervisor": 0.1}  # make has ended, and sleep used too little


@pytest.mark.core
def test_a_child_that_ended_is_reported() -> None:
    before = Spent.by_now()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 1: pass"], check=True)
    now = Spent.by_now()
    busy, others = now.shares(before)
    assert now.ended_s - before.ended_s > 0.9
    assert (busy - others) * (now.whole_s - before.whole_s) > 0.8


#: Works for a half of each 4 ms, the time between two ticks of most kernels.
RHYTHMIC = """
import time
began = time.monotonic()
for beat in range(750):
    while time.monotonic() < began + beat * 0.004 + 0.002:
        pass
    time.sleep(max(0, began + (beat + 1) * 0.004 - time.monotonic()))
"""


def all_processes_s() -> float:
    """What each had that there is, and all whom it has waited for."""
    every = [process.info["cpu_times"] for process in psutil.process_iter(["cpu_times"])]
    return sum(sum(times[:4]) for times in every if times)  # user, system, and those of children


@pytest.mark.generated
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root sees everybody's processes")
def test_work_that_has_a_rhythm_is_reported_as_what_it_is() -> None:
    before, all_before_s = Spent.by_now(), all_processes_s()
    subprocess.run([sys.executable, "-c", RHYTHMIC], check=True)
    now, all_now_s = Spent.by_now(), all_processes_s()
    stolen_s, whole_s = now.stolen_s - before.stolen_s, now.whole_s - before.whole_s
    assert now.used_s - before.used_s - stolen_s == pytest.approx(all_now_s - all_before_s, abs=0.1 * whole_s)


def test_the_time_after_the_last_look_is_reported() -> None:
    told: list[str] = []
    with cpu_watched(lambda kind, **_: told.append(kind), dict, every_s=3600):
        pass
    assert told == ["machine"]


@pytest.mark.core
def test_what_others_do_is_distinguished_from_what_we_do() -> None:
    told: list[dict[str, Any]] = []

    def record(kind: str, **fields: Any) -> None:
        told.append({"kind": kind, **fields})

    with cpu_watched(record, lambda: {"a1": os.getpid()}, every_s=0.5):
        subprocess.run([sys.executable, "-c", SPIN], check=True)
        wait_until(lambda: len(told) >= 4, timeout_s=60, what="four looks at the machine")
    assert {event["kind"] for event in told} == {"machine"}
    assert max(event["others"] for event in told) > 0.05
    assert any(name.startswith("python") for event in told for name in event["by"])
    assert all(event["others"] <= event["busy"] for event in told)
    assert all(event["waited_s"].keys() == {"a1"} for event in told)


@pytest.mark.generated
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells for how long threads waited")
def test_who_shares_a_processor_waits_for_it_and_who_sleeps_does_not() -> None:
    shared = min(os.sched_getaffinity(0))
    spinning = f"import os\nos.sched_setaffinity(0, {{{shared}}})\nprint(flush=True)\nwhile True: pass"
    sleeping = "import time\nprint(flush=True)\ntime.sleep(60)"
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        for code in (spinning, spinning, spinning, sleeping)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        pids = {name: process.pid for name, process in zip("abcd", started, strict=True)}
        before, began_s = Waited.by_now(pids), time.monotonic()
        wait_until(lambda: time.monotonic() - began_s > 2, timeout_s=60, what="2 s")
        waited_s = Waited.by_now(pids).longest_s(before)
        took_s = time.monotonic() - began_s
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert waited_s["d"] < 0.25 * took_s
    assert sum(waited_s[name] for name in "abc") > 1.5 * took_s  # two of three wait at any time; a look may be late


def test_threads_that_came_and_went_between_two_looks() -> None:
    before = Waited({"a1": {1: 3.0, 2: 5.0}, "b1": {7: 1.0}})
    now = Waited({"a1": {1: 3.5, 3: 0.75}, "b1": {}, "c1": {9: 2.0}})
    assert now.longest_s(before) == {"a1": 0.75, "c1": 2.0}
    assert Waited.by_now({"gone": 2**22 + 1}).longest_s(now) == {}


@pytest.mark.parametrize("told", [None, "much", [1], math.nan, -1, 50.0])
def test_damaged_looks_tell_nothing(told: Any) -> None:
    looks = [MachineEvent(t_us=5_000_000, busy=1.0, others=told), MachineEvent(t_us=10_000_000, busy=1.0, others=0.5)]
    found = Others.during(looks)
    assert found == Others(0.25, 0.5)


def test_only_much_is_worth_reporting(message: Messages) -> None:
    assert Others.during([]) is None
    little = Others.during([MachineEvent(t_us=0, busy=0.9, others=0.1)])
    looks = [MachineEvent(t_us=t_us, busy=1.0, others=x, by=BY) for t_us, x in ((5_000_000, 0.5), (10_000_000, 0.7))]
    much = Others.during([NoteEvent(t_us=0, detail=""), *looks, MachineEvent(t_us=10_000_001, busy=1.0, others=0.0)])
    assert little is not None
    assert much is not None
    assert (little.is_notable, much.is_notable) == (False, True)
    message(much)
