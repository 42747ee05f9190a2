"""What a summary says of nights that were written by hand, and what they tell of when scenarios were played."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.nights.last_played import last_played
from rabbitmq_resilience.extensions.nights.night_file import Ended, LeftOut, Night, NightWriter, Tested
from rabbitmq_resilience.extensions.nights.night_summary import LISTED_MAX, main, summary
from rabbitmq_resilience.extensions.nights.troubles import troubles
from rabbitmq_resilience.runner.run_line import BrokeFirst, RunLine
from tests.messages import Messages
from tests.nights.literal import HEADER, PLAYED
from tests.tables.lines import line_with

BROKE = BrokeFirst(invariant="order", summary="3 came | too late")
BAD = replace(PLAYED, scenario="bad", title="Bad", verdict="INVALID", as_expected=False, broke_first=BROKE)
UNSURE = replace(PLAYED, scenario="unsure", title="Unsure", verdict="UNKNOWN", as_expected=False, others_cpu=0.6)
KNOWN = replace(PLAYED, scenario="known", verdict="INVALID", known="rabbitmq/rabbitmq-server#9523")


def ended(scenario: str, outcome: str, why: str = "") -> Tested:
    return Tested(scenario=scenario, outcome=outcome, why=why, took_s=60, at=HEADER.night)  # type: ignore[arg-type]


def night(
    *played: RunLine, tests: tuple[Tested, ...] = (), left_out: tuple[LeftOut, ...] = (), status: int = 0
) -> Night:
    ended = Ended(status=status, played=len(played), at=HEADER.night)
    return Night(Path("night.jsonl"), HEADER, played, left_out, ended, tested=tests)


def test_what_broke_comes_before_what_could_not_tell(message: Messages) -> None:
    one = night(UNSURE, BAD, tests=(ended("unsure", "unknown"), ended("bad", "failed")), status=1)
    assert [(trouble.head, trouble.broke) for trouble in troubles(one)] == [
        ("INVALID: Bad", True),
        ("UNKNOWN: Unsure", False),
    ]
    lines = summary(one, [], runs=Path("nowhere")).splitlines()
    message(lines[0])
    assert lines[lines.index("````text") + 1 :][:2] == ["INVALID: Bad", "  order: 3 came | too late"]
    assert f"| INVALID: Bad | order: 3 came / too late | `{PLAYED.rerun}` |" in lines
    message(line_with("\n".join(lines), "35%"))


def test_another_try_that_passed_is_no_trouble_and_in_a_killed_night_each_is(message: Messages) -> None:
    tries = replace(UNSURE, scenario="bad"), replace(PLAYED, scenario="bad")
    assert troubles(night(*tries, tests=(ended("bad", "passed"),))) == []
    killed = replace(night(BAD, UNSURE), ended=None)
    assert [trouble.broke for trouble in troubles(killed)] == [True, False]
    message(line_with(summary(killed, [], runs=Path("nowhere")), "killed"))


def test_a_test_that_failed_on_its_way_broke_though_its_run_could_not_tell() -> None:
    (trouble,) = troubles(night(UNSURE, tests=(ended("unsure", "failed", "ClusterError: no node came up"),), status=1))
    assert (trouble.head, trouble.why, trouble.broke) == ("failed: Unsure", "ClusterError: no node came up", True)


def test_what_was_expected_to_break_and_did_not_is_reported(message: Messages) -> None:
    fixed = replace(PLAYED, scenario="fixed", as_expected=False, expected="INVALID by no_loss")
    (trouble,) = troubles(night(fixed, tests=(ended("fixed", "failed"),), status=1))
    assert trouble.head == "VALID: The leader's broker dies"
    assert "INVALID by no_loss" in trouble.why
    message(trouble.why)


def test_a_green_night_says_how_many_known_violations_it_saw(message: Messages) -> None:
    text = summary(night(PLAYED, KNOWN, KNOWN), [], runs=Path("nowhere"))
    message(text.splitlines()[0])
    message(line_with(text, "status 0"))
    assert "| rabbitmq/rabbitmq-server#9523 | 3.10.8, local | 2 of 2 | 2 of 2 (34 to 100 %) in 1 |" in text


def test_a_rate_that_changed_is_reported_with_its_interval(message: Messages) -> None:
    before = [
        replace(
            night(*[replace(KNOWN, known=None, verdict="VALID")] * 9, KNOWN),
            header=replace(HEADER, night=f"2026-11-0{n}"),
        )
        for n in (1, 2, 3)
    ]
    tonight = night(*[KNOWN] * 8, *[replace(KNOWN, known=None, verdict="VALID")] * 2)
    text = summary(tonight, before, runs=Path("nowhere"))
    (told,) = (part for part in text.split("\n\n") if part.startswith("**rabbitmq/rabbitmq-server#9523"))
    for fact in ("3.10.8, local", "8 of 10 (49 to 94 %)", HEADER.night, "3 of 30 (3 to 26 %)"):
        assert fact in told
    message(told)
    assert "**rabbitmq/rabbitmq-server#9523" not in summary(tonight, before[:1], runs=Path("nowhere"))


def test_what_was_never_played_and_what_was_not_for_longest_come_first(message: Messages) -> None:
    left = [LeftOut(scenario=f"s{n:02}", why="budget", last_played=f"2026-11-{n:02}") for n in range(1, 26)]
    text = summary(night(left_out=(*left, LeftOut(scenario="new", why="budget", last_played=None))), [], runs=Path())
    rows = [line for line in text.splitlines() if line.startswith("| s") or line.startswith("| new")]
    assert (rows[0].startswith("| new | "), rows[1]) == (True, "| s01 | 2026-11-01 |")
    message(rows[0])
    assert len(rows) == LISTED_MAX
    message(line_with(text, "26 did not fit"))
    message(line_with(text, "6 more"))


def test_what_had_no_turn_before_the_night_ended_is_named(message: Messages) -> None:
    header = replace(HEADER, planned=(BAD.scenario, "skipped", "over", *(f"s{n}" for n in range(22))))
    over = LeftOut(scenario="over", why="over", last_played=None)
    one = replace(night(BAD, tests=(ended("skipped", "skipped"),), left_out=(over,), status=2), header=header)
    text = summary(one, [], runs=Path("nowhere"))
    message(line_with(text, "22 of 25"))
    message(line_with(text, "2 more"))
    assert ("| s0 |" in text, "| skipped |" in text) == (True, False)
    unplanned = summary(night(BAD), [], runs=Path("nowhere"))
    assert re.search(r"(?m)^\d+ of \d+ .*:$", text)
    assert not re.search(r"(?m)^\d+ of \d+ .*:$", unplanned)


def test_the_command_makes_it_of_a_killed_night(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    with NightWriter(tmp_path / "night.jsonl", HEADER) as writer:
        writer.write(PLAYED)
    assert main([str(tmp_path / "night.jsonl")]) == 0
    message(line_with(capsys.readouterr().out, "killed"))
    assert main([str(tmp_path / "nothing.jsonl")]) == 1
    refused = capsys.readouterr().err
    assert "nothing.jsonl" in refused
    message(refused)


def test_when_a_scenario_was_played_is_that_of_the_last_night_of_the_same_name() -> None:
    second = replace(HEADER, night="2026-11-23T01:00:00Z")
    later = replace(PLAYED, started_at="2026-11-23T01:00:30+00:00", duration_s=10.0)
    nights = [
        night(PLAYED, KNOWN, tests=(ended(PLAYED.scenario, "passed"),)),
        replace(night(later, later), header=second),
        replace(night(KNOWN), header=replace(second, name="another job", night="2026-11-24T01:00:00Z")),
    ]
    known = last_played(nights, name=None, driver="local")
    assert known[PLAYED.scenario]["took_s"] == 20, "of both runs"
    assert known[PLAYED.scenario]["at_s"] == 1795395630
    assert known["known"] == {"took_s": 42.0, "at_s": 1795309230}
    assert last_played(nights, name=None, driver="docker") == {}
    assert list(last_played(nights, name="another job", driver="local")) == ["known"]
