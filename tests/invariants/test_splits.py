"""What a split permits to be lost: only on the side that gave way, only while it lasted, only of mirrored queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants.literal import (
    apart,
    cluster,
    deliver,
    fault,
    history,
    node_states,
    phases,
    publish,
    queues,
)
from tests.messages import Messages

A1, B1, C1 = 0, 1, 2
CUT = fault(20, 50, cut=apart(["a1"], ["b1", "c1"]))
A1_RESTARTS: Mapping[str, Sequence[tuple[float, float, str]]] = {"a1": [(52, 58, "paused")]}


def judged(
    at_s: float,
    node: int,
    *later: list[Event],
    mode: str = "autoheal",
    kind: str = "mirrored",
    restarts: Mapping[str, Sequence[tuple[float, float, str]]] = A1_RESTARTS,
    preferred: Sequence[str] = (),
    demanding: NoLoss = NoLoss(),  # noqa: B008 - frozen
) -> Finding:
    """A message that ``node`` confirmed at that moment was lost, another one arrived."""
    events = [cluster(mode=mode, preferred=preferred), phases(), queues("q1", kind=kind), CUT]
    published = [publish(0, 12), publish(1, at_s) | {"node": node}]
    return demanding.check(history(published, [deliver(0, 12.1)], [*events, *later, node_states(unlike=restarts)]))


def test_loss_on_the_side_that_restarted_is_permitted_and_counted(message: Messages) -> None:
    finding = judged(30, A1)
    assert finding.verdict is Verdict.VALID
    assert (finding.numbers["lost"], finding.numbers["lost_permitted"]) == (0, 1)
    message(finding.summary)


def test_loss_that_is_permitted_counts_where_that_is_demanded() -> None:
    finding = judged(30, A1, demanding=NoLoss(split_losses="judged"))
    assert finding.verdict is Verdict.INVALID
    assert (finding.numbers["lost"], finding.numbers["lost_permitted"]) == (1, 0)
    assert "publisher 0 sequence 1" in finding.examples[0]


@pytest.mark.parametrize(("confirmed_s", "permitted"), [(19.999, 0), (20, 1), (51.999, 1), (52, 0)])
def test_loss_is_permitted_from_the_cut_until_the_node_went_away(confirmed_s: float, permitted: int) -> None:
    assert judged(confirmed_s - 0.005, A1).numbers["lost_permitted"] == permitted


@pytest.mark.parametrize("node", [B1, C1])
def test_loss_is_permitted_on_each_node_of_the_side_that_restarted(node: int) -> None:
    restarts = {name: [(52.0, 58.0, "paused")] for name in ("b1", "c1")}
    assert judged(30, node, restarts=restarts).numbers["lost_permitted"] == 1


def test_only_losses_that_are_not_permitted_are_named() -> None:
    lost = [publish(n, 30) | {"node": node} for n, node in enumerate((A1, B1))]
    events = [cluster(mode="autoheal"), phases(), queues("q1", kind="mirrored"), CUT, node_states(unlike=A1_RESTARTS)]
    (example,) = NoLoss().check(history(lost, [], events)).examples
    assert "publisher 0 sequence 1" in example


def test_loss_after_the_restart_is_not() -> None:
    assert judged(59, A1).verdict is Verdict.INVALID


def test_loss_on_a_node_that_a_later_step_took_away_is_not() -> None:
    events = [
        cluster(mode="autoheal"),
        phases(),
        queues("q1", kind="mirrored"),
        CUT,
        fault(60, 65, step=1, down=["b1"]),
    ]
    seen = node_states(unlike={**A1_RESTARTS, "b1": [(60.0, 68.0, "down")]})
    lost = publish(0, 55) | {"node": B1}
    assert NoLoss().check(history([lost], [], [*events, seen])).verdict is Verdict.INVALID


def test_loss_between_healing_and_restart_is_permitted() -> None:
    assert judged(51, A1).verdict is Verdict.VALID


@pytest.mark.parametrize(("away_s", "permitted"), [(79.5, 1), (80, 0)])
def test_who_is_away_long_after_the_healing_did_not_restart_for_it(away_s: float, permitted: int) -> None:
    finding = judged(30, A1, restarts={"a1": [(away_s, 84, "down")]})
    assert finding.numbers["lost_permitted"] == permitted


def test_an_earlier_cut_that_no_one_noticed_changes_nothing() -> None:
    assert judged(30, A1, fault(12, 12.5, step=1, cut=apart(["a1"], ["b1", "c1"]))).verdict is Verdict.VALID


@pytest.mark.parametrize("events", [[phases(), CUT], [cluster(mode="autoheal"), phases(steady=0, chaos=10), CUT]])
def test_without_the_cluster_or_the_end_of_publishing_nothing_is_permitted(events: list[Event | list[Event]]) -> None:
    assert NoLoss().check(history([publish(0, 30)], [], events)).numbers["lost"] == 1


def test_loss_on_the_side_that_won_is_not() -> None:
    finding = judged(30, B1)
    assert finding.verdict is Verdict.INVALID
    assert (finding.numbers["lost"], finding.numbers["lost_permitted"]) == (1, 0)
    assert "publisher 0 sequence 1" in finding.examples[0]


def test_loss_before_the_cut_or_long_after_it_is_not() -> None:
    assert judged(15, A1).verdict is Verdict.INVALID
    assert judged(65, A1).verdict is Verdict.INVALID


def test_loss_of_a_quorum_queue_is_not() -> None:
    assert judged(30, A1, kind="quorum").verdict is Verdict.INVALID


def test_loss_where_minorities_pause_is_not() -> None:
    assert judged(30, A1, mode="pause_minority", restarts={"a1": [(25, 52, "paused")]}).verdict is Verdict.INVALID


def test_pause_if_all_down_permits_it_only_with_listed_nodes_on_both_sides() -> None:
    assert judged(30, A1, mode="pause_if_all_down", preferred=["b1"]).verdict is Verdict.INVALID
    assert judged(30, A1, mode="pause_if_all_down", preferred=["a1", "b1"]).verdict is Verdict.VALID


def test_ignore_permits_it_on_the_side_that_an_operator_restarts() -> None:
    by_hand = fault(60, 65, step=1, name="stop", down=["a1"])
    assert judged(55, A1, by_hand, mode="ignore", restarts={}).verdict is Verdict.VALID
    assert judged(55, B1, by_hand, mode="ignore", restarts={}).verdict is Verdict.INVALID
    assert judged(62, A1, by_hand, mode="ignore", restarts={}).verdict is Verdict.INVALID
    before = fault(15, 22, step=2, name="stop", down=["a1"])
    assert judged(55, A1, before, by_hand, mode="ignore", restarts={}).verdict is Verdict.VALID


def test_where_no_one_restarted_nothing_may_be_lost() -> None:
    assert judged(30, A1, mode="ignore", restarts={}).verdict is Verdict.INVALID
    assert judged(30, A1, mode="autoheal", restarts={}).verdict is Verdict.INVALID


def test_a_cut_that_no_one_can_have_noticed_permits_nothing() -> None:
    events = [
        cluster(mode="autoheal"),
        phases(),
        queues("q1", kind="mirrored"),
        fault(20, 22, cut=apart(["a1"], ["b1"])),
    ]
    lost = publish(0, 30) | {"node": A1}
    assert NoLoss().check(history([lost], [], [*events, node_states(unlike={})])).verdict is Verdict.INVALID
