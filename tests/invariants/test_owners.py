"""What is lost with exclusive queues: only what was confirmed before their consumer was connected again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.exclusive_owners import absences
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.recovery import Recovery
from rabbitmq_resilience.checkers.throughput import Throughput
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.events import Event
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import (
    Row,
    cluster,
    deliver,
    event,
    fault,
    history,
    load,
    node_states,
    phases,
    publish,
    us,
)
from tests.messages import Messages

#: Of two consumers.
QUEUES = event(
    0,
    "queues",
    queues={f"q{n + 1}": {"type": "exclusive", "members": ["a1"], "leader": "a1", "consumer": n} for n in range(2)},
)
Told = Sequence[tuple[float, str]]
LOST_AT_30: Told = [(1, "connected"), (30, "connection_lost"), (36, "connected"), (92, "stopped")]


def of_consumer(told: Told, number: int = 0) -> list[Event]:
    """On a1."""
    return [event(at_s, "worker", worker=f"consumer-{number}", event=what, node="a1") for at_s, what in told]


def judged(*lost: tuple[float, int], told: Told = LOST_AT_30) -> Finding:
    """``lost``: when a message was confirmed, and of which queue; one of each queue arrives in the end."""
    there = [publish(n, 80 + n, queue=n) for n in range(2)]
    rows = [*there, *(publish(n, at_s, queue=queue) for n, (at_s, queue) in enumerate(lost, 2))]
    read = [deliver(n, 81 + n, queue=n) for n in range(2)]
    made = [cluster(), phases(), QUEUES, node_states(), fault(20, 25, down=["b1"])]
    others = of_consumer([(1, "connected")], 1)
    return NoLoss().check(history(rows, read, [*made, *of_consumer(told), *others]))


@pytest.mark.parametrize(
    ("at_s", "queue", "verdict"),
    [
        (10, 0, Verdict.VALID),  # it may have been in the queue all the time
        (29, 0, Verdict.VALID),
        (35, 0, Verdict.VALID),  # the broker had not noticed yet
        (35.9995, 0, Verdict.VALID),  # it was sent before
        (37, 0, Verdict.INVALID),
        (29, 1, Verdict.INVALID),  # its consumer was there all the time
    ],
)
def test_lost_with_its_consumer(at_s: float, queue: int, verdict: Verdict, message: Messages) -> None:
    finding = judged((at_s, queue))
    assert finding.verdict is verdict
    assert finding.numbers["lost_permitted"] == (verdict is Verdict.VALID)
    assert ("exclusive" in finding.summary) == (verdict is Verdict.VALID)
    message(finding.summary)


def test_nothing_is_permitted_while_no_consumer_was_lost() -> None:
    assert judged((10, 0), told=[(1, "connected"), (92, "stopped")]).verdict is Verdict.INVALID
    assert judged((10, 0), told=[]).verdict is Verdict.INVALID


@pytest.mark.parametrize(("read_s", "verdict"), [(29, Verdict.INVALID), (31, Verdict.VALID)])
def test_what_a_later_message_overtook_was_not_in_the_queue_any_more(read_s: float, verdict: Verdict) -> None:
    """Message 0 is lost, and 1 of the same publisher arrives before the connection is gone, or after it."""
    rows = [publish(0, 10), publish(1, 11)]
    made = [cluster(), phases(), QUEUES, node_states(), fault(20, 25, down=["b1"]), *of_consumer(LOST_AT_30)]
    assert NoLoss().check(history(rows, [deliver(1, read_s)], made)).verdict is verdict
    of_others = [publish(0, 10), publish(1, 11, queue=1), publish(0, 12, publisher=1)]
    read = [deliver(1, 29, queue=1), deliver(0, 29, publisher=1)]
    assert NoLoss().check(history(of_others, read, made)).verdict is Verdict.VALID
    with_priorities = [*made, load(10, 10, priorities=[0, 3])]
    assert NoLoss().check(history(rows, [deliver(1, read_s)], with_priorities)).verdict is Verdict.VALID


@pytest.mark.parametrize("name", ["consumer-\u00b2", "consumer-x", "consumer-" + "9" * 5000, "consumer", ""])
def test_a_damaged_name_is_no_one(name: str) -> None:
    rows, read = [publish(0, 10), publish(1, 80)], [deliver(0, 11), deliver(1, 81)]
    damaged = event(30, "worker", worker=name, event="connection_lost", node="a1")
    made = [cluster(), phases(), QUEUES, node_states(), fault(20, 25, down=["b1"]), *of_consumer(LOST_AT_30), damaged]
    assert NoLoss().check(history(rows, read[1:], made)).verdict is Verdict.VALID
    assert NoLoss().check(history(rows, read, made)).verdict is Verdict.VALID


def test_it_may_be_lost_where_the_losses_of_splits_are_judged() -> None:
    rows = [publish(0, 10), publish(1, 80)]
    made = [cluster(), phases(), QUEUES, node_states(), fault(20, 25, down=["b1"]), *of_consumer(LOST_AT_30)]
    assert NoLoss(split_losses="judged").check(history(rows, [deliver(1, 81)], made)).verdict is Verdict.VALID


@pytest.mark.parametrize(("at_s", "verdict"), [(59, Verdict.VALID), (61, Verdict.INVALID)])
def test_a_consumer_that_never_came_back(at_s: float, verdict: Verdict) -> None:
    """Its queue was deleted 30 s later at the latest: what is confirmed after that belongs to another one."""
    assert judged((at_s, 0), told=LOST_AT_30[:2]).verdict is verdict
    assert judged((at_s, 0), told=[(1, "connected"), (30, "killed"), (32, "started")]).verdict is verdict


def test_disturbed_brokers_may_delete_it_later() -> None:
    made = [cluster(), phases(), QUEUES, node_states(), fault(59, 65, down=["b1"]), *of_consumer(LOST_AT_30[:2])]
    for at_s, verdict in ((79, Verdict.VALID), (81, Verdict.INVALID)):
        assert NoLoss().check(history([publish(0, at_s)], [], made)).verdict is verdict


BOUND = event(
    0, "queues", queues={"q1": {"type": "exclusive", "members": ["a1"], "leader": "a1", "consumer": 0, "bound": True}}
)


@pytest.mark.parametrize(
    ("at_s", "verdict"),
    [(35, Verdict.VALID), (37.9, Verdict.VALID), (38.1, Verdict.INVALID)],
)
def test_a_queue_that_is_bound_again_is_known_to_all_nodes_soon_after(at_s: float, verdict: Verdict) -> None:
    made = [cluster(), phases(), BOUND, node_states(), fault(82, 85, down=["b1"]), *of_consumer(LOST_AT_30)]
    rows = [publish(0, at_s), publish(1, 80)]
    assert NoLoss().check(history(rows, [deliver(1, 81)], made)).verdict is verdict


def test_a_queue_that_is_never_bound_again_takes_nothing_more() -> None:
    """It is routed without it for good, where one that was not bound would have been missed after half a minute."""
    made = [cluster(), phases(), BOUND, node_states(), fault(20, 25, down=["b1"]), *of_consumer(LOST_AT_30[:2])]
    assert NoLoss().check(history([publish(0, 85)], [], made)).verdict is Verdict.VALID


def test_disturbed_brokers_may_know_a_binding_later() -> None:
    disturbed = fault(37, 50, down=["b1"], step=1)
    made = [cluster(), phases(), BOUND, node_states(), fault(20, 25, down=["b1"]), *of_consumer(LOST_AT_30), disturbed]
    for at_s, verdict in ((49, Verdict.VALID), (79, Verdict.INVALID)):
        rows = [publish(0, at_s), publish(1, 80)]
        assert NoLoss().check(history(rows, [deliver(1, 81)], made)).verdict is verdict


@given(st.lists(st.sampled_from(["connected", "connection_lost", "killed", "started", "hung", "stopped"]), max_size=8))
def test_away_second_by_second(words: list[str]) -> None:
    """One thing a second, at the beginning of which it is so."""
    told = list(enumerate(words, 1))
    away, ever = [], False
    connected = False
    for word in words:
        if word == "connected":
            connected = ever = True
        elif word in ("connection_lost", "killed"):
            connected = False
        away.append(ever and not connected)
    seen = sorted([cluster(), QUEUES, *of_consumer(told)], key=lambda e: e.t_us)
    spans = absences(Facts(seen), 0)
    assert [any(start <= us(n) < end for start, end in spans) for n in range(1, len(words) + 1)] == away
    assert bool(spans and spans[-1][1] == NEVER_US) == bool(away and away[-1])
    assert absences(Facts(seen), 1) == []


def every_tenth(*spans_s: tuple[float, float]) -> list[Row]:
    at_s = [start + n / 10 for start, end in spans_s for n in range(round(10 * (end - start)))]
    return [publish(n, t, queue=n % 2) for n, t in enumerate(at_s)]


KILLED: Told = [(1, "connected"), (30, "killed"), (55, "started"), (56, "connected"), (92, "stopped")]


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        (KILLED, Verdict.VALID),
        (LOST_AT_30, Verdict.INVALID),  # it was back soon
        ([(1, "connected"), (30, "connection_lost"), (56, "connected")], Verdict.INVALID),  # nobody kept it away
        (KILLED[:1], Verdict.INVALID),
    ],
)
def test_a_queue_stands_still_while_its_consumer_is_kept_away(told: Told, verdict: Verdict) -> None:
    both = [of_consumer(told, number) for number in range(2)]
    made = [cluster(), phases(), QUEUES, node_states(), load(10, 10), fault(29, 31, name="kill_client"), *both]
    recorded = history(every_tenth((0, 30), (58, 90)), (), made)
    assert Availability().check(recorded).verdict is verdict
    assert Throughput(grace_s=10).check(recorded).verdict is verdict


OWNERS = 3


@given(st.data())
def test_what_is_there_goes_on_while_other_consumers_are_kept_away(data: st.DataObject) -> None:
    """Three queues with ten messages/s each; those of a consumer that was killed are returned. Some have a hole that
    nobody asked for. Counted again window by window."""
    away = [data.draw(st.sampled_from([(99, 99), (30, 42), (35, 50), (61, 73)])) for _ in range(OWNERS)]
    holes = [data.draw(st.sampled_from([(99, 99), (99, 99), (20, 26), (45, 55), (80, 86)])) for _ in range(OWNERS)]
    grace_s, window_s = 4, 5

    def silent(queue: int, at_s: float) -> bool:
        return any(start <= at_s < end for start, end in (away[queue], holes[queue]))

    moments = [n / 10 for n in range(900)]
    rows = [
        publish(n, at_s, Outcome.RETURNED if silent(queue, at_s) else Outcome.CONFIRMED, publisher=queue, queue=queue)
        for queue in range(OWNERS)
        for n, at_s in enumerate(moments)
    ]
    places = {f"q{n}": {"type": "exclusive", "members": ["a1"], "leader": "a1", "consumer": n} for n in range(OWNERS)}
    told = [
        of_consumer([(1, "connected"), (s, "killed"), (e, "started")], n) for n, (s, e) in enumerate(away) if s < 90
    ]
    made = [cluster(), phases(), event(0, "queues", queues=places), node_states(), load(10, 30), *told]
    ratios = []
    for start_s in range(10, 90, window_s):
        asked = sum(s >= start_s + window_s or e + grace_s <= start_s for s, e in away) * window_s * 10
        within = [at_s + 0.005 for at_s in moments if start_s <= at_s + 0.005 < start_s + window_s]
        got = sum(not silent(queue, at_s - 0.005) for queue in range(OWNERS) for at_s in within)
        ratios += [got / asked] if asked else []
    found = Throughput(ratio_min=0.9, window_s=window_s, grace_s=grace_s).check(history(rows, (), made))
    assert found.numbers["windows"] == len(ratios)
    assert found.numbers["ratio"] == pytest.approx(min(ratios), abs=0.03)
    if abs(min(ratios) - 0.9) > 0.03:
        assert found.verdict is (Verdict.INVALID if min(ratios) < 0.9 else Verdict.VALID)


@pytest.mark.parametrize(("kind", "verdict"), [({"consumer": 0}, Verdict.VALID), ({}, Verdict.INVALID)])
def test_a_queue_that_went_with_its_consumer_in_the_end_had_recovered(kind: dict[str, int], verdict: Verdict) -> None:
    row = {"ready": 0, "unacked": 0, "leader": "a1", "members": 1, "online": 1, "behind": 0}
    there = [event(n, "sample", node="a1", queues={"q1": row} if n < 92 else {}) for n in range(1, 95)]
    place = {"type": "exclusive", "members": ["a1"], "leader": "a1", **kind}
    made = [cluster(), phases(), event(0, "queues", queues={"q1": place}), node_states(), fault(20, 30, down=["b1"])]
    ended = of_consumer([(1, "connected"), (93.5, "stopped")])
    assert Recovery().check(history([], [], [*made, there, ended])).verdict is verdict


@pytest.mark.parametrize(("node", "verdict"), [("c1", Verdict.VALID), ("a1", Verdict.INVALID)])
def test_a_queue_is_where_its_consumer_is(node: str, verdict: Verdict) -> None:
    """c1 is away; a queue that is on a1 has no reason to stand still."""
    both = [
        event(1, "worker", worker=f"consumer-{number}", event="connected", node=node, life=0) for number in range(2)
    ]
    seen = node_states(unlike={"c1": [(30, 60, "down")]})
    made = [cluster(), phases(), QUEUES, seen, load(10, 10), fault(30, 58, down=["c1"]), *both]
    recorded = history(every_tenth((0, 30), (62, 90)), (), made)
    assert Availability().check(recorded).verdict is verdict


def test_a_consumer_whose_node_is_not_recorded_excuses_no_more_than_any_node_does() -> None:
    """It is killed from 29 to 31 s, and nothing is confirmed from 29 to 80 s."""
    sent = [publish(n, n / 2) for n in range(180) if not 29 <= n / 2 < 80]
    told = [(1.0, "connected"), (29.0, "killed"), (31.0, "started"), (31.5, "connected")]
    worked = [event(at_s, "worker", worker="consumer-0", event=what) for at_s, what in told]
    made = [cluster(), phases(), QUEUES, load(10, 2), node_states(), fault(29, 31, name="kill_client"), *worked]
    assert Availability().check(history(sent, [], made)).verdict is Verdict.INVALID


@given(
    words=st.lists(st.sampled_from(["connected", "connection_lost", "killed"]), max_size=8),
    sent_s=st.integers(1, 30).map(lambda s: s + 0.5),
    bound=st.booleans(),
)
def test_what_may_be_gone_second_by_second(words: list[str], sent_s: float, bound: bool) -> None:
    """A message is sent, and nothing arrives. Every 3 s one thing happens. It may be gone with each absence that was
    not over, for all nodes that route, when it was sent: one that it was in the queue for, or that began later."""
    told = [(3 * number, word) for number, word in enumerate(words, 1)]
    made = [cluster(), phases(), BOUND if bound else QUEUES, node_states(), fault(82, 85, down=["b1"])]
    connected, ever, allowed = False, False, False
    for at_s, word in told:
        came = word == "connected" and not connected and ever
        connected = word == "connected"
        ever = ever or connected
        if came:
            allowed |= sent_s < at_s + (2 if bound else 0)
    if ever and not connected:  # it never came back
        gone_s = next(at_s for at_s, _ in reversed([*_losses(told)]))
        allowed |= bound or sent_s < gone_s + 30
    found = NoLoss().check(history([publish(0, sent_s)], [], [*made, *of_consumer(told)]))
    assert found.verdict is (Verdict.VALID if allowed else Verdict.INVALID)


def _losses(told: Told) -> Iterator[tuple[float, str]]:
    """What ended a connection that was there."""
    connected = False
    for at_s, word in told:
        if connected and word != "connected":
            yield at_s, word
        connected = word == "connected"
