from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.checkers.leaders_spread import LeadersSpread
from rabbitmq_resilience.checkers.verdict import Coverage, Finding, Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants.literal import FIVE, cluster, event, fault, history, node_states, phases, queues
from tests.messages import Messages


def led(start_s: int, end_s: int, *leaders: str | None) -> list[Event]:
    """A sample a second in which q1, q2 ... have these leaders."""
    rows = {f"q{i}": {"leader": leader} for i, leader in enumerate(leaders, 1)}
    return [event(at, "sample", queues=rows) for at in range(start_s, end_s)]


def rebalanced(at_s: float, *, step: int = 0) -> list[Event]:
    return fault(at_s, at_s + 0.5, step=step, name="rebalance", operation=True)


def check(*events: Any, states: Any = None) -> Finding:
    whole = [cluster(), queues("q1", "q2", "q3"), phases(), states or node_states()]
    return LeadersSpread(within_s=10).check(history((), (), [*whole, *events]))


def test_empty(message: Messages) -> None:
    assert LeadersSpread().check(history()).verdict is Verdict.UNKNOWN
    calm = check(led(0, 95, "a1", "a1", "a1"))
    message(calm.summary)


def test_sane() -> None:
    before, after = led(0, 42, "a1", "a1", "a1"), led(42, 95, "a1", "b1", "c1")
    finding = check(rebalanced(39.5), before, after)
    assert (finding.verdict, finding.numbers["spread_after_s"]) == (Verdict.VALID, 2.5)


def test_sane_a_node_that_is_down_leads_nothing() -> None:
    down = node_states(unlike={"c1": [(0, 95, "down")]})
    assert check(rebalanced(40), led(0, 95, "a1", "b1", "a1"), states=down).verdict is Verdict.VALID


def test_pathological(message: Messages) -> None:
    finding = check(rebalanced(40), led(0, 95, "a1", "a1", "b1"))
    assert (finding.verdict, finding.numbers["excess"]) == (Verdict.INVALID, 1)
    message(finding.summary)
    assert "a1 leads 2" in finding.summary
    assert "b1 leads 1" in finding.summary
    assert "c1 leads 0" in finding.summary


def test_sane_as_even_as_the_broker_makes_it() -> None:
    """Of four queues two may lie on each of two nodes: none leads more than its share, rounded up."""
    whole = [cluster(), queues("q1", "q2", "q3", "q4"), phases(), node_states(), rebalanced(40)]
    for leaders, verdict in ((("a1", "a1", "b1", "b1"), Verdict.VALID), (("a1", "a1", "a1", "b1"), Verdict.INVALID)):
        events = [*whole, *led(0, 95, *leaders)]
        assert LeadersSpread(within_s=10).check(history((), (), events)).verdict is verdict


def test_queues_that_are_not_of_the_load_do_not_count() -> None:
    """Those of churn are classic, and none of them is moved."""
    rows = {f"q{i}": {"leader": leader} for i, leader in enumerate(("a1", "b1", "c1"), 1)}
    rows |= {f"churn-{i}": {"leader": "b1"} for i in range(3)}
    assert check(rebalanced(40), [event(at, "sample", queues=rows) for at in range(95)]).verdict is Verdict.VALID


def test_pathological_even_only_before_it_began_to_act() -> None:
    finding = check(rebalanced(40), led(0, 42, "a1", "b1", "c1"), led(42, 95, "a1", "a1", "a1"))
    assert finding.verdict is Verdict.INVALID


def test_pathological_spread_too_late() -> None:
    finding = check(rebalanced(40), led(0, 51, "a1", "a1", "a1"), led(51, 95, "a1", "b1", "c1"))
    assert finding.verdict is Verdict.INVALID


def test_what_counts_is_seen_after_the_rebalancing_and_up_to_the_bound() -> None:
    assert check(rebalanced(40), led(0, 95, "a1", "b1", "c1")).numbers["spread_after_s"] == 1
    just = check(rebalanced(40), led(0, 50, "a1", "a1", "a1"), led(50, 95, "a1", "b1", "c1"))
    assert (just.verdict, just.numbers["spread_after_s"], just.numbers["excess"]) == (Verdict.VALID, 10, 0)


def test_sane_leaders_are_known_only_later() -> None:
    late = check(rebalanced(40), led(0, 44, None, "b1", "c1"), led(44, 95, "a1", "b1", "c1"))
    assert (late.verdict, late.numbers["spread_after_s"]) == (Verdict.VALID, 4)


@pytest.mark.parametrize(("at_s", "verdict"), [(84, Verdict.INVALID), (85.1, Verdict.UNKNOWN)])
def test_the_record_may_end_with_the_time_that_is_looked_at(at_s: float, verdict: Verdict) -> None:
    finding = check(rebalanced(at_s), led(0, 95, "a1", "a1", "b1"))
    assert (finding.verdict, len(finding.examples)) == (verdict, 1)
    assert finding.numbers == {"rebalanced": 1, "excess": 1, "spread_after_s": None}


def test_the_worst_of_two_counts() -> None:
    first = check(rebalanced(20), rebalanced(70, step=1), led(0, 60, "a1", "a1", "b1"), led(60, 95, "a1", "b1", "c1"))
    assert (first.verdict, first.numbers["excess"]) == (Verdict.INVALID, 1)

    uneven = [led(0, 60, "a1", "b1", "c1"), led(60, 95, "a1", "a1", "a1")]
    assert check(rebalanced(40), rebalanced(70, step=1), *uneven).verdict is Verdict.INVALID


def test_unknown_where_a_fault_moves_leaders_before_the_time_is_over() -> None:
    killed = fault(44, 60, step=1, name="kill", down=["b1"])
    finding = check(rebalanced(40), led(0, 95, "a1", "a1", "c1"), killed)
    assert finding.verdict is Verdict.UNKNOWN


def test_a_node_that_comes_back_after_the_rebalancing_leads_nothing() -> None:
    killed = fault(15, 60, step=1, name="kill", down=["c1"])
    states = node_states(unlike={"c1": [(15, 62, "down")]})
    even, uneven = led(0, 95, "a1", "b1", "a1"), led(0, 95, "a1", "a1", "a1")
    assert check(rebalanced(40), killed, even, states=states).verdict is Verdict.VALID
    assert check(rebalanced(40), killed, uneven, states=states).verdict is Verdict.INVALID


def test_other_operations_rebalance_nothing_and_end_nothing() -> None:
    policy = fault(45, 60, step=1, name="set_policy", operation=True)
    assert check(policy, led(0, 95, "a1", "a1", "a1")).verdict is Verdict.UNKNOWN
    uneven_later = led(0, 50, "a1", "b1", "c1"), led(50, 95, "a1", "a1", "a1")
    assert check(rebalanced(40), policy, *uneven_later).verdict is Verdict.INVALID


def test_unknown_while_leaders_are_not_known() -> None:
    assert check(rebalanced(40), led(0, 95, "a1", None, "c1")).verdict is Verdict.UNKNOWN
    assert check(rebalanced(40)).verdict is Verdict.UNKNOWN


def test_pathological_one_look_and_none_after_it(message: Messages) -> None:
    whole = [cluster(), queues("q1", "q2", "q3"), phases(), node_states(), rebalanced(40)]
    judged = [*led(40, 43, "a1", "b1", "c1"), *led(75, 95, "a1", "b1", "c1")]
    finding = LeadersSpread(within_s=30).check(history((), (), [*whole, *judged]))
    assert (finding.verdict, finding.coverage) == (Verdict.UNKNOWN, Coverage(0, 1, "rebalancings"))
    message(finding.summary)
    assert "+42.000 s" in finding.summary
    assert LeadersSpread(within_s=12).check(history((), (), [*whole, *judged])).verdict is Verdict.UNKNOWN


def test_a_queue_that_is_not_listed_may_lie_anywhere() -> None:
    """q1 and q2 are spread evenly, and nobody knows where q3 is."""
    assert check(rebalanced(40), led(0, 95, "a1", "b1")).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("later", "verdict"),
    [(("a1", "a1", "a1"), Verdict.INVALID), (("a1", "b1", "c1"), Verdict.VALID), ((None,), Verdict.UNKNOWN)],
)
def test_they_stay_so_until_something_else_moves_them(later: tuple[str | None, ...], verdict: Verdict) -> None:
    even, then = led(42, 60, "a1", "b1", "c1"), led(60, 95, *later)
    assert check(rebalanced(40), even, then).verdict is verdict
    assert check(rebalanced(40), even, then, fault(58, 59, step=1, down=["c1"])).verdict is Verdict.VALID


def test_queues_that_no_rebalancing_moves_do_not_count() -> None:
    places = {
        f"q{n}": {"type": kind, "members": ["a1"], "leader": "a1"}
        for n, kind in enumerate(["quorum"] * 3 + ["classic"] * 3, 1)
    }
    whole = [cluster(), event(0, "queues", queues=places), phases(), node_states(), rebalanced(40)]
    looks = led(40, 95, "a1", "b1", "c1", "a1", "a1", "a1")
    assert LeadersSpread(within_s=10).check(history((), (), [*whole, *looks])).verdict is Verdict.VALID


def test_unknown_where_the_last_look_before_the_next_fault_was_early_and_uneven() -> None:
    """Nobody looked between when leaders had to be spread and the fault, which came soon after."""
    looks = led(30, 50, "a1", "a1", "b1"), led(53, 95, "a1", "b1", "c1")
    assert check(rebalanced(40), *looks, fault(52.5, 60, step=1, down=["c1"])).verdict is Verdict.UNKNOWN
    even = led(30, 50, "a1", "b1", "c1"), led(53, 95, "a1", "b1", "c1")
    assert check(rebalanced(40), *even, fault(52.5, 60, step=1, down=["c1"])).verdict is Verdict.VALID


def test_nodes_that_no_queue_has_a_member_on_need_not_lead() -> None:
    """Nine queues have their members on three of five nodes, and each of these leads three."""
    names = [f"q{i}" for i in range(1, 10)]
    whole = [cluster(FIVE), queues(*names, members=("a1", "a2", "b1")), phases(), node_states(FIVE)]
    even = led(42, 95, *[("a1", "a2", "b1")[i % 3] for i in range(9)])
    found = LeadersSpread(within_s=10).check(history((), (), [*whole, *rebalanced(39.5), *even]))
    assert found.verdict is Verdict.VALID
    uneven = led(42, 95, *["a1"] * 4, *["a2"] * 3, *["b1"] * 2)
    found = LeadersSpread(within_s=10).check(history((), (), [*whole, *rebalanced(39.5), *uneven]))
    assert found.verdict is Verdict.INVALID
