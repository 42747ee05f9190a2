"""What fan-out and shards excuse, and what they do not: literal histories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.partition_mode import PartitionMode
from rabbitmq_resilience.checkers.starved import STARVED_S, starved
from rabbitmq_resilience.checkers.throughput import Throughput
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.events import LoadEvent
from tests.invariants.literal import (
    THREE,
    apart,
    cluster,
    deliver,
    event,
    fault,
    history,
    load,
    node_states,
    phases,
    publish,
    queues,
    sample,
    us,
)
from tests.messages import Messages


@pytest.mark.parametrize("both", [True, False])
def test_a_queue_may_wait_for_another_one_that_shares_its_messages(both: bool) -> None:
    """q2 has its only copy on the broker that is killed; q1 has a majority all the time."""
    at_s = [*range(20), *range(52, 90)]
    rows = [publish(n, at, queue=0) for n, at in enumerate(at_s)]
    rows += [publish(n, at, publisher=0 if both else 1, queue=1, lane=int(both)) for n, at in enumerate(at_s)]
    rows.sort(key=lambda row: (row["publisher"], row["sequence"]))
    places = {
        "q1": {"type": "quorum", "members": list(THREE), "leader": "a1"},
        "q2": {"type": "classic", "members": ["c1"], "leader": "c1"},
    }
    killed = fault(20, 50, down=["c1"], name="kill")
    events = [
        cluster(),
        event(0, "queues", queues=places),
        phases(),
        killed,
        node_states(unlike={"c1": [(20, 50, "down")]}),
    ]
    finding = Availability(stall_s_max=15, grace_s=5).check(history(rows, (), events))
    assert finding.verdict is (Verdict.VALID if both else Verdict.INVALID), finding.summary


def test_a_rate_is_of_messages_not_of_queues(message: Messages) -> None:
    """Of 10 messages/s a machine that confirms 5 does not hold the load, to however many queues each goes."""
    rows = [publish(n, n / 5, queue=lane, lane=lane) for n in range(450) for lane in range(2)]
    events = [cluster(), queues("q1", "q2"), phases(), node_states(), load(10, 10)]
    finding = Throughput(ratio_min=0.5, window_s=5, grace_s=10).check(history(rows, (), events))
    assert (finding.verdict, finding.numbers["steady_per_s"]) == (Verdict.UNKNOWN, 5)
    message(finding.summary)


def test_the_slowest_service_shows_how_long_a_consumer_may_take() -> None:
    slow = {"name": "b", "queues": 1, "consumers": 1, "processing_ms": 10_000, "variable_processing": []}
    peak = {**slow, "variable_processing": [{"processing_ms": 40_000, "for_s": 5}]}
    told = load(10, 100, processing_ms=5_000)
    assert isinstance(told, LoadEvent)
    connected = event(0, "worker", worker="consumer-0", event="connected", node="a1", detail="")
    ready = [replace(seen, queues={"q1": {"ready": 9, "unacked": 0}}) for seen in (sample(0), sample(100))]
    for services, longest_s in (((), 5), ((slow,), 10), ((slow, peak), 40)):
        silent = history((), (), [queues("q1"), replace(told, services=services), connected, ready])
        bound_s = STARVED_S + longest_s
        assert starved(silent, (us(0), us(bound_s))) == {}
        assert starved(silent, (us(0), us(bound_s + 0.1))) == {"q1": [(us(0), us(bound_s + 0.1))]}


def _beside_another_shard(kind: str, members: list[str], *, sharded: bool) -> list[Any]:
    """a1 is cut off from 20 s to 50 s; q1 is a quorum queue on all three nodes, and q2 as it is said."""
    places = {
        "q1": {"type": "quorum", "members": list(THREE), "leader": "a1"},
        "q2": {"type": kind, "members": members, "leader": "a1"},
    }
    told = event(0, "queues", queues=places, shards=[["q1", "q2"]] if sharded else [])
    cut = fault(20, 50, cut=apart(["a1"], ["b1", "c1"]))
    return [cluster(mode="autoheal"), phases(), told, cut, node_states(unlike={"a1": [(52, 58, "paused")]})]


@pytest.mark.parametrize("sharded", [True, False])
def test_a_lost_message_may_have_been_in_a_shard_that_may_lose_it(sharded: bool) -> None:
    events = _beside_another_shard("mirrored", list(THREE), sharded=sharded)
    received = [deliver(0, 12.1), deliver(0, 60, again=True)]
    found = NoLoss().check(history([publish(0, 12), publish(1, 30)], received, events))
    assert found.verdict is (Verdict.VALID if sharded else Verdict.INVALID)
    assert found.numbers["lost_permitted"] == int(sharded)


@pytest.mark.parametrize("sharded", [True, False])
def test_a_confirm_may_be_of_a_shard_that_was_reached(sharded: bool) -> None:
    events = _beside_another_shard("quorum", ["a1"], sharded=sharded)
    found = PartitionMode().check(history([publish(0, 40)], (), events))
    assert found.verdict is (Verdict.VALID if sharded else Verdict.INVALID), found.summary


def _classic_beside(fan_out: bool, *, at_s: float) -> Any:
    """Message 1 is sent when the node of the classic queue q2 is away from 20 s to 52 s, and never comes from there."""
    places = {
        "q1": {"type": "quorum", "members": list(THREE), "leader": "a1"},
        "q2": {"type": "classic", "members": ["c1"], "leader": "c1"},
    }
    killed = fault(20, 50, down=["c1"], name="kill")
    states = node_states(unlike={"c1": [(20, 52, "down")]})
    events = [cluster(), event(0, "queues", queues=places), phases(), killed, states]
    sent = [(0, 12.0), (1, at_s), (2, 80.0)]
    rows = [publish(n, at, queue=1, lane=int(fan_out)) for n, at in sent]
    received = [deliver(n, at + 0.1, queue=1) for n, at in sent if n != 1]
    if fan_out:
        rows += [publish(n, at, queue=0) for n, at in sent]
        received += [deliver(n, at + 0.1, queue=0) for n, at in sent]
    rows.sort(key=lambda row: (row["sequence"], row["lane"]))
    return history(rows, received, events)


CUT_OFF = apart(["c1"], ["a1", "b1"])


def _fan(members: str, *steps: Any, missing: list[tuple[int, int]], at_s: float, mode: str, **more: Any) -> Any:
    """q1 and q2, each with one copy on a node, as ``members`` names them; what is ``missing`` (sequence, queue) never
    comes; message 1 is sent at that time, and confirmed by ``node``."""
    kind, node, states = more.get("kind", "classic"), more.get("node", 0), more.get("states")
    places = {f"q{i + 1}": {"type": kind, "members": [on], "leader": on} for i, on in enumerate(members.split())}
    sent = [(0, 12.0), (1, at_s), (2, 88.0)]
    rows = [publish(n, at, queue=q, lane=q) | {"node": node} for n, at in sent for q in (0, 1)]
    came = [deliver(n, at + 0.1, queue=q) for n, at in sent for q in (0, 1) if (n, q) not in missing]
    events = [cluster(mode=mode), event(0, "queues", queues=places), phases(), *steps, node_states(unlike=states)]
    return history(rows, came, events)


def _both_lost(mode: str, *lost: int, at_s: float = 30) -> list[Any]:
    """q1 is mirrored on all nodes and q2 has its only copy on c1; a1 is cut off from both, and loses what it took where
    a split is healed by restarting it. Message 1 is confirmed by a1, and never comes from the queues that are ``lost``.
    How many of its copies may be lost, and how many may not."""
    places = {
        "q1": {"type": "mirrored", "members": list(THREE), "leader": "a1"},
        "q2": {"type": "classic", "members": ["c1"], "leader": "c1"},
    }
    cut = fault(20, 50, cut=apart(["a1"], ["b1", "c1"]))
    sent = [(0, 12.0), (1, at_s), (2, 88.0)]
    rows = [publish(n, at, queue=q, lane=q) for n, at in sent for q in (0, 1)]
    came = [deliver(n, at + 0.1, queue=q) for n, at in sent for q in (0, 1) if n != 1 or q not in lost]
    states = node_states(unlike={"a1": [(52, 58, "down")]})
    events = [cluster(mode=mode), event(0, "queues", queues=places), phases(), cut, states]
    found = NoLoss().check(history(rows, came, events)).numbers
    return [found["lost_permitted"], found["lost"]]


def test_both_copies_may_be_lost_each_for_its_own_reason() -> None:
    """The mirror that took it gave way, and no broker there knew of the other queue."""
    assert _both_lost("autoheal", 0, 1) == [2, 0]
    assert _both_lost("autoheal", 0) == [1, 0]
    assert _both_lost("autoheal", 1) == [1, 0]
    assert _both_lost("pause_minority", 0, 1) == [0, 2], "no loss is permitted to the mirror, so nobody took it"
    assert _both_lost("autoheal", 0, 1, at_s=12.5) == [0, 2], "nothing was cut yet"


KILLED = fault(20, 50, down=["c1"], name="kill")
AWAY: dict[str, Any] = {"states": {"c1": [(20, 52, "down")]}}


def _passed_by(members: str, step: Any, *missing: tuple[int, int], at_s: float, mode: str, **more: Any) -> list[Any]:
    """How many of the missing may be, and how many may not."""
    found = NoLoss().check(_fan(members, step, missing=[*missing], at_s=at_s, mode=mode, **more)).numbers
    return [found["lost_permitted"], found["lost"]]


def test_only_what_another_queue_took_may_pass_a_queue_by() -> None:
    beside = {"at_s": 30, "mode": "pause_minority", **AWAY}
    assert _passed_by("a1 c1", KILLED, (1, 1), **beside) == [1, 0]
    assert _passed_by("a1 c1", KILLED, (1, 1), **beside, kind="mirrored") == [0, 1], "brokers know of its copies"
    assert _passed_by("c1 c1", KILLED, (1, 0), (1, 1), **beside) == [0, 2], "nobody took it: it would be returned"
    assert _passed_by("a1 c1", KILLED, (1, 1), **{**beside, "at_s": 51.997}) == [1, 0], "confirmed when it was back"


def test_a_node_knows_its_own_queues() -> None:
    cut = fault(20, 50, cut=CUT_OFF)
    assert _passed_by("c1 c1", cut, (1, 1), at_s=30, mode="ignore", node=2) == [0, 1]


def test_a_cut_passes_a_queue_by_until_a_node_is_back_from_a_restart() -> None:
    cut = fault(20, 50, cut=CUT_OFF)
    restarted: dict[str, Any] = {"states": {"c1": [(52, 58, "down")]}}
    paused: dict[str, Any] = {"states": {"c1": [(26, 52, "paused")]}}
    assert _passed_by("a1 c1", cut, (1, 1), at_s=40, mode="autoheal") == [1, 0]
    assert _passed_by("a1 c1", cut, (1, 1), at_s=85, mode="autoheal", **restarted) == [0, 1]
    assert _passed_by("a1 c1", cut, (1, 1), at_s=85, mode="ignore") == [1, 0], "nobody declared the queue again"
    assert _passed_by("a1 c1", cut, (1, 1), at_s=82, mode="pause_minority", **paused) == [0, 1]
    assert _passed_by("a1 c1", fault(20, 20.5, cut=CUT_OFF), (1, 1), at_s=85, mode="autoheal") == [0, 1], "unnoticed"


def test_a_node_that_must_stand_paused_confirms_nothing_to_any_queue() -> None:
    cut, paused = fault(20, 50, cut=apart(["a1"], ["b1", "c1"])), {"states": {"a1": [(25, 52, "paused")]}}
    recorded = _fan("a1 a1", cut, missing=[], at_s=45, mode="pause_minority", **paused)
    assert PartitionMode().check(recorded).verdict is Verdict.INVALID


@pytest.mark.parametrize(("fan_out", "at_s", "permitted"), [(True, 30, 1), (False, 30, 0), (True, 70, 0), (True, 8, 0)])
def test_a_queue_whose_node_is_away_is_passed_over(
    fan_out: bool, at_s: float, permitted: int, message: Messages
) -> None:
    found = NoLoss().check(_classic_beside(fan_out, at_s=at_s))
    assert (found.numbers["lost"], found.numbers["lost_permitted"]) == (1 - permitted, permitted)
    assert found.verdict is (Verdict.VALID if permitted else Verdict.INVALID)
    message(found.summary)
    assert ("q2" in found.summary) == bool(permitted)


@pytest.mark.parametrize("fan_out", [True, False])
def test_no_one_confirms_for_a_queue_that_is_passed_over(fan_out: bool) -> None:
    found = PartitionMode().check(_classic_beside(fan_out, at_s=30))
    assert found.verdict is (Verdict.VALID if fan_out else Verdict.INVALID), found.summary


@pytest.mark.parametrize(("silent_s", "lost"), [(1, 1), (6, 0)])
def test_what_came_from_a_queue_shows_that_it_was_known(silent_s: int, lost: int) -> None:
    """Of a message each second one is missing, or all for longer than a node takes to begin again."""
    starved = fault(20, 50, name="stress", starved=["c1"])
    missing = [(n, 1) for n in range(60, 60 + silent_s)]
    rows = [publish(n, n + 0.5, queue=q, lane=q) for n in range(88) for q in (0, 1)]
    came = [deliver(n, n + 0.6, queue=q) for n in range(88) for q in (0, 1) if (n, q) not in missing]
    places = {f"q{i}": {"type": "classic", "members": [on], "leader": on} for i, on in ((1, "a1"), (2, "c1"))}
    events = [cluster(mode="ignore"), event(0, "queues", queues=places), phases(), starved, node_states()]
    assert NoLoss().check(history(rows, came, events)).numbers["lost"] == lost
