from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.checkers.memory import Memory
from rabbitmq_resilience.checkers.verdict import Coverage, Finding, Verdict
from tests.invariants.literal import THREE, Row, cluster, fault, history, node_states, phases, queues, told, us
from tests.messages import Messages

GB = 1e9


def memory(used: Any = 0.2 * GB, *, limit: Any = 1 * GB, node: str = "b1") -> list[list[Row]]:
    """All nodes use 0.2 GB of 1 GB, but for ``node``."""
    calm = [told("memory_used", other, 0.2 * GB) for other in THREE if other != node]
    calm += [told("memory_limit", other, 1 * GB) for other in THREE if other != node]
    return [*calm, told("memory_used", node, used), told("memory_limit", node, limit)]


def check(metrics: list[list[Row]], *events: Any, states: Any = None) -> Finding:
    whole = [cluster(), queues("q1"), phases(), states or node_states()]
    return Memory().check(history((), (), [*whole, *events], metrics=metrics))


def test_empty() -> None:
    assert Memory().check(history()).verdict is Verdict.UNKNOWN
    assert check([]).verdict is Verdict.UNKNOWN


def test_unknown_without_the_steady_phase() -> None:
    events = [cluster(), queues("q1"), phases(recovery=70, drain=90, end=95), node_states()]
    assert Memory().check(history((), (), events, metrics=memory())).verdict is Verdict.UNKNOWN


def test_sane_shows_who_used_most(message: Messages) -> None:
    finding = check(memory(lambda at: 0.7 * GB if at == 40 else 0.3 * GB), fault(35, 45, name="kill", down=["c1"]))
    assert (finding.verdict, finding.numbers["memory_ratio_max"]) == (Verdict.VALID, 0.7)
    message(finding.summary)
    assert "b1" in finding.summary
    assert "+40.000 s" in finding.summary
    assert "step 0" in finding.summary


def test_sane_before_the_steady_phase_nothing_is_demanded() -> None:
    metrics = [*memory(), told("memory_used", "a1", 2 * GB, end_s=3)]
    late = [row for rows in metrics for row in rows]
    whole = [cluster(), queues("q1"), phases(steady=5, chaos=10, recovery=70, drain=90, end=95), node_states()]
    assert Memory().check(history((), (), whole, metrics=[late])).verdict is Verdict.VALID


def test_sane_an_alarm_that_a_step_raised() -> None:
    raised = fault(30, 40, name="alarm", alarm="memory", alarmed=["b1"])
    finding = check(memory(limit=lambda at: 0.1 * GB if 30 <= at < 42 else 1 * GB), raised)
    assert (finding.verdict, finding.numbers["exempt_s"]) == (Verdict.VALID, 20)


def test_unknown_where_an_alarm_excuses_to_the_end(message: Messages) -> None:
    raised = fault(30, 40, name="alarm", alarm="memory", alarmed=["b1"], states=("injecting", "injected", "proven"))
    finding = check(memory(0.24687 * GB, limit=lambda at: 0.1 * GB if at >= 30 else 1 * GB), raised)
    assert (finding.verdict, finding.numbers["exempt_s"]) == (Verdict.UNKNOWN, 65)
    message(finding.summary)
    assert "b1" in finding.summary
    assert "+95.000 s" in finding.summary
    assert finding.numbers["memory_ratio_max"] == 0.2469


def test_a_limit_of_nothing_is_no_silence() -> None:
    """As an alarm is raised on purpose, for longer than a node may say nothing."""
    nothing = memory(limit=lambda at: 0.0 if 30 <= at < 55 else 1 * GB)
    raised = fault(30, 52, name="alarm", alarm="memory", alarmed=["b1"])
    assert check(nothing, raised).verdict is Verdict.VALID
    assert check(nothing).verdict is Verdict.INVALID


def test_pathological_the_watermark_is_reached(message: Messages) -> None:
    finding = check(memory(lambda at: GB if 50 <= at < 53 else 0.3 * GB))
    assert (finding.verdict, finding.numbers["nodes_over"]) == (Verdict.INVALID, 1)
    (example,) = finding.examples
    message(example)
    assert "b1" in example
    assert "100.0%" in example
    assert "+50.000 s" in example


def test_pathological_another_node_than_the_alarmed_one() -> None:
    raised = fault(30, 40, name="alarm", alarm="memory", alarmed=["a1"])
    assert check(memory(limit=lambda at: 0.1 * GB if 30 <= at < 42 else 1 * GB), raised).verdict is Verdict.INVALID


def test_each_alarm_excuses_its_own_time() -> None:
    raised = [fault(at, at + 10, step=at, name="alarm", alarm="memory", alarmed=["b1"]) for at in (30, 60)]
    full = memory(limit=lambda at: 0.1 * GB if 30 <= at < 42 or 60 <= at < 72 else 1 * GB)
    assert check(full, *raised).verdict is Verdict.VALID
    assert check(full, raised[0]).verdict is Verdict.INVALID


@pytest.mark.parametrize(("silent_until_s", "verdict"), [(44, Verdict.VALID), (45, Verdict.UNKNOWN)])
def test_a_node_may_say_nothing_for_as_long_as_the_bound(silent_until_s: int, verdict: Verdict) -> None:
    assert check(memory(lambda at: None if 30 <= at < silent_until_s else 0.3 * GB)).verdict is verdict


def test_a_disk_alarm_excuses_no_memory() -> None:
    raised = fault(30, 40, name="alarm", alarm="disk", alarmed=["b1"])
    assert check(memory(lambda at: 2 * GB if at == 35 else 0), raised).verdict is Verdict.INVALID


def test_unknown_where_a_node_that_served_said_nothing(message: Messages) -> None:
    finding = check(memory(lambda at: None if 30 <= at < 50 else 0.3 * GB))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "b1" in finding.summary


def test_sane_a_node_that_was_down_has_a_gap() -> None:
    states = node_states(unlike={"b1": [(29, 51, "down")]})
    assert check(memory(lambda at: None if 30 <= at < 52 else 0.3 * GB), states=states).verdict is Verdict.VALID


def test_unknown_where_a_node_that_came_back_reported_nothing(message: Messages) -> None:
    """Each silence is shorter than 15 s, and the second is all that there is of b1 after its restart."""
    back = node_states(unlike={"b1": [(70, 84, "down")]})
    silent = [[row for row in rows if row["node"] != "b1" or row["t_us"] < us(70)] for rows in memory()]
    finding = check(silent, states=back)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "b1" in finding.summary
    assert "10.5 s" in finding.summary
    assert "+84.000 s" in finding.summary
    assert check(memory(), states=back).coverage == Coverage(94.5, 94.5)


@pytest.mark.parametrize(
    ("bytes_max", "verdict"), [(None, Verdict.VALID), (301, Verdict.VALID), (300, Verdict.INVALID)]
)
def test_bytes_have_a_bound_of_their_own(bytes_max: int | None, verdict: Verdict, message: Messages) -> None:
    metrics = [
        *(told("memory_used", node, lambda at: 300.0 if at == 40 else 200.0) for node in THREE),
        *(told("memory_limit", node, 1 * GB) for node in THREE),
    ]
    whole = [cluster(), queues("q1"), phases(), node_states()]
    finding = Memory(bytes_max=bytes_max).check(history((), (), whole, metrics=metrics))
    assert (finding.verdict, finding.numbers["memory_bytes_max"]) == (verdict, 300)
    if verdict is Verdict.INVALID:
        message(finding.summary)
        assert "c1" in finding.summary
        assert "300" in finding.summary
        assert "+40.000 s" in finding.summary
        assert finding.numbers["nodes_over"] == 3


def test_a_node_that_still_breaks_the_bound_of_bytes_while_its_alarm_is_raised_is_unknown() -> None:
    metrics = [
        told("memory_used", "b1", lambda at: 400.0 if at >= 50 else 200.0),
        *(told("memory_used", node, 200.0) for node in THREE if node != "b1"),
        *(told("memory_limit", node, 1 * GB) for node in THREE),
    ]
    raised = fault(50, 95, name="alarm", alarm="memory", alarmed=["b1"])
    past = history((), (), [cluster(), queues("q1"), phases(), node_states(), *raised], metrics=metrics)
    assert Memory(bytes_max=300).check(past).verdict is Verdict.UNKNOWN
    assert Memory(bytes_max=401).check(past).verdict is Verdict.VALID


def test_a_node_over_both_bounds_counts_once() -> None:
    metrics = [
        *(told("memory_used", node, 2.0 * GB) for node in THREE),
        *(told("memory_limit", n, 1.0 * GB) for n in THREE),
    ]
    past = history((), (), [cluster(), queues("q1"), phases(), node_states()], metrics=metrics)
    assert Memory(bytes_max=300).check(past).numbers["nodes_over"] == 3
