"""What generated cases found: histories on which the checkers told a kept promise as broken, made small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from rabbitmq_resilience.checkers.metadata import Metadata
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.partition_mode import PartitionMode
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants.literal import (
    FIVE,
    FOUR,
    THREE,
    apart,
    cluster,
    event,
    fault,
    history,
    node_states,
    phases,
    publish,
    queues,
)

Seen = Mapping[str, Sequence[tuple[float, float, str]]]


def mode_of(*steps: list[Event], seen: Seen, nodes: Sequence[str] = THREE, mode: str = "autoheal") -> Finding:
    events = [cluster(nodes, mode=mode), phases(), queues("q1", members=nodes), node_states(nodes, seen), *steps]
    return PartitionMode(margin_s=1).check(history((), (), events))


def loss_of(
    *steps: list[Event], seen: Seen, lost: Sequence[tuple[float, int]], nodes: Sequence[str], members: Sequence[str]
) -> Finding:
    """``lost``: when, and through which node."""
    events = [
        cluster(nodes, mode="autoheal"),
        phases(),
        queues("q1", kind="mirrored", members=members),
        node_states(nodes, seen),
        *steps,
    ]
    rows = [publish(n, at_s) | {"node": node} for n, (at_s, node) in enumerate(lost)]
    return NoLoss().check(history(rows, (), events))


def test_the_side_that_is_trusted_may_be_one_that_was_suspended_meanwhile() -> None:
    """b1 and c1 were parted all the time. a1 was suspended, and comes back as it was: if it is trusted both restart."""
    parted = fault(20, 50, cut=apart(["b1"], ["a1", "c1"]) + apart(["c1"], ["a1"]))
    suspended = fault(30, 45, step=1, name="pause", down=["a1"])
    seen: Seen = {"a1": [(30, 45, "suspended")], "b1": [(53, 57, "paused")], "c1": [(53, 57, "paused")]}
    assert mode_of(parted, suspended, seen=seen).verdict is Verdict.VALID
    seen = {"a1": [(30, 45, "suspended")]}
    assert mode_of(parted, suspended, seen=seen).verdict is Verdict.INVALID


def test_the_side_that_is_trusted_may_be_that_of_a_node_that_was_killed_and_came_back_for_itself() -> None:
    parted = fault(20, 50, cut=apart(["b1"], ["a1", "c1"]) + apart(["c1"], ["a1"]))
    killed = fault(30, 32, step=1, name="kill", down=["a1"])
    down, restart = [(30.0, 36.0, "down")], [(53.0, 57.0, "paused")]
    assert mode_of(parted, killed, seen={"a1": down, "b1": restart, "c1": restart}).verdict is Verdict.VALID
    assert mode_of(parted, killed, seen={"a1": down, "b1": restart}).verdict is Verdict.VALID
    assert mode_of(parted, killed, seen={"a1": down}).verdict is Verdict.INVALID


def test_nodes_of_a_side_that_were_parted_before_are_no_side() -> None:
    """a2 lost c1 for a while before a1 was cut off: c1 restarts, and the others of its side do not."""
    before = fault(20, 26, cut=apart(["a2"], ["c1"]))
    cut = fault(25, 50, step=1, cut=apart(["a1"], ["a2", "b1", "b2", "c1"]))
    seen: Seen = {node: [(53.0, 57.0, "paused")] for node in ("a1", "c1")}
    assert mode_of(before, cut, seen=seen, nodes=FIVE).verdict is Verdict.VALID
    assert mode_of(cut, seen=seen, nodes=FIVE).verdict is Verdict.INVALID
    assert mode_of(before, cut, seen={"c1": seen["c1"]}, nodes=FIVE).verdict is Verdict.INVALID


def test_a_node_that_restarted_when_the_cut_began_is_on_no_side() -> None:
    """c1 mends an earlier split then, and may stay away as long as its peers are not there."""
    earlier = fault(12, 18, cut=apart(["b1"], ["c1"]))
    cut = fault(20, 50, step=1, cut=apart(["b1"], ["a1", "a2", "c1"]))
    nodes = ("a1", "b1", "c1", "a2")
    seen: Seen = {"c1": [(19, 50, "paused")], "b1": [(53, 57, "paused")]}
    assert mode_of(earlier, cut, seen=seen, nodes=nodes).verdict is Verdict.VALID


def test_a_side_that_is_cut_again_after_it_restarted_may_restart_again() -> None:
    """Each time another side may be trusted."""
    cut = fault(15, 30, cut=apart(["a1"], ["b1", "c1"]))
    again = fault(34, 50, step=1, cut=apart(["a1"], ["b1", "c1"]), intermittent=True, sudden=True)
    seen: Seen = {"a1": [(52, 56, "paused")], **{node: [(32.0, 36.0, "paused")] for node in ("b1", "c1")}}
    assert mode_of(cut, again, seen=seen).verdict is Verdict.VALID


def test_a_pause_counts_from_when_the_peer_fell_silent_though_others_saw_it_only_later() -> None:
    """a1 was suspended, and is cut off from c1 alone as it wakes up: c1 has waited for it since then."""
    suspended = fault(20, 30, name="pause", down=["a1"])
    cut = fault(29, 40, step=1, cut=apart(["a1"], ["c1"]))
    seen: Seen = {"a1": [(20, 30, "suspended")], "c1": [(31, 42, "paused")]}
    assert mode_of(suspended, cut, seen=seen, mode="pause_minority").verdict is Verdict.VALID
    assert mode_of(cut, seen={"c1": seen["c1"]}, mode="pause_minority").verdict is Verdict.INVALID


def test_a_pair_that_is_cut_apart_may_pause_though_another_peer_fell_silent_just_before() -> None:
    """c1 does not know yet that a2 is lost, which would put it into a minority."""
    silent = fault(18.5, 28, cut=apart(["a2"], ["a1", "b1", "c1"]))
    cut = fault(21, 30, step=1, cut=apart(["a1"], ["c1"]), sudden=True)
    seen: Seen = {"a1": [(22, 33, "paused")], "c1": [(21, 30, "paused")], "a2": [(24, 30, "paused")]}
    assert mode_of(silent, cut, seen=seen, nodes=FOUR, mode="pause_minority").verdict is Verdict.VALID


@pytest.mark.parametrize(("lasts_s", "verdict"), [(2.9, Verdict.INVALID), (3, Verdict.VALID)])
def test_one_of_a_pair_may_pause_if_their_cut_lasts_until_it_may_just_be_noticed(
    lasts_s: float, verdict: Verdict
) -> None:
    cut = fault(20, 20 + lasts_s, cut=apart(["a1"], ["b1"]))
    assert mode_of(cut, seen={"a1": [(23, 26, "paused")]}, mode="pause_minority").verdict is verdict


def test_messages_of_a_side_go_with_the_only_member_on_it_though_another_of_its_nodes_is_trusted() -> None:
    """a2 has no copy: it keeps nothing of what it handed on to a1."""
    cut = fault(20, 50, cut=apart(["a1", "a2"], ["b1", "b2"]))
    later = fault(30, 55, step=1, cut=apart(["a1"], ["a2"]))
    seen: Seen = {node: [(58.0, 62.0, "paused")] for node in ("a1", "b1", "b2")}
    both = [(25.0, 0), (26.0, 1)]
    finding = loss_of(cut, later, seen=seen, lost=both, nodes=FOUR, members=["a1", "b1"])
    assert (finding.verdict, finding.numbers["lost_permitted"]) == (Verdict.VALID, 2)
    of_the_other_side = [*both, (25.0, 2)]
    finding = loss_of(cut, later, seen=seen, lost=of_the_other_side, nodes=FOUR, members=["a1", "b1"])
    assert (finding.verdict, finding.numbers["lost"]) == (Verdict.INVALID, 1)


def test_where_nodes_see_each_other_in_part_what_goes_through_a_third_may_be_on_any_side() -> None:
    cut = fault(20, 50, cut=apart(["a1"], ["b1"]))
    seen: Seen = {"b1": [(53, 57, "paused")]}
    assert loss_of(cut, seen=seen, lost=[(30, 2)], nodes=THREE, members=["a1", "b1"]).verdict is Verdict.VALID
    nobody = loss_of(cut, seen={}, lost=[(30, 2)], nodes=THREE, members=["a1", "b1"])
    assert nobody.verdict is Verdict.INVALID


def test_of_a_flapping_link_each_side_may_give_way_in_its_turn() -> None:
    """What a1 had is gone with its own restart, and what b1 and c1 had with theirs later."""
    flapping = fault(20, 50, cut=apart(["a1"], ["b1", "c1"]), intermittent=True)
    first, then = [(30.0, 35.0, "paused")], [(53.0, 57.0, "paused")]
    lost = [(26.0, 0), (45.0, 1)]
    in_turn = loss_of(flapping, seen={"a1": first, "b1": then, "c1": then}, lost=lost, nodes=THREE, members=THREE)
    assert (in_turn.verdict, in_turn.numbers["lost_permitted"]) == (Verdict.VALID, 2)
    at_once = loss_of(flapping, seen={"a1": then, "b1": then, "c1": then}, lost=lost, nodes=THREE, members=THREE)
    assert (at_once.verdict, at_once.numbers["lost_permitted"]) == (Verdict.INVALID, 1)


@pytest.mark.parametrize(("at_s", "verdict"), [(25, Verdict.VALID), (40, Verdict.INVALID)])
def test_what_a_node_took_after_it_had_come_back_is_not_lost_with_the_other_of_its_side(
    at_s: float, verdict: Verdict
) -> None:
    cut = fault(20, 50, cut=apart(["a1"], ["b1", "c1"]))
    killed = fault(30, 32, step=1, name="kill", down=["b1"])
    seen: Seen = {"b1": [(30, 36, "down")], "c1": [(52, 56, "paused")]}
    assert loss_of(cut, killed, seen=seen, lost=[(at_s, 1)], nodes=THREE, members=THREE).verdict is verdict


def test_a_node_that_was_suspended_as_it_restarted_gave_way() -> None:
    cut = fault(20, 40, cut=apart(["a1"], ["b1", "c1"]))
    suspended = fault(43, 50, step=1, name="pause", down=THREE)
    still = [(43.0, 50.0, "suspended")]
    seen: Seen = {"a1": [(42.5, 43, "paused"), *still], "b1": still, "c1": still}
    items = (("queue 0", "a1"), ("queue 1", "b1"))
    told = [
        event(30, "declaration", item=item, node=node, state=state)
        for item, node in items
        for state in ("asked", "created")
    ]
    answers = event(95, "metadata", nodes={node: ["queue 1"] for node in THREE})
    events = [
        cluster(mode="autoheal"),
        phases(),
        queues("q1"),
        node_states(unlike=seen),
        cut,
        suspended,
        *told,
        answers,
    ]
    assert Metadata().check(history((), (), events)).verdict is Verdict.VALID


SLOW = [("a1", "b1"), ("a1", "c1")]
BACK = [(b, a) for a, b in SLOW]


@pytest.mark.parametrize(
    ("links", "slow_s", "verdict"),
    [
        (SLOW, 3.0, Verdict.VALID),
        (SLOW, 2.9, Verdict.INVALID),
        ([*SLOW, *BACK], 1.5, Verdict.VALID),
        ([*SLOW, *BACK], 1.4, Verdict.INVALID),
        (SLOW, 0, Verdict.INVALID),
    ],
)
def test_a_node_may_pause_whose_messages_are_later_than_ticks_are_waited_for(
    links: list[tuple[str, str]], slow_s: float, verdict: Verdict
) -> None:
    """One way or both ways together, and from half of the others at least: net_ticktime is 4 s."""
    slow = fault(20, 60, name="latency", slow=links, slow_s=slow_s)
    assert mode_of(slow, seen={"a1": [(40, 50, "paused")]}, mode="pause_minority").verdict is verdict
    assert mode_of(slow, seen={}, mode="pause_minority").verdict is Verdict.VALID


def test_a_node_may_pause_that_is_starved_and_no_one_else() -> None:
    starved = fault(20, 60, name="limit", starved=["a1"])
    assert mode_of(starved, seen={"a1": [(21, 61, "paused")]}, mode="pause_minority").verdict is Verdict.VALID
    assert mode_of(starved, seen={"b1": [(40, 50, "paused")]}, mode="pause_minority").verdict is Verdict.INVALID


@pytest.mark.parametrize("step", [{"slow": [*SLOW, *BACK], "slow_s": 2.0}, {"starved": ["a1"]}])
def test_what_a_slow_or_starved_node_had_alone_may_be_lost_if_it_restarts(step: Mapping[str, object]) -> None:
    there = fault(20, 60, name="slow", **step)  # type: ignore[arg-type]
    restarts: Seen = {"a1": [(62, 66, "paused")]}
    assert loss_of(there, seen=restarts, lost=[(40, 0)], nodes=THREE, members=THREE).verdict is Verdict.VALID
    assert loss_of(there, seen=restarts, lost=[(40, 1)], nodes=THREE, members=THREE).verdict is Verdict.INVALID
    assert loss_of(there, seen={}, lost=[(40, 0)], nodes=THREE, members=THREE).verdict is Verdict.INVALID


def test_nodes_that_one_step_suspended_are_on_one_side_when_they_wake_up() -> None:
    """What c1 took before both restart went to b1 too, which is as much behind the others as c1."""
    nodes = ("a1", "b1", "c1", "a2")
    suspended = fault(20, 40, name="pause", down=["b1", "c1"])
    still, restarts = (20.0, 40.0, "suspended"), (42.5, 46.0, "paused")
    seen: Seen = {"b1": [still, restarts], "c1": [still, restarts]}
    assert loss_of(suspended, seen=seen, lost=[(41, 2)], nodes=nodes, members=nodes).verdict is Verdict.VALID
    seen = {"b1": [still], "c1": [still, restarts]}
    assert loss_of(suspended, seen=seen, lost=[(41, 2)], nodes=nodes, members=nodes).verdict is Verdict.INVALID


def test_of_copies_that_move_no_one_knows_which_side_had_one() -> None:
    """b1 keeps what it has, but the copy may have been on c1; on the other side nobody went away."""
    nodes = ("a1", "b1", "c1", "a2")
    suspended = fault(20, 40, name="pause", down=["b1", "c1"])
    seen: Seen = {"b1": [(20.0, 40.0, "suspended")], "c1": [(20.0, 40.0, "suspended"), (42.5, 46.0, "paused")]}
    lost = loss_of(suspended, seen=seen, lost=[(41, 2)], nodes=nodes, members=["a1", "b1"])
    assert (lost.verdict, lost.numbers["lost_permitted"]) == (Verdict.VALID, 1)
    kept = loss_of(suspended, seen=seen, lost=[(41, 0)], nodes=nodes, members=["a1", "b1"])
    assert kept.verdict is Verdict.INVALID


@pytest.mark.parametrize(("again_s", "verdict"), [(45, Verdict.VALID), (55, Verdict.INVALID)])
def test_autoheal_waits_until_all_nodes_see_each_other(again_s: float, verdict: Verdict) -> None:
    """a1 and the others are parted from the first cut on. The second begins before they have mended that, and it is
    not that of b2 from the rest that is mended only: all but a1 restart, with what they took between the cuts."""
    first = fault(12, 20, cut=apart(["a1"], ["a2", "b1", "b2", "c1"]))
    again = fault(again_s, 65, step=1, cut=apart(["b2"], ["a1", "a2", "b1", "c1"]))
    seen: Seen = {node: [(67.0, 72.0, "paused")] for node in FIVE if node != "a1"}
    lost = [(17.0, 1), (22.0, 1)]
    found = loss_of(first, again, seen=seen, lost=lost, nodes=FIVE, members=FIVE)
    assert (found.verdict, found.numbers["lost_permitted"]) == (verdict, 2 if verdict is Verdict.VALID else 0)


def test_nodes_may_restart_late_where_one_was_missing_before() -> None:
    """b1 is away from soon after the cut on, and autoheal waits for it."""
    cut = fault(12, 20, cut=apart(["a1"], ["b1", "c1"]))
    killed = fault(22, 60, step=1, name="kill", down=["b1"])
    seen: Seen = {"b1": [(22, 63, "down")], "c1": [(65, 69, "paused")]}
    assert mode_of(cut, killed, seen=seen).verdict is Verdict.VALID
    assert mode_of(cut, seen={"c1": seen["c1"]}).verdict is Verdict.INVALID


def test_a_node_that_is_killed_as_it_wakes_up_was_suspended_all_the_same() -> None:
    """The others went on without c1. It took an item as it woke up, and all were killed before its healing was over."""
    states = {"injecting": 25, "injected": 25, "proven": 26, "healing": 32, "healed": 36, "heal_proven": 36}
    suspended = [
        one for state, at_s in states.items() for one in fault(at_s, at_s, step=1, down=["c1"], states=(state,))
    ]
    killed = fault(34, 40, step=2, name="kill", down=THREE)
    seen: Seen = {node: [(34, 44, "down")] for node in ("a1", "b1")}
    seen = {**seen, "c1": [(25, 32, "suspended"), (34, 44, "down")]}
    item = [event(33, "declaration", item="queue 0", node="c1", state=state) for state in ("asked", "created")]
    answers = event(95, "metadata", nodes={node: [] for node in THREE})
    events = [cluster(mode="autoheal"), phases(), queues("q1"), node_states(unlike=seen), suspended, killed]
    assert Metadata().check(history((), (), [*events, item, answers])).verdict is Verdict.VALID


@pytest.mark.parametrize(("a1_gives_way", "verdict"), [(True, Verdict.VALID), (False, Verdict.INVALID)])
def test_who_is_left_of_a_side_goes_on_apart_though_its_peers_were_killed(a1_gives_way: bool, verdict: Verdict) -> None:
    """a1 sees b1 again, which is preferred, and so it need not pause; they are parted until one of them restarts."""
    cut = fault(12, 20, cut=apart(["a1", "a2"], ["b1", "b2"]))
    killed = fault(19, 40, step=1, name="kill", down=["a2"])
    seen: Seen = {"a2": [(19, 44, "down")]} | ({"a1": [(47.0, 52.0, "paused")]} if a1_gives_way else {})
    item = [event(25, "declaration", item="queue 0", node="a1", state=state) for state in ("asked", "created")]
    answers = event(95, "metadata", nodes={node: [] for node in FOUR})
    modes = cluster(FOUR, mode="pause_if_all_down", preferred=["a2", "b1"])
    events = [modes, phases(), queues("q1"), node_states(FOUR, seen), cut, killed, item, answers]
    assert Metadata().check(history((), (), events)).verdict is verdict


@pytest.mark.parametrize(("node", "verdict"), [(2, Verdict.INVALID), (0, Verdict.INVALID)])
def test_copies_lie_where_they_were_declared_until_one_of_them_is_lost(node: int, verdict: Verdict) -> None:
    """c1, which has none, is cut off, and a1 and b1 keep each other."""
    cut = fault(20, 50, cut=apart(["c1"], ["a1", "b1"]))
    gave_way: Seen = {"c1": [(53, 57, "paused")]}
    assert loss_of(cut, seen=gave_way, lost=[(30, node)], nodes=THREE, members=["a1", "b1"]).verdict is verdict


def test_copies_move_once_one_of_them_is_lost() -> None:
    """b1 died, so that c1 may have the other copy when it is cut off."""
    killed, cut = fault(5, 9, down=["b1"]), fault(20, 50, step=1, cut=apart(["c1"], ["a1", "b1"]))
    seen: Seen = {"b1": [(5, 12, "down")], "c1": [(53, 57, "paused")]}
    assert loss_of(killed, cut, seen=seen, lost=[(30, 2)], nodes=THREE, members=["a1", "b1"]).verdict is Verdict.VALID


@pytest.mark.parametrize(("away", "verdict"), [((36.5, 45.0, "down"), Verdict.VALID), (None, Verdict.INVALID)])
def test_copies_may_have_moved_in_the_middle_of_a_moment(
    away: tuple[float, float, str] | None, verdict: Verdict
) -> None:
    """b2 is cut off alone, and confirms at 38 s. Since a1, which has a copy, was seen away, b2 may have got one."""
    cut = fault(30, 60, cut=apart(["b2"], ["a1", "b1", "c1", "a2"]))
    seen = {"a1": [away]} if away else {}
    events = [
        cluster(FIVE),
        phases(),
        queues("q1", kind="mirrored", members=["a1", "b1"]),
        node_states(FIVE, {**seen, "b2": [(46, 63, "paused")]}),
        cut,
    ]
    row = publish(0, 38) | {"node": FIVE.index("b2")}
    assert PartitionMode(margin_s=30).check(history([row], (), events)).verdict is verdict
