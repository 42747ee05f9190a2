"""What a power cut explains: lost messages sent before it to queues on a node without power, and lost declarations."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rabbitmq_resilience.checkers.metadata import Metadata
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.scenario.expectations import Expectation
from tests.invariants.literal import THREE, cluster, deliver, event, fault, history, phases, publish, queues

LOST_BY_DESIGN = Expectation(
    broker="", verdict=Verdict.INVALID, invariant="no_loss", trace="loses_with_power", documentation="settings"
)


def lost(at_s: float, *, holder: str = "b1", name: str = "power_cut") -> Finding:
    """Judge a run in which the message of ``at_s`` is lost, and b1 loses power from 20 s on."""
    events = [
        cluster(),
        queues("q1", kind="classic", members=[holder]),
        phases(),
        fault(20, 40, name=name, down=["b1"]),
    ]
    return NoLoss().check(history([publish(0), publish(1, at_s)], [deliver(0)], events))


@pytest.mark.parametrize(("at_s", "holder", "explained"), [(19, "b1", True), (21, "b1", False), (19, "a1", False)])
def test_a_power_cut_explains_what_a_node_without_power_had(at_s: float, holder: str, explained: bool) -> None:
    finding = lost(at_s, holder=holder)
    assert (finding.verdict, finding.numbers["lost"]) == (Verdict.INVALID, 1)
    assert finding.numbers["lost_without_power_cut"] == (not explained)
    assert LOST_BY_DESIGN.is_shown_by({"no_loss": finding}, tuple) is explained


FORGOTTEN_QUEUES = Expectation(
    broker="", verdict=Verdict.INVALID, invariant="no_loss", trace="forgets_queues_with_power", documentation="settings"
)


@pytest.mark.parametrize(
    ("down", "at_s", "listed_s", "with_queue"),
    [
        (THREE, 19, (5, 10), True),
        (THREE, 19, (5, 55), False),
        (THREE, 21, (5, 10), False),
        (["a1", "b1"], 19, (5, 10), False),
        (THREE, 19, None, False),
    ],
    ids=["gone", "listed again", "sent later", "one node was up", "never asked"],
)
def test_a_message_is_lost_with_a_queue_that_no_broker_lists_after_all_lost_power(
    down: Sequence[str], at_s: float, listed_s: Sequence[float] | None, with_queue: bool
) -> None:
    """The other queue is listed at each look, if there is any after the cut."""
    row = {"ready": 0, "unacked": 0, "leader": "a1", "members": 3, "online": 3, "behind": 0}
    looks = (5, 10) if listed_s is None else (5, 10, 50, 55, 60)
    samples = [
        event(look_s, "sample", queues={"q1": row} | ({"q2": row} if look_s in (listed_s or (5, 10)) else {}))
        for look_s in looks
    ]
    steps = fault(20, 40, name="power_cut", down=down)
    events = [cluster(), queues("q1", "q2", members=THREE), phases(), steps, *samples]
    rows = [publish(0), publish(1, at_s, queue=1)]
    finding = NoLoss().check(history(rows, [deliver(0)], events))
    assert (finding.verdict, finding.numbers["lost"]) == (Verdict.INVALID, 1)
    assert FORGOTTEN_QUEUES.is_shown_by({"no_loss": finding}, tuple) is with_queue


def test_without_a_power_cut_none_explains_a_loss() -> None:
    finding = lost(19, name="kill")
    assert "lost_without_power_cut" not in finding.numbers
    assert not LOST_BY_DESIGN.is_shown_by({"no_loss": finding}, tuple)


def test_what_was_never_sent_is_no_loss_by_a_power_cut() -> None:
    events = [
        cluster(),
        queues("q1", kind="classic", members=["b1"]),
        phases(),
        fault(20, 40, name="power_cut", down=["b1"]),
    ]
    finding = NoLoss().check(history([publish(0), publish(1, 19)], [deliver(0), deliver(7)], events))
    assert not LOST_BY_DESIGN.is_shown_by({"no_loss": finding}, tuple)


def test_a_message_that_came_twice_unmarked_is_no_loss_by_a_power_cut() -> None:
    """Nothing can have made it come again before the cut."""
    events = [
        cluster(),
        queues("q1", kind="classic", members=["b1"]),
        phases(),
        fault(40, 60, name="power_cut", down=["b1"]),
    ]
    rows = [publish(0), publish(1, 39)]
    finding = NoLoss().check(history(rows, [deliver(0), deliver(0, 3)], events))
    assert (finding.numbers["lost_without_power_cut"], finding.numbers["duplicates_forbidden"]) == (0, 1)
    assert not LOST_BY_DESIGN.is_shown_by({"no_loss": finding}, tuple)


FORGOTTEN_BY_DESIGN = Expectation(
    broker="", verdict=Verdict.INVALID, invariant="metadata", trace="forgets_with_power", documentation="settings"
)


@pytest.mark.parametrize(
    ("asked_s", "down", "known_to", "explained"),
    [
        (19, THREE, (), True),
        (19, ["b1"], (), False),
        (19, THREE, ["a1"], False),
        (41, THREE, (), False),
    ],
    ids=["before", "one node", "on some nodes", "after"],
)
def test_a_power_cut_of_all_nodes_explains_what_none_of_them_has(
    asked_s: float, down: Sequence[str], known_to: Sequence[str], explained: bool
) -> None:
    about = {"item": "queue declared-001", "node": "b1", "detail": ""}
    events = [
        cluster(),
        phases(),
        fault(20, 40, name="power_cut", down=down),
        event(asked_s, "declaration", state="asked", **about),
        event(asked_s + 0.1, "declaration", state="created", **about),
        event(94, "metadata", nodes={node: ["queue declared-001"] * (node in known_to) for node in THREE}),
    ]
    finding = Metadata().check(history((), (), events))
    assert finding.verdict is Verdict.INVALID
    assert FORGOTTEN_BY_DESIGN.is_shown_by({"metadata": finding}, tuple) is explained
