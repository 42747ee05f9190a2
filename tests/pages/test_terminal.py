from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from rabbitmq_resilience.report.terminal import LiveLine, MessageRates, Status, outcome_line, status_line, story
from rabbitmq_resilience.report.wording import duration_text, number_text
from tests.messages import Messages
from tests.pages.synthetic_run import synthetic_verdict

STATUS = Status("chaos", 72.4, depth=1204, nodes_up=2, nodes=3, faults=("partition", "latency"))


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Broken(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


def test_status_line(message: Messages) -> None:
    line = status_line(STATUS, MessageRates(1810.2, 790.4, 801))
    for fact in ("chaos    01:12 |", " 2/3 |", " 1,810/s ", " 790/s ", " 801/s |", " 1,204 |", " partition, latency"):
        assert fact in line
    message(line)
    assert "depth ?" in status_line(replace(STATUS, depth=None), MessageRates())


def test_elsewhere_a_line_every_ten_seconds_and_at_each_new_phase() -> None:
    stream, clock = io.StringIO(), Clock()
    with LiveLine(stream, clock=clock) as live:
        for second in range(25):
            clock.now_s = 100.0 + second
            live.show(replace(STATUS, elapsed_s=second, sent=second * 50, phase="steady" if second < 3 else "chaos"))

    lines = stream.getvalue().splitlines()
    assert [line[:14] for line in lines] == ["steady   00:00", "chaos    00:03", "chaos    00:13", "chaos    00:23"]
    assert "sent 50/s" in lines[-1]
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_keeps_one_line_and_is_left_clean() -> None:
    stream, clock = Terminal(), Clock()
    with LiveLine(stream, clock=clock) as live:
        for tick in range(10):
            clock.now_s += 0.1
            live.show(replace(STATUS, sent=tick))

    assert "\n" not in stream.getvalue()
    assert 4 <= stream.getvalue().count("\r\x1b[2K") <= 7
    assert stream.getvalue().endswith("\r\x1b[2K")


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_note_stays_on_a_line_of_its_own(kind: type[io.StringIO]) -> None:
    stream, clock = kind(), Clock()
    with LiveLine(stream, clock=clock) as live:
        live.show(STATUS)
        live.note("step 2 (kill) waits for its condition: {after_step: 0}")
        live.show(STATUS)
    lines = [line.rpartition("\x1b[2K")[2] for line in stream.getvalue().splitlines()]
    assert lines.count("step 2 (kill) waits for its condition: {after_step: 0}") == 1
    assert stream.getvalue().count("01:12") == (2 if kind is Terminal else 1), "a terminal draws its line again"


def test_a_stream_that_fails_does_not_end_the_run() -> None:
    with LiveLine(Broken()) as live:
        live.show(STATUS)
        live.show(replace(STATUS, phase="recovery"))


def test_story_of_a_broken_promise(tmp_path: Path, message: Messages) -> None:
    told = story(synthetic_verdict("INVALID"), tmp_path / "run 1")

    assert told.startswith("INVALID: Zone b is cut off while confirms are in flight\n")
    message(told)
    assert "37 of 45,912" in told
    assert "q3 on b1 at 11.90 s" in told
    assert f"pytest '{tmp_path}/run 1/fault.yaml'" in told
    assert f"pytest --recheck='{tmp_path}/run 1'" in told
    assert "availability" not in told


def test_story_of_a_run_that_cannot_tell(tmp_path: Path, message: Messages) -> None:
    told = story(synthetic_verdict("UNKNOWN"), tmp_path)

    (line,) = (line for line in told.splitlines() if "faults_proven" in line)
    assert "UNKNOWN: 1 of 3 " in line
    message(line)


def test_story_of_a_kept_promise_is_one_line(tmp_path: Path) -> None:
    assert story(synthetic_verdict("VALID"), tmp_path) == "VALID: Zone b is cut off while confirms are in flight"


def test_story_of_a_promise_that_should_have_been_broken(tmp_path: Path, message: Messages) -> None:
    verdict = {**synthetic_verdict("VALID"), "expected": "INVALID by no_loss", "as_expected": False}

    told = story(verdict, tmp_path)

    (line,) = (line for line in told.splitlines() if "INVALID by no_loss" in line)
    message(line)
    assert "bin/pytest " in told


def test_story_of_nothing(tmp_path: Path) -> None:
    assert story({}, tmp_path).startswith(f"UNKNOWN: {tmp_path.name}\n")


def test_numbers_carry_their_units() -> None:
    assert number_text("stall_s_max", 6.1) == ("stall max", "6.1 s")
    assert number_text("steady_per_s", 1801.3) == ("steady", "1,801/s")
    assert number_text("memory_bytes", 1024) == ("memory", "1,024 bytes")
    assert number_text("complete", True) == ("complete", "yes")
    assert number_text("s", None) == ("s", "-")
    assert [duration_text(s) for s in (9, 80, 7260)] == ["9 s", "1 min 20 s", "2 h 01 min"]


def test_outcome_line(tmp_path: Path) -> None:
    verdict = {"verdict": "VALID", "title": "Zone c is alone", "duration_s": 71.2}
    assert outcome_line(verdict, tmp_path) == f"VALID    Zone c is alone, 1 min 11 s: {tmp_path}/report.html"
    assert outcome_line({}, tmp_path).startswith("UNKNOWN")
