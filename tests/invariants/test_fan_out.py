"""Messages that go to several queues, judged as they are recorded: generated routings, with planted losses and without.

The truth is kept beside the record, in a list of what each queue was given and gave; no checker has a part in it.
Each generated run goes the whole way: a routing as a fault file states it, routes, rows, lanes, ledger, verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.fan_out import Shards, companions, is_repeated
from rabbitmq_resilience.checkers.message_ledger import ledger_of
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.order import Order
from rabbitmq_resilience.checkers.verdict import History, Verdict
from rabbitmq_resilience.checkers.waits import confirm_waits, delivery_waits
from rabbitmq_resilience.history.history import DELIVERIES, PUBLISHES, Outcome
from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.workload.drain import Tally
from rabbitmq_resilience.workload.load import deliveries_path, publishes_path, share
from rabbitmq_resilience.workload.routing import Routing
from tests.invariants.literal import (
    Row,
    cluster,
    deliver,
    event,
    fault,
    phases,
    publish,
    us,
    write_stream,
)
from tests.messages import Messages

QUEUES = ("q1", "q2", "q3", "q4", "q5", "q6")
#: A topic exchange, a headers one and one that shards two queues; what nothing takes goes to q6.
EXCHANGES = [
    {"name": "x", "type": "topic", "alternate_exchange": "rest"},
    {"name": "head", "type": "headers", "alternate_exchange": "rest"},
    {"name": "hash", "type": "consistent_hash"},
    {"name": "rest", "type": "fanout"},
]
SHARDS = [3, 4]


@st.composite
def routings(draw: st.DrawFn) -> Routing:
    plain = st.lists(st.sampled_from(["q1", "q2", "q3"]), min_size=1, max_size=3, unique=True)
    patterns = st.sampled_from(["a", "b", "*", "#", "a.*", "#.b", "c.d"])
    bindings: list[dict[str, Any]] = [
        {"exchange": "x", "queues": draw(plain), "routing_key": draw(patterns)} for _ in range(draw(st.integers(0, 4)))
    ]
    bindings += [
        {"exchange": "head", "queues": draw(plain), "headers": {"kind": draw(st.sampled_from("ab"))}}
        for _ in range(draw(st.integers(0, 2)))
    ]
    if draw(st.booleans()):
        bindings.append({"exchange": "x", "to_exchange": "hash", "routing_key": draw(patterns)})
    bindings += [{"exchange": "hash", "queues": ["q4", "q5"]}, {"exchange": "rest", "queues": "q6"}]
    published = [
        *({"exchange": "x", "routing_key": key} for key in draw(st.lists(st.sampled_from(["a", "b", "a.b", "c.d"])))),
        *({"exchange": "head", "headers": {"kind": kind}} for kind in draw(st.lists(st.sampled_from("abc")))),
        {"exchange": "hash", "routing_key": "s.%d", "routing_keys": draw(st.integers(1, 3))},
    ]
    routing = Routing.model_validate({"exchanges": EXCHANGES, "bindings": bindings, "publish": published})
    assert not [*routing.problems(QUEUES)]
    return routing


@dataclass
class Made:
    """A run: its rows, and apart from them what was owed and what came, as (publisher, sequence, queue). ``taken``: to
    how many queues all messages went together."""

    routes: Routes
    publishes: list[Row] = field(default_factory=list)
    deliveries: list[Row] = field(default_factory=list)
    confirmed: list[tuple[int, int, int]] = field(default_factory=list)
    taken: int = 0

    def history(self) -> History:
        rows = [
            {**row, "route": row["queue"]} for row in self.publishes
        ]  # the route stands where literal rows have a queue
        batches = [pa.RecordBatch.from_pylist([{n: row[n] for n in PUBLISHES.names} for row in rows], schema=PUBLISHES)]
        delivered = pa.RecordBatch.from_pylist(self.deliveries, schema=DELIVERIES)
        places = {name: {"type": "quorum", "members": ["a1", "b1", "c1"], "leader": "a1"} for name in QUEUES}
        shards = [[QUEUES[queue] for queue in SHARDS]]
        events = [
            cluster(),
            event(0, "queues", queues=places, shards=shards),
            *phases(),
            *fault(20, 30, down=["a1"], name="kill"),
        ]
        events.sort(key=lambda e: e.t_us)
        return History(lambda: map(self.routes.owed, batches), lambda: [delivered], events)


def made(routing: Routing, random: Random, *, publishers: int, messages: int) -> Made:
    """Every queue gives what it was given, in order; a shard is chosen anew now and then, as after a restart."""
    shards = [random.choice(SHARDS) for _ in routing.turns]
    index = {name: number for number, name in enumerate(QUEUES)}
    ways = [[index[queue] for queue in one.queues] for one in routing.reached(QUEUES)]
    sharded = [bool(one.shards) for one in routing.reached(QUEUES)]
    routes = [way + [shards[n]] * sharded[n] for n, way in enumerate(ways)]
    run = Made(Routes.of(routes, [SHARDS]))
    for publisher in range(publishers):
        turns = share(publisher, publishers, len(routes))
        for sequence in range(messages):
            route, at_s = turns[sequence % len(turns)], 11 + sequence + publisher / 10
            outcome = random.choice([Outcome.CONFIRMED] * 4 + [Outcome.UNKNOWN, Outcome.NACKED])
            run.publishes.append(publish(sequence, at_s, outcome, publisher=publisher, queue=route))
            taken = ways[route] + [random.choice(SHARDS)] * sharded[route]
            run.taken += len(taken)
            for queue in taken:
                if outcome is Outcome.CONFIRMED:
                    run.confirmed.append((publisher, sequence, queue))
                if outcome is Outcome.CONFIRMED or random.choice([True, False]):
                    row = deliver(sequence, at_s + 0.5, publisher=publisher, queue=queue, consumer=queue)
                    run.deliveries.append(row)
    # One comes again after the fault, so that its end was seen.
    run.deliveries += [{**row, "redelivered": True, "received_us": us(89)} for row in run.deliveries[:1]]
    return run


runs = st.tuples(routings(), st.randoms(use_true_random=False), st.integers(1, 3), st.integers(1, 12))


@given(runs)
def test_where_nothing_is_lost_nothing_is_found(drawn: tuple[Routing, Random, int, int]) -> None:
    routing, random, publishers, messages = drawn
    run = made(routing, random, publishers=publishers, messages=messages)
    found = NoLoss().check(run.history())
    assert (found.numbers["lost"], found.numbers["unexpected"]) == (0, 0)
    assert found.numbers["confirmed"] == len(run.confirmed)
    assert found.verdict is not Verdict.INVALID
    assert Order().check(run.history()).verdict is not Verdict.INVALID


@given(runs, st.integers(1, 5))
def test_what_is_lost_of_one_queue_is_found_there_and_nowhere_else(
    drawn: tuple[Routing, Random, int, int], losses: int
) -> None:
    routing, random, publishers, messages = drawn
    run = made(routing, random, publishers=publishers, messages=messages)
    planted = set(random.sample(run.confirmed, min(losses, len(run.confirmed))))
    run.deliveries = [row for row in run.deliveries if (row["publisher"], row["sequence"], row["queue"]) not in planted]
    found = NoLoss().check(run.history())
    assert found.numbers["lost"] == len(planted)
    assert (found.verdict is Verdict.INVALID) == bool(planted)
    for line in found.examples:
        publisher, sequence, queue = (
            line.split(f"{word} ")[1].split()[0].strip(",") for word in ("publisher", "sequence", "to")
        )
        named = {3, 4} if queue in ("q4", "q5") else {QUEUES.index(queue)}
        assert any((int(publisher), int(sequence), q) in planted for q in named)


@given(runs)
def test_what_comes_from_a_queue_that_it_was_not_routed_to_is_found(drawn: tuple[Routing, Random, int, int]) -> None:
    routing, random, publishers, messages = drawn
    run = made(routing, random, publishers=publishers, messages=messages)
    row = random.choice(run.publishes)
    end = run.routes.ends[row["queue"]]
    queues = set(run.routes.queues[end - run.routes.lengths[row["queue"]] : end].tolist())
    own = queues | (set(SHARDS) if queues & set(SHARDS) else set())
    others = set(range(len(QUEUES))) - own
    if others:
        wrong = random.choice(sorted(others))
        run.deliveries.append(deliver(row["sequence"], 88, publisher=row["publisher"], queue=wrong, consumer=wrong))
        found = NoLoss().check(run.history())
        assert (found.verdict, found.numbers["unexpected"], found.numbers["misrouted"]) == (Verdict.INVALID, 1, 1)


@given(runs)
def test_what_overtakes_in_one_queue_is_found_there(drawn: tuple[Routing, Random, int, int]) -> None:
    routing, random, publishers, messages = drawn
    run = made(routing, random, publishers=publishers, messages=messages)
    confirmed = [
        row for row in run.deliveries[:-1] if (row["publisher"], row["sequence"], row["queue"]) in run.confirmed
    ]
    pairs = [
        (one, other)
        for one in confirmed
        for other in confirmed
        if one["queue"] == other["queue"]
        and one["publisher"] == other["publisher"]
        and one["sequence"] < other["sequence"]
    ]
    if pairs:
        early, late = random.choice(pairs)
        a, b = run.deliveries.index(early), run.deliveries.index(late)
        run.deliveries.insert(b, run.deliveries.pop(a))  # after the later one
        run.deliveries[b] = early | {"received_us": late["received_us"] + 1}
        found = Order().check(run.history())
        assert found.verdict is Verdict.INVALID
        assert QUEUES[early["queue"]] in found.examples[0]


@given(runs, st.integers(0, 4))
def test_the_tally_misses_just_what_did_not_come(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[Routing, Random, int, int], losses: int
) -> None:
    routing, random, publishers, messages = drawn
    run = made(routing, random, publishers=publishers, messages=messages)
    planted = set(random.sample(run.confirmed, min(losses, len(run.confirmed))))
    folder = tmp_path_factory.mktemp("tally")
    write_stream(
        publishes_path(folder, "publisher-0", 0), PUBLISHES, [{**row, "route": row["queue"]} for row in run.publishes]
    )
    came = [row for row in run.deliveries if (row["publisher"], row["sequence"], row["queue"]) not in planted]
    write_stream(deliveries_path(folder, "consumer-0", 0), DELIVERIES, came)
    tally = Tally(folder, publishers=publishers, routes=run.routes)
    tally.update()
    assert (tally.confirmed, tally.unconsumed) == (len(run.confirmed), len(planted))


@given(runs)
def test_waits_and_rates_count_a_message_once(drawn: tuple[Routing, Random, int, int]) -> None:
    routing, random, publishers, messages = drawn
    run = made(routing, random, publishers=publishers, messages=messages)
    recorded = run.history()
    assert len(confirm_waits(recorded)) == len(run.publishes)
    assert len(delivery_waits(recorded)) == run.taken
    traffic = ledger_of(recorded).traffic
    assert traffic is not None
    inside = [row for row in run.publishes if row["outcome"] is Outcome.CONFIRMED and row["outcome_us"] < us(90)]
    assert int(traffic.messages.sum()) == len(inside)


def test_rows_of_one_message_are_distinguished() -> None:
    publisher, sequence = np.array([0, 0, 0, 1, 1]), np.array([4, 4, 5, 5, 5])
    assert is_repeated(publisher, sequence).tolist() == [False, True, False, False, True]


def test_queues_that_share_messages_are_companions() -> None:
    one, other = np.array([0, 0, 2], np.uint32), np.array([1, 1, 7], np.uint32)
    assert companions([(one, other)], Shards()) == {0: {1}, 1: {0}, 2: {7}, 7: {2}}
    shards = Shards(((7, 8), (4, 5)))
    assert companions([(one, other)], shards) == {0: {1}, 1: {0}, 2: {7, 8}, 7: {2, 8}, 8: {2, 7}, 4: {5}, 5: {4}}


def test_the_first_of_a_group_stands_for_all_of_it() -> None:
    shards = Shards(((3, 4), (7, 9)))
    assert shards.first(np.array([1, 3, 4, 9, 2**32 - 1])).tolist() == [1, 3, 3, 7, 2**32 - 1]
    assert [shards.first_of(queue) for queue in (1, 4, 9)] == [1, 3, 7]


def test_a_message_from_two_shards_came_twice(message: Messages) -> None:
    """Where nothing had happened, that is a broken promise."""
    routing = Routing.model_validate(
        {
            "exchanges": [{"name": "hash", "type": "consistent_hash"}],
            "bindings": [{"exchange": "hash", "queues": ["q4", "q5"]}],
            "publish": [{"exchange": "hash"}],
        }
    )
    run = made(
        routing,
        Random(1),  # noqa: S311
        publishers=1,
        messages=1,
    )
    run.publishes = [publish(0, 11)]
    run.deliveries = [deliver(0, 11.5, queue=queue, consumer=queue) for queue in SHARDS]
    recorded = run.history()
    calm = History(recorded.publishes, recorded.deliveries, [e for e in recorded.events if e.kind != "fault"])
    found = NoLoss().check(calm)
    assert (found.verdict, found.numbers["duplicates_unmarked"]) == (Verdict.INVALID, 1)
    message(found.examples[0])
    assert "sequence 0" in found.examples[0]
    assert "q5" in found.examples[0]
    assert "consumer 4" in found.examples[0]
