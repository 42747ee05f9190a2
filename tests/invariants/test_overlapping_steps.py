"""Steps that overlap: a node that is killed in the middle of a cut changes neither what the cut promises nor when it
began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.order import Order
from rabbitmq_resilience.checkers.partition_mode import PartitionMode
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants.literal import (
    FIVE,
    THREE,
    apart,
    cluster,
    deliver,
    event,
    fault,
    history,
    node_states,
    phases,
    publish,
    queues,
)
from tests.messages import Messages

A1, B1, C1 = 0, 1, 2
CUT = fault(20, 60, cut=apart(["a1"], ["b1", "c1"]))

Seen = Mapping[str, Sequence[tuple[float, float, str]]]
#: b1 is killed for 2 s in the middle of the cut, and is back after 8 s.
KILL = fault(40, 42, step=1, name="kill", down=["b1"])
KILLED: Seen = {"b1": [(40, 48, "down")]}


def mode_of(
    *steps: Sequence[Event],
    seen: Seen,
    mode: str = "pause_minority",
    kind: str = "quorum",
    nodes: Sequence[str] = THREE,
    confirmed: Sequence[tuple[float, int]] = (),
    margin_s: float | None = None,
) -> Finding:
    """``confirmed``: when messages were sent, and through which node."""
    events = [cluster(nodes, mode=mode), phases(), queues("q1", kind=kind, members=nodes), node_states(nodes, seen)]
    rows = [publish(n, at_s) | {"node": node} for n, (at_s, node) in enumerate(confirmed)]
    return PartitionMode(margin_s=margin_s).check(history(rows, (), [*events, *steps]))


PAUSED: Seen = {"a1": [(28, 63, "paused")]}


def test_the_minority_pauses_all_the_while(message: Messages) -> None:
    assert mode_of(CUT, KILL, seen={**PAUSED, **KILLED, "c1": [(43, 46, "paused")]}).verdict is Verdict.VALID
    back = {"a1": [(28.0, 43.0, "paused"), (46.0, 63.0, "paused")]}
    finding = mode_of(CUT, KILL, seen={**back, **KILLED})
    assert finding.verdict is Verdict.INVALID
    message(finding.examples[0])
    assert "a1" in finding.examples[0]
    assert "+43.000 s" in finding.examples[0]


def test_a_minority_that_does_not_pause_is_reported_though_no_piece_of_the_cut_is_long_enough(
    message: Messages,
) -> None:
    """Each piece between two kills is shorter than a node may need."""
    kills = [
        step
        for n, at_s in enumerate((27, 34, 41, 48, 55))
        for step in [fault(at_s, at_s + 1, step=n + 1, name="kill", down=["b1"])]
    ]
    seen: Seen = {"b1": [(at_s, at_s + 2, "down") for at_s in (27, 34, 41, 48, 55)]}
    finding = mode_of(CUT, *kills, seen=seen)
    assert finding.verdict is Verdict.INVALID
    message(finding.examples[0])
    assert "a1" in finding.examples[0]
    assert "+20.000 s" in finding.examples[0]


def test_a_node_that_stands_paused_when_it_loses_another_must_stay_so(message: Messages) -> None:
    """a2 is lost while a1 is paused for the others, of which one comes back before."""
    first = fault(20, 40, cut=apart(["a1"], ["b1", "b2", "c1"]))
    then = fault(35, 70, step=1, cut=apart(["a1"], ["a2", "b1", "b2"]))
    stays: Seen = {"a1": [(40, 73, "paused")]}
    assert mode_of(first, then, seen=stays, nodes=FIVE, margin_s=1).verdict is Verdict.INVALID
    stays = {"a1": [(25, 73, "paused")]}
    assert mode_of(first, then, seen=stays, nodes=FIVE, margin_s=1).verdict is Verdict.VALID
    back: Seen = {"a1": [(25.0, 60.0, "paused"), (62.0, 73.0, "paused")]}
    finding = mode_of(first, then, seen=back, nodes=FIVE, margin_s=1)
    assert finding.verdict is Verdict.INVALID
    message(finding.examples[0])
    assert "a1" in finding.examples[0]
    assert "+60.000 s" in finding.examples[0]


@pytest.mark.parametrize("also", [(), (KILL,)], ids=["alone", "beside a kill"])
def test_a_quorum_queue_that_confirms_on_the_minority_side_is_reported(
    also: Sequence[list[Event]], message: Messages
) -> None:
    confirmed = [(at_s, A1) for at_s in range(22, 58)]
    seen: Seen = {"a1": [(62, 66, "paused")], **(KILLED if also else {})}
    finding = mode_of(CUT, *also, seen=seen, mode="autoheal", confirmed=confirmed)
    assert finding.verdict is Verdict.INVALID
    message(finding.examples[0])
    assert "36" in finding.examples[0]
    assert "q1" in finding.examples[0]
    assert "a1" in finding.examples[0]


def test_members_that_were_reached_one_after_another_make_a_majority_together() -> None:
    """While it reaches the first of them, then the second, a leader gets the answers of both."""
    first = fault(20, 60, cut=apart(["a1", "a2"], ["b1", "b2", "c1"]))
    only_b1 = fault(20, 40, step=1, cut=apart(["a1"], ["a2"]))
    kill = fault(40, 60, step=2, name="kill", down=["a2"])
    members = queues("q1", members=["a1", "a2", "c1"])
    events = [cluster(FIVE, mode="ignore"), phases(), members, node_states(FIVE), first, only_b1, kill]
    long_under_way = {**publish(0, 19.9), "outcome_us": publish(0, 45)["outcome_us"]}
    sent_meanwhile = {**publish(0, 41), "outcome_us": publish(0, 45)["outcome_us"]}
    assert PartitionMode().check(history([long_under_way], (), events)).verdict is Verdict.VALID
    assert PartitionMode().check(history([sent_meanwhile], (), events)).verdict is Verdict.INVALID


def test_autoheal_restarts_the_side_that_lost_once_though_a_node_was_killed_meanwhile(message: Messages) -> None:
    """b1 and c1 were one side all the time, so the restart of a1 alone is right."""
    restart: Seen = {**KILLED, "a1": [(62, 66, "paused")]}
    assert mode_of(CUT, KILL, seen=restart, mode="autoheal").verdict is Verdict.VALID
    finding = mode_of(CUT, KILL, seen=KILLED, mode="autoheal")
    assert finding.verdict is Verdict.INVALID
    message(finding.examples[0])
    assert "30 s" in finding.examples[0]
    assert "+60.000 s" in finding.examples[0]


def lost(
    at_s: float,
    node: int,
    *steps: Sequence[Event],
    seen: Seen,
    mode: str = "autoheal",
    more: Sequence[tuple[float, int]] = (),
) -> Finding:
    """Messages that those nodes confirmed then were lost; another one arrived."""
    events = [cluster(mode=mode), phases(), queues("q1", kind="mirrored"), node_states(unlike=seen), *steps]
    published = [publish(0, 12), *(publish(n + 1, t) | {"node": by} for n, (t, by) in enumerate([(at_s, node), *more]))]
    return NoLoss().check(history(published, [deliver(0, 12.1)], events))


def test_a_side_may_lose_though_one_of_its_nodes_was_killed_before() -> None:
    """a1 was killed early and came back; it is the one that gives way later."""
    early = fault(11, 12, step=1, name="kill", down=["a1"])
    seen: Seen = {"a1": [(11, 15, "down"), (62, 66, "paused")]}
    assert lost(40, A1, CUT, early, seen=seen).numbers["lost_permitted"] == 1


def test_of_a_flapping_link_the_side_that_restarts_in_a_whole_half_may_lose() -> None:
    flapping = fault(20, 60, name="flapping", cut=apart(["a1"], ["b1", "c1"]), intermittent=True)
    seen: Seen = {"a1": [(40, 46, "paused")]}
    assert lost(35, A1, flapping, seen=seen).numbers["lost_permitted"] == 1
    assert lost(35, B1, flapping, seen=seen).verdict is Verdict.INVALID


def test_one_side_was_trusted_though_a_step_stopped_all_nodes() -> None:
    everybody = fault(62, 64, step=1, name="stop", down=THREE)
    seen: Seen = {node: [(62.0, 68.0, "down")] for node in THREE}
    assert lost(40, A1, CUT, everybody, seen=seen).verdict is Verdict.VALID
    assert lost(40, B1, CUT, everybody, seen=seen).verdict is Verdict.VALID
    both = lost(40, A1, CUT, everybody, seen=seen, more=[(41, B1)])
    assert (both.verdict, both.numbers["lost"], both.numbers["lost_permitted"]) == (Verdict.INVALID, 1, 1)


def test_one_look_that_failed_is_no_restart() -> None:
    seen: Seen = {"a1": [(62, 66, "paused")], "b1": [(63, 63.4, "down")]}
    assert lost(40, B1, CUT, seen=seen).verdict is Verdict.INVALID
    assert lost(40, A1, CUT, seen=seen).verdict is Verdict.VALID


def test_half_a_side_that_goes_away_takes_nothing_with_it() -> None:
    """With ``ignore`` an operator restarts b1, and c1 has all that it had."""
    half = fault(65, 67, step=1, name="stop", down=["b1"])
    seen: Seen = {"b1": [(65, 70, "down")]}
    assert lost(40, B1, CUT, half, seen=seen, mode="ignore").verdict is Verdict.INVALID
    whole = fault(65, 67, step=1, name="stop", down=["b1", "c1"])
    both: Seen = {node: [(65.0, 70.0, "down")] for node in ("b1", "c1")}
    assert lost(40, B1, CUT, whole, seen=both, mode="ignore").verdict is Verdict.VALID


def in_order(low: tuple[float, int], high: tuple[float, int], *, mode: str, kind: str = "mirrored") -> Finding:
    """A message overtook the one before it; when each was sent, and through which node."""
    events = [
        cluster(mode=mode),
        phases(),
        queues("q1", kind=kind),
        node_states(unlike={"a1": [(62, 66, "paused")]}),
        CUT,
    ]
    rows = [publish(n, at_s) | {"node": node} for n, (at_s, node) in enumerate((low, high))]
    return Order().check(history(rows, [deliver(1, 50), deliver(0, 51)], events))


@pytest.mark.parametrize(
    ("low", "high", "mode", "kind", "permitted"),
    [
        ((40, A1), (45, B1), "autoheal", "mirrored", True),
        ((40, B1), (45, A1), "ignore", "mirrored", True),
        ((40, B1), (45, C1), "autoheal", "mirrored", False),
        ((40, A1), (45, A1), "autoheal", "mirrored", False),
        ((12, A1), (13, B1), "autoheal", "mirrored", False),
        ((40, A1), (45, B1), "autoheal", "quorum", False),
        ((40, A1), (45, B1), "pause_minority", "mirrored", False),
    ],
)
def test_what_two_sides_took_has_no_order_in_common(
    low: tuple[float, int], high: tuple[float, int], mode: str, kind: str, permitted: bool
) -> None:
    finding = in_order(low, high, mode=mode, kind=kind)
    assert finding.verdict is (Verdict.VALID if permitted else Verdict.INVALID)
    assert (finding.numbers["overtaken"], finding.numbers["overtaken_permitted"]) == ((0, 1) if permitted else (1, 0))


@pytest.mark.parametrize("also", [(), (fault(44, 45, step=1, name="kill", down=["b1"]),)], ids=["alone", "and a kill"])
def test_a_queue_with_a_majority_is_promised_during_another_step(also: Sequence[list[Event]]) -> None:
    """Two of five are cut off, and one of the other three is killed: from when it is back the queue is promised."""
    cut = fault(20, 60, cut=apart(FIVE[:2], FIVE[2:]))
    seen: Seen = {**{node: [(28.0, 63.0, "paused")] for node in FIVE[:2]}, "b1": [(44, 47, "down")] if also else []}
    events: list[Any] = [cluster(FIVE), phases(), queues("q1", members=FIVE), node_states(FIVE, seen), cut, *also]
    rows = [publish(n, n / 10) | {"node": 4} for n in range(300)]  # until 30 s
    rows += [publish(n, n / 10) | {"node": 4} for n in range(650, 900)]
    finding = Availability(stall_s_max=8, grace_s=5).check(history(rows, (), [*events, event(94, "note", detail="")]))
    assert finding.verdict is Verdict.INVALID


@pytest.mark.parametrize(("at_s", "verdict"), [(15, Verdict.INVALID), (25, Verdict.VALID)])
def test_what_was_confirmed_before_a_split_has_its_order_on_both_sides(at_s: float, verdict: Verdict) -> None:
    """a1 took one message and b1 a later one, which came out first."""
    rows = [publish(0, at_s) | {"node": A1}, publish(1, 30) | {"node": B1}]
    events = [cluster(mode="autoheal"), phases(), queues("q1", kind="mirrored"), node_states(unlike=PAUSED), CUT]
    assert Order().check(history(rows, [deliver(1, 80), deliver(0, 81)], events)).verdict is verdict


@pytest.mark.parametrize(("at_s", "verdict"), [(49, Verdict.VALID), (51, Verdict.INVALID)])
def test_what_is_taken_after_a_split_was_mended_has_one_order(at_s: float, verdict: Verdict) -> None:
    """It was healed at 20 s, and 30 s are enough to mend it."""
    rows = [publish(0, 15) | {"node": A1}, publish(1, at_s) | {"node": B1}]
    healed = fault(12, 20, cut=apart(["a1"], ["b1", "c1"]))
    events = [cluster(mode="autoheal"), phases(), queues("q1", kind="mirrored"), node_states(), healed]
    assert Order().check(history(rows, [deliver(1, 80), deliver(0, 81)], events)).verdict is verdict
