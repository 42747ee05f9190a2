"""A node that pauses too late, or a side that restarts too late, where this machine may have made it late."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from rabbitmq_resilience.invariants.partition_mode import PartitionMode
from rabbitmq_resilience.invariants.verdict import Finding, Verdict
from tests.invariants.literal import apart, cluster, event, fault, history, node_states, phases

#: net_ticktime is 4 s: with 5 s of margin a node has until 30 s to pause.
CUT_S, DUE_S, HEALED_S, END_S = 20, 30, 50, 95
AROUND = apart(["a1"], ["b1"])
ALONE = apart(["a1"], ["b1", "c1"])


def check(*machine: Any, mode: str = "pause_minority", cut: Any = ALONE, **away: tuple[float, float] | None) -> Finding:
    """``away``: when which node was seen paused."""
    unlike = {node: [(*span, "paused")] for node, span in away.items() if span is not None}
    seen = node_states(unlike=unlike, end_s=END_S)
    events = [cluster(mode=mode), phases(), seen, fault(CUT_S, HEALED_S, cut=cut), *machine]
    return PartitionMode(margin_s=5).check(history((), (), events))


def machine(*, from_s: int = 0, to_s: int = END_S, node: str = "a1", waited: float = 0.0, others: float = 0.0) -> Any:
    """One look each second; others and waiting only in that time."""
    return [
        event(
            until_s,
            "machine",
            busy=1.0,
            others=others if from_s < until_s <= to_s else 0.0,
            waited_s={node: waited if from_s < until_s <= to_s else 0.0},
        )
        for until_s in range(1, END_S)
    ]


def test_a_node_that_waited_for_a_processor_may_have_paused_late_for_that() -> None:
    told = check(machine(from_s=20, to_s=40, waited=0.9), a1=(38, 52))
    assert told.verdict is Verdict.UNKNOWN
    assert told.summary == (
        "a1 had to pause; 1 things went otherwise: a1 paused only after 18 s, though it was in a minority from "
        "+20.000 s on; 10 s are allowed, beside step 0 (partition); a1 waited for a processor of this machine for "
        "15.8 s of that"
    )
    assert (told.examples, told.numbers["had_to_pause"], told.numbers["paused_after_s_max"]) == ((), "a1", None)


def test_another_node_that_waited_is_no_excuse() -> None:
    assert check(machine(node="b1", waited=0.9), a1=(38, 52)).verdict is Verdict.INVALID


def test_what_a_busy_machine_made_late_hides_nothing_else() -> None:
    busy = machine(others=0.5)
    assert check(busy, a1=(38, 52)).verdict is Verdict.UNKNOWN
    told = check(busy, a1=(38, 52), c1=(60, 62))
    assert (told.verdict, told.summary.endswith("c1 was paused without need at +60.000 s, beside no fault")) == (
        Verdict.INVALID,
        True,
    )
    assert check(busy, a1=(38, 45)).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("cut", "mode", "node", "due_s"),
    [(ALONE, "pause_minority", "a1", 30), (AROUND, "pause_minority", "b1", 30), (ALONE, "autoheal", "a1", 80)],
    ids=["in a minority", "of a pair", "of the side that lost"],
)
def test_late_on_a_busy_machine_is_not_told_and_never_is(cut: Any, mode: str, node: str, due_s: float) -> None:
    def verdict(came_s: float | None, *looks: Any) -> Verdict:
        return check(*looks, mode=mode, cut=cut, **{node: None if came_s is None else (came_s, came_s + 60)}).verdict

    assert verdict(due_s - 1) is Verdict.VALID
    for late_s in (due_s + 1, due_s + 8):
        assert verdict(late_s) is Verdict.INVALID
        assert verdict(late_s, machine(others=0.5)) is Verdict.UNKNOWN
        assert verdict(late_s, machine(waited=0.9, node=node)) is Verdict.UNKNOWN
        assert verdict(late_s, machine(others=0.2)) is Verdict.INVALID
    assert verdict(None, machine(others=0.5)) is Verdict.INVALID


def test_who_restarted_in_time_is_not_excused_for_doing_so_again() -> None:
    seen = node_states(unlike={"a1": [(52, 58, "paused"), (81, 99, "paused")]}, end_s=END_S)
    events = [cluster(mode="autoheal"), phases(), seen, fault(CUT_S, HEALED_S, cut=ALONE), machine(others=0.9)]
    told = PartitionMode(margin_s=5).check(history((), (), events))
    assert (told.verdict, "a1 was paused without need at +81.000 s" in told.summary) == (Verdict.INVALID, True)


def test_sides_of_which_each_restarted_are_not_excused() -> None:
    """Too many are not too late."""
    gone = dict.fromkeys(("a1", "b1", "c1"), (52.0, 58.0))
    assert check(machine(others=0.9, waited=0.9), mode="autoheal", **gone).verdict is Verdict.INVALID


def made_up(seed: int) -> tuple[float | None, dict[int, float], float]:
    """When it pauses, how long it waited in which second, and what others had of the machine."""
    drawn = random.Random(seed)  # noqa: S311 - no secret
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
