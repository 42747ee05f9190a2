"""What was declared is on all nodes or on none; what was created is not lost, unless the mode permits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.metadata import Metadata, permits_lost_declarations
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants.literal import THREE, apart, cluster, event, fault, history, node_states, phases, queues
from tests.messages import Messages

CUT = fault(20, 50, cut=apart(["a1"], ["b1", "c1"]))
ITEM = "queue declared-001"
A1_RESTARTS: Mapping[str, Sequence[tuple[float, float, str]]] = {"a1": [(52, 58, "paused")]}


def declared(item: str = ITEM, at_s: float = 30, *, node: str = "b1", state: str | None = "created") -> list[Event]:
    """Asked at that moment, and answered a second later unless ``state`` is None."""
    about = {"item": item, "node": node, "detail": ""}
    asked = [event(at_s, "declaration", state="asked", **about)]
    return asked if state is None else [*asked, event(at_s + 1, "declaration", state=state, **about)]


def known(*items: str, **unlike: Sequence[str] | None) -> Event:
    """All nodes know ``items``, but for those in ``unlike``."""
    return event(94, "metadata", nodes={node: list(items) for node in THREE} | unlike)


def check(
    *events: Any, unlike: Mapping[str, Sequence[tuple[float, float, str]]] | None = None, **of_cluster: Any
) -> Finding:
    return Metadata().check(
        history((), (), [cluster(**of_cluster), phases(), CUT, node_states(unlike=unlike), *events])
    )


def test_empty() -> None:
    assert Metadata().check(history()).verdict is Verdict.UNKNOWN
    assert check(declared()).verdict is Verdict.UNKNOWN


def test_sane() -> None:
    finding = check(declared(), declared("policy declared-002", 12), known(ITEM, "policy declared-002"))
    assert finding.verdict is Verdict.VALID
    assert (finding.numbers["declared"], finding.numbers["created"]) == (2, 2)
    assert (finding.numbers["declared_beside_cut"], finding.numbers["created_beside_cut"]) == (1, 1)


@pytest.mark.parametrize("state", ["refused", "unanswered", None])
@pytest.mark.parametrize("there", [True, False])
def test_sane_what_was_not_called_created_may_be_there_or_not(state: str | None, there: bool) -> None:
    finding = check(declared(state=state), known(*[ITEM] * there))
    assert finding.verdict is Verdict.VALID
    assert finding.numbers["refused" if state == "refused" else "unanswered"] == 1


@pytest.mark.parametrize(("at_s", "beside"), [(18.999, 0), (19, 1), (19.5, 1), (50, 1), (50.001, 0)])
def test_sane_a_declaration_that_hangs_into_the_cut_is_next_to_it(at_s: float, beside: int) -> None:
    assert check(declared(at_s=at_s), known(ITEM)).numbers["declared_beside_cut"] == beside


def test_pathological_created_and_gone(message: Messages) -> None:
    finding = check(declared(), known())
    assert (finding.verdict, finding.numbers["lost"], finding.numbers["lost_through"]) == (Verdict.INVALID, 1, "b1")
    (example,) = finding.examples
    message(example)
    assert "declared-001" in example
    assert "+30.000 s" in example
    assert "+31.000 s" in example
    assert "step 0" in example


@pytest.mark.parametrize("state", ["created", "refused", "unanswered", None])
def test_pathological_on_some_nodes_only(state: str | None, message: Messages) -> None:
    finding = check(declared(state=state), known(ITEM, a1=[]))
    assert (finding.verdict, finding.numbers["differing"], finding.numbers["lost"]) == (Verdict.INVALID, 1, 0)
    message(finding.examples[0])
    assert "on b1 c1 " in finding.examples[0]
    assert "not on a1" in finding.examples[0]
    assert ("unanswered" in finding.examples[0]) == (state in (None, "unanswered"))


def test_all_that_lost_something_and_all_that_lack_it_are_named(message: Messages) -> None:
    gone = check(declared(node="c1"), declared("policy declared-002", node="b1"), known())
    assert gone.numbers["lost_through"] == "b1 c1"
    lacking = check(declared(), known(ITEM, a1=[], b1=[]))
    message(lacking.examples[0])
    assert "on c1 " in lacking.examples[0]
    assert "not on a1 b1" in lacking.examples[0]


def test_what_was_declared_while_nothing_went_on_is_looked_up_too(message: Messages) -> None:
    finding = check(declared(at_s=12), known(ITEM))
    assert (finding.verdict, finding.numbers["declared_beside_cut"]) == (Verdict.VALID, 0)
    assert check(declared(at_s=12), known()).verdict is Verdict.INVALID
    nothing = check(known())
    assert nothing.verdict is Verdict.UNKNOWN
    message(nothing.summary)


@pytest.mark.parametrize(
    ("queue_type", "item", "verdict"),
    [
        ("classic", "queue declared-001", Verdict.UNKNOWN),
        ("classic", "binding declared-001", Verdict.UNKNOWN),
        ("mirrored", "queue declared-001", Verdict.UNKNOWN),
        ("classic", "policy declared-001", Verdict.INVALID),
        ("quorum", "queue declared-001", Verdict.INVALID),
    ],
)
def test_what_may_be_at_home_on_a_silent_node_is_not_lost(
    queue_type: str, item: str, verdict: Verdict, message: Messages
) -> None:
    finding = check(declared(item, 12), known(b1=None), queues("q1", kind=queue_type))
    assert (finding.verdict, finding.numbers["lost"]) == (verdict, int(verdict is Verdict.INVALID))
    message(finding.summary)
    answering = check(declared(item, 12), known(), queues("q1", kind=queue_type))
    assert answering.verdict is Verdict.INVALID


def test_a_node_did_not_tell(message: Messages) -> None:
    finding = check(declared(), known(ITEM, c1=None))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "c1" in finding.summary
    assert check(declared(), known(ITEM, a1=[], c1=None)).verdict is Verdict.INVALID
    assert check(declared(), known(a1=None, b1=None, c1=None)).verdict is Verdict.UNKNOWN


def test_loss_on_the_side_that_autoheal_restarted_is_permitted_and_counted(message: Messages) -> None:
    finding = check(declared(node="a1"), known(), mode="autoheal", unlike=A1_RESTARTS)
    assert finding.verdict is Verdict.VALID
    assert (finding.numbers["lost"], finding.numbers["lost_permitted"]) == (0, 1)
    message(finding.summary)


@pytest.mark.parametrize(("node", "at_s"), [("b1", 30), ("a1", 12), ("a1", 75)])
def test_loss_on_the_side_that_won_or_outside_the_split_is_not(node: str, at_s: float) -> None:
    finding = check(declared(node=node, at_s=at_s), known(), mode="autoheal", unlike=A1_RESTARTS)
    assert (finding.verdict, finding.numbers["lost"]) == (Verdict.INVALID, 1)


def test_where_no_one_restarted_nothing_may_be_lost_unless_no_one_is_to() -> None:
    assert check(declared(node="a1"), known(), mode="autoheal").verdict is Verdict.INVALID
    by_hand = fault(60, 65, step=1, name="stop", down=["a1"])
    assert check(declared(node="b1"), known(), by_hand, mode="ignore").verdict is Verdict.INVALID
    assert check(declared(node="a1"), known(), by_hand, mode="ignore").verdict is Verdict.VALID


def test_a_run_without_the_end_of_publishing_permits_nothing() -> None:
    events = [cluster(mode="autoheal"), phases(steady=0, chaos=10), CUT, node_states(unlike=A1_RESTARTS)]
    finding = Metadata().check(history((), (), [*events, declared(node="a1"), known()]))
    assert (finding.verdict, finding.numbers["lost"]) == (Verdict.INVALID, 1)


def test_nodes_must_agree_once_autoheal_ended_the_split() -> None:
    finding = check(declared(node="a1"), known(a1=[ITEM]), mode="autoheal", unlike=A1_RESTARTS)
    assert (finding.verdict, finding.numbers["differing"]) == (Verdict.INVALID, 1)


def test_with_ignore_nodes_may_differ_as_no_one_ends_the_split() -> None:
    finding = check(declared(node="a1"), known(a1=[ITEM]), mode="ignore")
    assert (finding.verdict, finding.numbers["differing_permitted"]) == (Verdict.VALID, 1)
    assert check(declared(at_s=12, node="a1"), known(a1=[ITEM]), mode="ignore").verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("through", "there", "verdict"),
    [
        ("b1", ["b1", "c1"], Verdict.VALID),
        ("b1", ["b1"], Verdict.INVALID),
        ("b1", ["a1"], Verdict.INVALID),
        ("a1", ["b1", "c1"], Verdict.INVALID),
        ("b1", [], Verdict.INVALID),
    ],
)
@pytest.mark.parametrize("at_s", [30, 75], ids=["in the cut", "after it"])
def test_with_ignore_each_side_keeps_its_own(through: str, there: list[str], verdict: Verdict, at_s: float) -> None:
    knows = known(**{node: [ITEM] for node in there})
    assert check(declared(at_s=at_s, node=through), knows, mode="ignore").verdict is verdict


@pytest.mark.parametrize(
    ("through", "there", "may_serve", "verdict"),
    [
        ("a1", ["a1"], True, Verdict.VALID),
        ("a1", [], True, Verdict.VALID),
        ("b1", ["b1", "c1"], True, Verdict.VALID),
        ("b1", ["b1"], True, Verdict.INVALID),
        ("a1", ["a1"], False, Verdict.INVALID),
        ("a1", [], False, Verdict.VALID),
        ("b1", ["b1", "c1"], False, Verdict.INVALID),
    ],
)
def test_with_ignore_a_side_whose_node_may_have_died_of_its_disk_is_ended_or_not(
    through: str, there: list[str], may_serve: bool, verdict: Verdict
) -> None:
    errors = fault(55, 60, step=1, name="disk_errors", down=["a1"], may_serve=may_serve)
    knows = known(**{node: [ITEM] for node in there})
    assert check(errors, declared(node=through), knows, mode="ignore").verdict is verdict


def test_listed_nodes_on_both_sides_permit_what_the_chosen_recovery_does() -> None:
    lost = check(declared(node="a1"), known(), mode="pause_if_all_down", preferred=["a1", "b1"], unlike=A1_RESTARTS)
    assert (lost.verdict, lost.numbers["lost_permitted"]) == (Verdict.VALID, 1)
    one_sided = check(declared(node="a1"), known(), mode="pause_if_all_down", preferred=["b1"], unlike=A1_RESTARTS)
    assert (one_sided.verdict, one_sided.numbers["lost"]) == (Verdict.INVALID, 1)


@pytest.mark.parametrize(
    ("mode", "recover", "version", "permitted"),
    [
        ("pause_minority", "", (3, 10, 8), ""),
        ("autoheal", "", (3, 10, 8), "autoheal restarts"),
        ("ignore", "", (3, 10, 8), "ignore lets"),
        ("pause_if_all_down", "autoheal", (3, 13, 0), "autoheal restarts"),
        ("pause_if_all_down", "ignore", (3, 13, 0), "ignore lets"),
        ("autoheal", "", (4, 3, 0), ""),
        ("ignore", "", (4, 3, 0), ""),
    ],
)
def test_which_modes_permit_lost_declarations(
    mode: str, recover: str, version: tuple[int, ...], permitted: str
) -> None:
    """By "Clustering and Network Partitions"; from 4.3 on, no mode has an effect."""
    reason = permits_lost_declarations(ClusterFacts(THREE, mode, 5, version, recover=recover))
    assert reason.startswith(permitted)
    assert bool(reason) == bool(permitted)


@pytest.mark.parametrize("later", ["refused", "unanswered"])
def test_what_was_created_stays_promised_whatever_is_answered_later(later: str) -> None:
    again = declared(at_s=40, node="c1", state=later)
    assert check(declared(), again, known()).verdict is Verdict.INVALID
    assert check(declared(), again, known(ITEM)).verdict is Verdict.VALID


ALONE = declared(node="a1")


@pytest.mark.parametrize(
    ("of_cluster", "verdict"),
    [
        ({"version": "4.3.6"}, Verdict.INVALID),
        ({"version": "4.0.5", "khepri": True}, Verdict.INVALID),
        ({"version": "4.0.5"}, Verdict.VALID),
        ({"version": "3.10.8"}, Verdict.VALID),
    ],
)
def test_with_khepri_nothing_is_created_in_a_minority(of_cluster: dict[str, Any], verdict: Verdict) -> None:
    """a1 is cut off from 20 to 50 s, and answers at 31 s."""
    finding = check(ALONE, known(ITEM), **of_cluster)
    assert (finding.verdict, finding.numbers["created_in_a_minority"]) == (verdict, int(verdict is Verdict.INVALID))


@pytest.mark.parametrize("state", ["refused", "unanswered", None])
def test_with_khepri_a_minority_may_refuse_or_not_answer(state: str | None) -> None:
    assert check(declared(node="a1", state=state), known(), version="4.3.6").verdict is Verdict.VALID


@pytest.mark.parametrize(("at_s", "verdict"), [(18.9, "VALID"), (20, "INVALID"), (48.9, "INVALID"), (49.1, "VALID")])
def test_with_khepri_a_moment_with_a_majority_is_enough(at_s: float, verdict: str) -> None:
    beside = declared("queue declared-002", node="b1")
    finding = check(declared(node="a1", at_s=at_s), beside, known(ITEM, "queue declared-002"), version="4.3.6")
    assert finding.verdict.name == verdict


@pytest.mark.parametrize(("begins_s", "verdict"), [(10, Verdict.INVALID), (25, Verdict.VALID), (60, Verdict.VALID)])
def test_what_the_cluster_was_then_counts(begins_s: float, verdict: Verdict) -> None:
    enabled = fault(begins_s, begins_s + 10, step=1, name="enable_feature_flag", operation=True, becomes="khepri_db")
    assert check(ALONE, enabled, known(ITEM), version="4.0.5").verdict is verdict


@pytest.mark.parametrize(("ends_s", "verdict"), [(None, Verdict.VALID), (15, Verdict.INVALID), (60, Verdict.VALID)])
def test_what_a_split_permits_ends_with_partition_handling(ends_s: float | None, verdict: Verdict) -> None:
    """What was declared through a1 while it was alone is gone, as autoheal permits."""
    changes = [] if ends_s is None else [fault(10, ends_s, step=1, operation=True, becomes="khepri_db")]
    finding = check(declared(node="a1"), known(), *changes, mode="autoheal", unlike=A1_RESTARTS, version="4.0.5")
    assert finding.verdict is verdict
