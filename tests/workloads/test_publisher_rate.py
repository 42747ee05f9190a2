"""When a publisher sends what its rate allows, and when that was due, with a clock of the test's own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.workload import publisher as module
from tests.workloads import hosted
from tests.workloads.rig import Notes, Rig, Wire
from tests.workloads.test_publisher import table
from tests.workloads.test_settlement import load


def test_with_a_rate_a_message_is_due_when_its_turn_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent while the broker blocks: what is made up for then was due before."""
    clock_us, notes = [10_000_000], Notes()
    monkeypatch.setattr(module, "now_us", lambda: clock_us[0])
    publisher = hosted.publisher(load(rate_per_s=100, in_flight=50), tmp_path, notes)
    rig = Rig(tmp_path, publisher, notes, Wire(notes))
    rig.connect()
    rig.wire.on_blocked()
    clock_us[0] += 5_000_000
    rig.wire.on_unblocked()
    publisher.tick()
    rig.wire.on_confirm(1, 100, True)
    rows = table(rig)
    assert [row["due_us"] for row in rows] == [10_000_000 + 10_000 * i for i in range(1, 26)]
    assert {row["sent_us"] for row in rows} == {15_000_000}
    hosted.close(publisher)


def test_each_message_is_sent_when_it_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is called, and however late: a stall between two of them, and a rate that changes."""
    clock_us, notes = [10_000_000], Notes()
    monkeypatch.setattr(module, "now_us", lambda: clock_us[0])
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock_us[0] / 1e6))
    steps = ({"rate_per_s": 1000, "for_s": 1},)
    workload = load(rate_per_s=100, variable_rate=steps, in_flight=50)
    publisher = hosted.publisher(workload, tmp_path, notes)
    rig = Rig(tmp_path, publisher, notes, Wire(notes))
    rig.connect()

    go_on = partial(call_until, notes, clock_us)
    go_on(10_065_000)
    rig.wire.on_confirm(1, 6, True)
    go_on(10_100_000)
    clock_us[0] = 10_149_000  # the process was held up
    go_on(10_149_000)
    publisher.vary(10_149_000)
    publisher.tick()
    go_on(10_153_500)
    rig.wire.on_confirm(1, 18, True)
    rows = table(rig)
    waited_us = [row["sent_us"] - row["due_us"] for row in rows]
    assert [row["due_us"] for row in rows[:14]] == [10_000_000 + 10_000 * i for i in range(1, 15)]
    assert waited_us == [0] * 10 + [39_000, 29_000, 19_000, 9_000] + [0] * 4
    assert [row["due_us"] for row in rows[14:]] == [10_150_000, 10_151_000, 10_152_000, 10_153_000]
    assert len(notes.calls) <= 2, "it does not ask to be called again and again"
    hosted.close(publisher)


def call_until(notes: Notes, clock_us: list[int], until_us: int) -> None:
    """What was asked for, when it was asked for."""
    while notes.calls and min(call[0] for call in notes.calls) <= until_us:
        call = min(notes.calls, key=lambda call: call[0])
        notes.calls.remove(call)
        clock_us[0] = max(clock_us[0], call[0])
        call[1]()
    clock_us[0] = until_us


@pytest.mark.parametrize("confirms", ["none", "ignored"])
def test_one_that_awaits_no_confirms_makes_up_at_once_for_what_it_is_late_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, confirms: str
) -> None:
    """No confirm tells it when there is room again, and until the process looks more would be due than there is."""
    clock_us, notes = [10_000_000], Notes()
    monkeypatch.setattr(module, "now_us", lambda: clock_us[0])
    workload = load(rate_per_s=20_000, in_flight=100, confirms=confirms)
    publisher = hosted.publisher(workload, tmp_path, notes)
    rig = Rig(tmp_path, publisher, notes, Wire(notes))
    rig.connect()
    clock_us[0] += 60_000  # the process was held up
    call_until(notes, clock_us, 10_070_000)
    rows = table(rig)
    assert [row["due_us"] for row in rows] == [10_000_000 + 50 * i for i in range(1, 1401)]
    assert max(row["sent_us"] - row["due_us"] for row in rows[1200:]) == 0
    hosted.close(publisher)


def test_one_that_awaits_no_confirms_and_keeps_no_rate_goes_on_as_long_as_the_socket_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_us, notes = [10_000_000], Notes()
    monkeypatch.setattr(module, "now_us", lambda: clock_us[0])
    publisher = hosted.publisher(load(rate_per_s=None, in_flight=100, confirms="none"), tmp_path, notes)
    rig = Rig(tmp_path, publisher, notes, Wire(notes))
    rig.connect()
    for sent in (100, 200, 300):
        assert rig.wire.written == sent
        ((at_us, call),) = notes.calls
        assert at_us <= clock_us[0]
        notes.calls.clear()
        call()
    rig.wire.unsent_bytes = module.UNSENT_BYTES_MAX + 1
    ((_, call),) = notes.calls
    notes.calls.clear()
    call()
    assert (rig.wire.written, notes.calls) == (400, [])
    hosted.close(publisher)


def test_the_rate_varies_from_the_moment_that_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are of all publishers together; this is one of two."""
    clock_s, notes = [1000.0], Notes()
    monkeypatch.setattr(module, "now_us", lambda: round(clock_s[0] * 1e6))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))
    steps = ({"rate_per_s": 600, "for_s": 2}, {"rate_per_s": 0, "for_s": 3}, {"rate_per_s": None, "for_s": 1})
    fields: dict[str, Any] = {"rate_per_s": 200, "variable_rate": steps, "in_flight": 10_000}
    rig = Rig(tmp_path, hosted.publisher(load(publishers=2, **fields), tmp_path, notes, index=1), notes, Wire(notes))
    rig.connect()

    def sent_in(ms: int) -> int:
        before = rig.wire.written
        for _ in range(ms // 10):
            clock_s[0] += 0.01
            rig.publisher.tick()
        return rig.wire.written - before

    assert abs(sent_in(2000) - 200) <= 2
    rig.publisher.vary(round(clock_s[0] * 1e6) - 1_000_000)
    assert abs(sent_in(990) - 297) <= 5
    sent_in(20)
    assert sent_in(2980) == 0
    sent_in(20)
    assert rig.wire.written == 10_000, "none is confirmed, so that all are in flight"
    sent_in(1000)
    rig.confirm(20_000, True)
    assert abs(sent_in(2000) - 200) <= 2
    hosted.close(rig.publisher)
