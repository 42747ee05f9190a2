"""A node that pauses too late, or a side that restarts too late, where this machine may have made it late."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from rabbitmq_resilience.checkers.partition_mode import PartitionMode
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from tests.invariants.literal import PHASES, apart, cluster, event, fault, history, node_states, phases, publish, queues
from tests.messages import Messages

#: net_ticktime is 4 s: with 5 s of margin a node has until 30 s to pause.
CUT_S, DUE_S, HEALED_S, END_S = 20, 30, 50, 95
AROUND = apart(["a1"], ["b1"])
ALONE = apart(["a1"], ["b1", "c1"])


def check(
    *events: Any,
    mode: str = "pause_minority",
    cut: Any = ALONE,
    healed_s: float = HEALED_S,
    end_s: float = END_S,
    published: Any = (),
    **away: Any,
) -> Finding:
    """``away``: when which node was seen paused: (from, to), several of them, or None."""
    spans = {node: told if isinstance(told, list) else [told] for node, told in away.items() if told is not None}
    seen = node_states(unlike={node: [(*span, "paused") for span in told] for node, told in spans.items()}, end_s=end_s)
    told = phases(**{**PHASES, "drain": end_s - 5, "end": end_s})
    happened = [cluster(mode=mode), told, seen, fault(CUT_S, healed_s, cut=cut), *events]
    return PartitionMode(margin_s=5).check(history(published, (), happened))


def machine(*, from_s: int = 0, to_s: int = 200, node: str = "a1", waited: float = 0.0, others: float = 0.0) -> Any:
    """One look each second; others and waiting only in that time."""
    return [
        event(
            until_s,
            "machine",
            busy=1.0,
            others=others if from_s < until_s <= to_s else 0.0,
            waited_s={node: waited if from_s < until_s <= to_s else 0.0},
        )
        for until_s in range(1, 200)
    ]


def test_a_node_that_waited_for_a_processor_may_have_paused_late_for_that(message: Messages) -> None:
    told = check(machine(from_s=20, to_s=40, waited=0.9), a1=(38, 52))
    assert told.verdict is Verdict.UNKNOWN
    message(told.summary)
    assert "18 s" in told.summary
    assert "+20.000 s" in told.summary
    assert "10 s" in told.summary
    assert "15.8 s" in told.summary
    assert (told.examples, told.numbers["had_to_pause"], told.numbers["paused_after_s_max"]) == ((), "a1", None)


def test_another_node_that_waited_is_no_excuse() -> None:
    assert check(machine(node="b1", waited=0.9), a1=(38, 52)).verdict is Verdict.INVALID


def test_what_a_busy_machine_made_late_hides_nothing_else(message: Messages) -> None:
    busy = machine(others=0.5)
    assert check(busy, a1=(38, 52)).verdict is Verdict.UNKNOWN
    told = check(busy, a1=(38, 52), c1=(62, 64))
    assert told.verdict is Verdict.INVALID
    message(told.examples[0])
    assert "c1" in told.examples[0]
    assert "+62.000 s" in told.examples[0]
    for up_again in ([(38, 45)], [(38, 39), (41, 42)]):
        assert check(busy, a1=up_again).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("cut", "mode", "node", "due_s"),
    [(ALONE, "pause_minority", "a1", 30), (AROUND, "pause_minority", "b1", 30), (ALONE, "autoheal", "a1", 80)],
    ids=["in a minority", "of a pair", "of the side that lost"],
)
def test_late_on_a_busy_machine_is_not_reported_and_never_is(cut: Any, mode: str, node: str, due_s: float) -> None:
    def verdict(came_s: float | None, *looks: Any) -> Verdict:
        away: dict[str, Any] = {node: None if came_s is None else (came_s, came_s + 60)}
        return check(*looks, mode=mode, cut=cut, **away).verdict

    assert verdict(due_s - 1) is Verdict.VALID
    for late_s in (due_s + 1, due_s + 8):
        assert verdict(late_s) is Verdict.INVALID
        assert verdict(late_s, machine(others=0.5)) is Verdict.UNKNOWN
        assert verdict(late_s, machine(waited=0.9, node=node)) is Verdict.UNKNOWN
        assert verdict(late_s, machine(others=0.2)) is Verdict.INVALID
    assert verdict(None, machine(others=0.5)) is Verdict.INVALID


BUSY, IN_TIME, LATE = machine(others=0.5), (52, 58), (85, 88)  # a split that is healed at 50 s is mended by 80 s


@pytest.mark.parametrize(
    ("away", "end_s"),
    [
        pytest.param({"a1": LATE, "b1": LATE, "c1": LATE}, 95, id="all, late"),
        pytest.param({"a1": IN_TIME, "b1": LATE, "c1": LATE}, 95, id="the loser in time, the others late"),
        pytest.param({"b1": IN_TIME, "c1": IN_TIME, "a1": LATE}, 95, id="the losers in time, the winner late"),
        pytest.param({"a1": IN_TIME, "b1": IN_TIME, "c1": LATE}, 95, id="both sides in time, one late"),
        pytest.param({"b1": LATE}, 150, id="one of a side late, the other never"),
        pytest.param({}, 150, id="nobody"),
    ],
)
def test_no_machine_makes_more_sides_restart_or_fewer(away: dict[str, Any], end_s: float) -> None:
    assert check(BUSY, mode="autoheal", end_s=end_s, **away).verdict is Verdict.INVALID
    assert check(mode="autoheal", end_s=end_s, **away).verdict is Verdict.INVALID


def test_each_of_three_sides_but_one_restarts_if_late() -> None:
    cut = [*ALONE, *apart(["b1"], ["c1"])]
    assert check(BUSY, mode="autoheal", cut=cut, end_s=150, c1=LATE).verdict is Verdict.INVALID
    assert check(BUSY, mode="autoheal", cut=cut, end_s=150, b1=(88, 93), c1=LATE).verdict is Verdict.UNKNOWN


def test_any_node_may_keep_the_others_from_mending_a_split() -> None:
    assert check(machine(node="c1", waited=0.9), mode="autoheal", a1=LATE).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("cut", "node"), [(ALONE, "a1"), (AROUND, "b1")])
def test_late_is_late_however_soon_the_cut_is_healed(cut: Any, node: str, message: Messages) -> None:
    """It was due at 30 s, and was seen at 31.5 s."""
    away: dict[str, Any] = {node: (31.5, 36)}
    for healed_s in (31, 33):
        told = check(BUSY, cut=cut, healed_s=healed_s, **away)
        assert told.verdict is Verdict.UNKNOWN
        message(told.summary)
        assert check(cut=cut, healed_s=healed_s, **away).verdict is Verdict.INVALID


def test_a_pause_that_may_be_and_is_late_is_no_pause_without_need(message: Messages) -> None:
    """The cut is over at 28 s, so that it may pause until 38 s, and need not."""
    told = check(machine(waited=0.9), healed_s=28, a1=(38.5, 44))
    assert told.verdict is Verdict.UNKNOWN
    message(told.summary)
    assert "a1" in told.summary
    assert "+38.500 s" in told.summary
    assert check(healed_s=28, a1=(38.5, 44)).verdict is Verdict.INVALID


def test_what_a_node_confirms_until_it_pauses_late_is_no_more_than_late() -> None:
    queue = queues("q1", kind="classic", members=["a1"])
    for at_s, verdict in ((32, Verdict.UNKNOWN), (45, Verdict.INVALID)):
        assert check(BUSY, queue, published=[publish(1, at_s)], a1=(38, 52)).verdict is verdict
    assert check(queue, published=[publish(1, 32)], a1=(38, 52)).verdict is Verdict.INVALID


def test_others_that_came_when_it_was_due_did_not_make_it_late() -> None:
    """They had 26 % of the whole time."""
    assert check(machine(from_s=31, to_s=38, others=0.9), a1=(36, 52)).verdict is Verdict.INVALID
    assert check(machine(from_s=25, to_s=38, others=0.9), a1=(36, 52)).verdict is Verdict.UNKNOWN


def test_a_restart_of_the_split_before_does_not_count_for_this_one() -> None:
    again = fault(62, 77, step=1, cut=ALONE)
    told = check(machine(others=0.9), again, healed_s=47, mode="autoheal", end_s=180, a1=[(48, 51), (109, 113)])
    assert told.verdict is Verdict.UNKNOWN, told.summary


def test_who_restarted_in_time_is_not_excused_for_doing_so_again(message: Messages) -> None:
    seen = node_states(unlike={"a1": [(52, 58, "paused"), (81, 99, "paused")]}, end_s=END_S)
    events = [cluster(mode="autoheal"), phases(), seen, fault(CUT_S, HEALED_S, cut=ALONE), machine(others=0.9)]
    told = PartitionMode(margin_s=5).check(history((), (), events))
    assert told.verdict is Verdict.INVALID
    message(told.summary)
    assert "a1" in told.summary
    assert "+81.000 s" in told.summary


def test_sides_of_which_each_restarted_are_not_excused() -> None:
    """Too many are not too late."""
    gone: dict[str, Any] = dict.fromkeys(("a1", "b1", "c1"), (52.0, 58.0))
    assert check(machine(others=0.9, waited=0.9), mode="autoheal", **gone).verdict is Verdict.INVALID


def made_up(seed: int) -> tuple[float | None, dict[int, float], float]:
    """When it pauses, how long it waited in which second, and what others had of the machine."""
    drawn = random.Random(seed)  # noqa: S311 - a seeded choice, no secret
    pauses_s = drawn.choice([None, *(half / 2 for half in range(50, 100))])
    waited = {second: round(drawn.choice([0.0, 0.0, drawn.random(), 1.0]), 2) for second in range(END_S)}
    return pauses_s, waited, drawn.choice([0.0, 0.1, 0.6])


@pytest.mark.parametrize("seed", range(60))
def test_made_up_nodes_pause_late_by_themselves_or_by_their_machine(seed: int) -> None:
    """Counted second by second: a node is late until the last look at which it was not paused, looks being half a
    second apart."""
    pauses_s, waited, others = made_up(seed)
    looks = [
        event(second + 1, "machine", busy=1.0, others=others, waited_s={"a1": waited[second]})
        for second in range(END_S - 1)
    ]
    found = check(looks, a1=None if pauses_s is None else (pauses_s, 52))
    assert found.verdict is obvious(pauses_s, waited, others)


def obvious(pauses_s: float | None, waited: dict[int, float], others: float) -> Verdict:
    if pauses_s is not None and pauses_s <= DUE_S:
        return Verdict.VALID
    last_s = HEALED_S - 0.5 if pauses_s is None else pauses_s - 0.5
    took_s = max(last_s, DUE_S) - CUT_S
    lost_s = 0.0
    for second in range(CUT_S, HEALED_S):
        lost_s += min(max(0.0, CUT_S + took_s - second), 1.0, waited[second])
    if took_s > 2 * (DUE_S - CUT_S):
        return Verdict.INVALID
    if pauses_s is None:
        may = lost_s >= took_s / 2 and took_s - lost_s <= DUE_S - CUT_S
    else:
        may = (lost_s > 0 and took_s - lost_s <= DUE_S - CUT_S) or others >= 0.25
    return Verdict.UNKNOWN if may else Verdict.INVALID


def test_the_made_up_nodes_are_of_each_kind() -> None:
    """So that the cases above are worth what they seem to be."""
    told: Counter[Verdict] = Counter()
    for seed in range(60):
        told[obvious(*made_up(seed))] += 1
    assert min(told[verdict] for verdict in Verdict) >= 5, told


def test_a_node_that_never_comes_back_is_reported() -> None:
    """Whether it had to is judged by ``recovery``."""
    finding = check([], a1=(25, 95))
    assert finding.verdict is Verdict.VALID
    assert finding.summary.endswith("; a1 had not come back when the record ended")
