"""A row for each message, and for each queue that it is owed to: against loops that say the same."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.history.history import PUBLISHES, HistoryError, Outcome
from rabbitmq_resilience.history.routes import OWED, ROUTES_FILE, Routes
from tests.messages import Messages

route = st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True)
tables = st.lists(route, min_size=1, max_size=6)


def publishes(routes: list[int]) -> pa.RecordBatch:
    rows = [
        {"publisher": 70_000, "route": number, "sequence": n, "due_us": 10 * n, "sent_us": 10 * n + 1}
        | {"outcome": int(Outcome.CONFIRMED), "outcome_us": 10 * n + 2, "node": 300}
        for n, number in enumerate(routes)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=PUBLISHES)


@given(tables, st.data())
def test_each_message_is_owed_to_each_queue_of_its_route(table: list[list[int]], data: st.DataObject) -> None:
    routes = Routes.of(table)
    chosen = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=20))
    owed = routes.owed(publishes(chosen))
    expected = [(n, queue, int(routes.lanes[queue])) for n, number in enumerate(chosen) for queue in table[number]]
    assert [(row["sequence"], row["queue"], row["lane"]) for row in owed.to_pylist()] == expected
    for row in owed.to_pylist():
        n = row["sequence"]
        assert (row["publisher"], row["due_us"], row["sent_us"], row["node"]) == (70_000, 10 * n, 10 * n + 1, 300)
    assert owed.schema == OWED


@given(tables)
def test_queues_that_share_a_message_have_different_lanes(table: list[list[int]]) -> None:
    routes = Routes.of(table)
    for queues in table:
        assert len({int(routes.lanes[queue]) for queue in queues}) == len(queues)
    if all(len(queues) == 1 for queues in table):
        assert not routes.lanes.any()


@given(tables)
def test_a_table_is_read_as_it_was_saved(tmp_path_factory: pytest.TempPathFactory, table: list[list[int]]) -> None:
    folder = tmp_path_factory.mktemp("routes")
    routes = Routes.of(table)
    routes.save(folder)
    again = Routes.read(folder)
    assert (again.queues.tolist(), again.ends.tolist()) == (routes.queues.tolist(), routes.ends.tolist())


def test_a_plain_load_has_a_route_to_each_queue() -> None:
    plain = Routes.plain(3)
    assert [row["queue"] for row in plain.owed(publishes([2, 0, 1, 2])).to_pylist()] == [2, 0, 1, 2]
    assert Routes.of([[0], [1], [2]]).queues.tolist() == plain.queues.tolist()


@st.composite
def sharded(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]]]:
    """Routes to queues, and to one shard at most of each group."""
    queues = draw(st.permutations(range(8)))
    shards = [list(queues[:2]), list(queues[2:5])]
    ways = st.tuples(
        st.lists(st.sampled_from(queues[5:]), unique=True), *(st.sampled_from([None, *group]) for group in shards)
    )
    table = [[*plain, *(q for q in of_shards if q is not None)] for plain, *of_shards in draw(st.lists(ways))]
    return [route for route in table if route] or [[0]], shards


@given(sharded(), st.randoms())
def test_shards_have_one_lane_which_no_other_queue_of_their_routes_has(
    made: tuple[list[list[int]], list[list[int]]], random: Random
) -> None:
    table, shards = made
    routes = Routes.of(table, shards)
    for group in shards:
        assert len({int(routes.lanes[queue]) for queue in group}) == 1
    groups = {queue: group for group in shards for queue in group}
    for route in table:
        anywhere = [random.choice(groups.get(queue, [queue])) for queue in route]
        assert len({int(routes.lanes[queue]) for queue in anywhere}) == len(route)


def test_a_table_with_shards_is_read_as_it_was_saved(tmp_path: Path) -> None:
    routes = Routes.of([[0, 1], [2]], [[1, 2, 3]])
    routes.save(tmp_path)
    again = Routes.read(tmp_path)
    assert (again.queues.tolist(), again.ends.tolist(), again.shards) == ([0, 1, 2], [2, 3], ((1, 2, 3),))


@pytest.mark.parametrize("shards", [[[1, 2], [2, 3]], [[-1, 1]]])
def test_a_queue_is_a_shard_of_one_group(shards: list[list[int]], message: Messages) -> None:
    with message.of(ValueError):
        Routes.of([[0]], shards)


def test_a_message_goes_to_one_shard_of_a_group(message: Messages) -> None:
    with message.of(ValueError) as caught:
        Routes.of([[0, 1], [1, 2]], [[1, 2]])
    assert "route 1" in str(caught.value)


@pytest.mark.parametrize("bad", [[], [1, 1], [-1]])
def test_a_route_leads_to_queues_and_to_each_once(bad: list[int], message: Messages) -> None:
    with message.of(ValueError) as caught:
        Routes.of([[0], bad])
    assert "route 1" in str(caught.value)


@pytest.mark.parametrize(
    "text", [None, "", "{", "[1]", '["a"]', "[[]]", "7", "[[99999999999]]", "null", '{"routes": [[0]]}']
)
def test_a_damaged_table_is_reported(tmp_path: Path, text: str | None, message: Messages) -> None:
    if text is not None:
        (tmp_path / ROUTES_FILE).write_text(text)
    with message.of(HistoryError, hide={r"(routes: ).*": r"\1WHY"}):
        Routes.read(tmp_path)


def test_a_route_that_is_not_in_the_table_is_reported(message: Messages) -> None:
    with message.of(HistoryError) as caught:
        Routes.plain(3).owed(publishes([0, 3]))
    assert "route 3" in str(caught.value)
