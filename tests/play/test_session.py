from __future__ import annotations

from rabbitmq_resilience.plugin.session_pace import USUAL_S, PlayedRun, SessionPace, newest
from rabbitmq_resilience.runner.cpu_watch import Others
from tests.messages import Messages

KNOWN = {"a": PlayedRun(took_s=100, at_s=30), "b": PlayedRun(took_s=40, at_s=10), "c": PlayedRun(took_s=40, at_s=20)}


def test_what_was_never_played_is_taken_to_last_as_long_as_the_others() -> None:
    assert SessionPace({}).expected_s("new") == USUAL_S
    assert SessionPace(KNOWN).expected_s("new") == 60
    assert SessionPace(KNOWN).expected_s("a") == 100


def test_what_is_new_is_expected_to_take_as_long_as_its_file_does() -> None:
    known = {f"x.sweep.yaml::{name}": PlayedRun(took_s=took_s, at_s=0) for name, took_s in (("a", 10), ("b", 20))}
    pace = SessionPace({**known, "y.py::a": PlayedRun(took_s=300, at_s=0)})
    assert [pace.expected_s(f"{file}::new") for file in ("x.sweep.yaml", "y.py", "z.py")] == [15, 300, 110]
    pace.begin(["x.sweep.yaml::c", "x.sweep.yaml::d"])
    pace.judged("x.sweep.yaml::c", "VALID", as_expected=True)
    pace.ended("x.sweep.yaml::c", 60)
    assert pace.expected_s("x.sweep.yaml::d") == 30


def test_what_was_not_played_for_longest_comes_first() -> None:
    pace = SessionPace(KNOWN)
    assert pace.fitting(["a", "b", "c", "new"], 60) == {"new"}
    assert pace.fitting(["a", "b", "c", "new"], 100) == {"new", "b"}
    assert pace.fitting(["a", "b", "c"], 179) == {"b", "c"}
    assert pace.fitting(["a", "b", "c"], 180) == {"a", "b", "c"}
    assert pace.fitting(["a"], 10) == {"a"}  # it would never be played


def test_where_nothing_is_remembered_other_tests_come_first_each_day() -> None:
    tests = [f"t{i}" for i in range(40)]
    days = [SessionPace({}, now_s=lambda day=day: day * 86_400.0) for day in (1, 1, 2)]  # type: ignore[misc]
    first, again, next_day = (pace.fitting(tests, 10 * USUAL_S) for pace in days)
    assert first == again
    assert len(first) == len(next_day) == 10
    assert first != next_day


def test_each_is_played_within_some_nights() -> None:
    known: dict[str, PlayedRun] = {}
    tests = [f"t{i}" for i in range(10)]
    seen: set[str] = set()
    for night in range(4):
        pace = SessionPace(known, now_s=lambda night=night: 1000.0 + night)  # type: ignore[misc]
        chosen = pace.fitting(tests, 3 * USUAL_S)
        pace.begin(sorted(chosen), left_out=sorted(set(tests) - chosen))
        for test in sorted(chosen):
            pace.judged(test, "VALID", as_expected=True)
            pace.ended(test, USUAL_S)
        known, seen = pace.remembered(), seen | chosen
    assert seen == set(tests)


def test_progress(message: Messages) -> None:
    pace = SessionPace(KNOWN)
    pace.begin(["a", "b", "c"])
    message(pace.progress("a"))
    pace.judged("a", "INVALID", as_expected=False)
    pace.ended("a", 90)
    message(pace.progress("b"))
    assert pace.remembered()["a"]["took_s"] == 90


def test_what_came_to_no_verdict_shows_nothing(message: Messages) -> None:
    pace = SessionPace(KNOWN)
    pace.begin(["a", "b"])
    pace.ended("a", 0.1)
    assert pace.remembered() == KNOWN
    message(pace.progress("b"))


def test_summary(message: Messages) -> None:
    pace = SessionPace(KNOWN)
    assert pace.summary() == ""
    pace.judged("a", "VALID", as_expected=True)
    message(pace.summary())
    pace.judged("a", "VALID", as_expected=True)
    pace.judged("a", "INVALID", as_expected=True)
    pace.judged("a", "INVALID", as_expected=False)
    pace.begin([], left_out=["b", "c", "d"])
    message(pace.summary())


def test_a_single_scenario_is_not_counted() -> None:
    pace = SessionPace(KNOWN)
    pace.begin(["a"])
    assert pace.progress("a") == ""
    assert pace.progress("unknown") == ""


def test_what_a_busy_machine_could_not_tell_is_one_line(message: Messages) -> None:
    pace = SessionPace({})
    busy, idle = Others(mean=0.5, most=0.9), Others(mean=0.1, most=0.2)
    for word, others in [("VALID", busy), ("UNKNOWN", idle), ("UNKNOWN", None)]:
        pace.judged("a", word, as_expected=word == "VALID", others=others)
    assert pace.disturbance() == ""
    pace.judged("b", "UNKNOWN", as_expected=False, others=busy)
    pace.judged("c", "UNKNOWN", as_expected=False, others=Others(mean=0.3, most=0.9))
    message(pace.disturbance())


def test_what_is_newer_counts() -> None:
    elsewhere = {"a": PlayedRun(took_s=7, at_s=31), "b": PlayedRun(took_s=8, at_s=9), "d": PlayedRun(took_s=9, at_s=1)}
    both = newest(KNOWN, elsewhere)
    assert both == newest(elsewhere, KNOWN)
    assert both == {"a": elsewhere["a"], "b": KNOWN["b"], "c": KNOWN["c"], "d": elsewhere["d"]}
