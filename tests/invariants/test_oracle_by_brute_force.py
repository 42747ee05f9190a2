"""The oracle against slow, plain Python that looks at every pair and every set of nodes, for any cut of any cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.cluster_states import ClusterState
from rabbitmq_resilience.checkers.facts import QueueFacts
from rabbitmq_resilience.checkers.oracle import predict, served_if_led_by, writable_from
from rabbitmq_resilience.checkers.splits import sides_apart

NODES = ("a1", "a2", "b1", "b2", "c1")
MODES = ("pause_minority", "pause_if_all_down", "autoheal", "ignore")

Set = frozenset[str]


@st.composite
def clusters(draw: st.DrawFn) -> ClusterFacts:
    nodes = NODES[: draw(st.integers(3, 5))]
    mode = draw(st.sampled_from(MODES))
    preferred = draw(st.frozensets(st.sampled_from(nodes), min_size=1)) if mode == "pause_if_all_down" else frozenset()
    return ClusterFacts(
        nodes,
        mode,
        5,
        draw(st.sampled_from([(3, 10, 8), (4, 0, 5), (4, 3, 6)])),
        preferred=preferred,
        recover=draw(st.sampled_from(["autoheal", "ignore"])) if preferred else "",
        khepri=draw(st.booleans()),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[ClusterFacts, ClusterState]:
    cluster = draw(clusters())
    pairs = [frozenset(pair) for pair in itertools.combinations(cluster.nodes, 2)]
    cut = draw(st.frozensets(st.sampled_from(pairs)) | sides(cluster.nodes))
    up = frozenset(draw(st.sets(st.sampled_from(cluster.nodes), min_size=1)))
    return cluster, ClusterState(up=up, cut=cut)


def sides(nodes: tuple[str, ...]) -> st.SearchStrategy[frozenset[Set]]:
    """Clean cuts, which pairs drawn at random seldom make."""
    numbers = st.lists(st.integers(0, 2), min_size=len(nodes), max_size=len(nodes))
    return numbers.map(
        lambda side: frozenset(
            frozenset((one, other))
            for (i, one), (j, other) in itertools.combinations(enumerate(nodes), 2)
            if side[i] != side[j]
        )
    )


queue_kinds = st.sampled_from(["quorum", "mirrored", "classic"])


def talk(world: ClusterState, one: str, other: str) -> bool:
    return {one, other} <= world.up and (one == other or frozenset((one, other)) not in world.cut)


def subsets(nodes: Iterable[str]) -> list[Set]:
    names = sorted(nodes)
    return [frozenset(s) for size in range(1, len(names) + 1) for s in itertools.combinations(names, size)]


def groups(world: ClusterState) -> list[Set]:
    """The largest sets in which everybody is reached by way of others: closed, and not to be divided."""

    def closed(nodes: Set) -> bool:
        return not any(talk(world, a, b) for a in nodes for b in world.up - nodes)

    found = [nodes for nodes in subsets(world.up) if closed(nodes)]
    return [nodes for nodes in found if not any(other < nodes for other in found)]


def must_pause(cluster: ClusterFacts, world: ClusterState) -> Set:
    if cluster.khepri or cluster.broker_version >= (4, 3):
        return frozenset()
    heard = {node: {other for other in cluster.nodes if talk(world, node, other)} for node in world.up}
    if cluster.partition_handling == "pause_minority":
        return frozenset(node for node in world.up if len(heard[node]) <= len(cluster.nodes) / 2)
    if cluster.partition_handling == "pause_if_all_down":
        return frozenset(node for node in world.up if heard[node].isdisjoint(cluster.preferred))
    return frozenset()


def whole(world: ClusterState, group: Set) -> bool:
    return all(talk(world, a, b) for a in group for b in group)


@given(cases())
def test_who_pauses_and_who_goes_on(case: tuple[ClusterFacts, ClusterState]) -> None:
    cluster, world = case
    forecast = predict(cluster, world)
    pausing = must_pause(cluster, world)
    assert forecast.pauses == pausing
    assert forecast.pauses | forecast.may_pause <= world.up
    assert not forecast.pauses & forecast.may_pause
    going_on = {g for g in groups(world) if whole(world, g) and not g & pausing}
    assert set(forecast.sides) == going_on
    assert all(len(group) == 2 and not group & pausing for group in forecast.one_pauses)
    if cluster.pauses_minorities:
        assert len(forecast.sides) <= 1
        assert forecast.aftermath == "whole"
    if not cluster.handles_partitions:
        assert (forecast.may_pause, forecast.aftermath) == (frozenset(), "whole")


@given(cases(), queue_kinds, st.data())
def test_where_a_queue_is_written_to(case: tuple[ClusterFacts, ClusterState], kind: str, data: st.DataObject) -> None:
    cluster, world = case
    least, most = (1, 1) if kind == "classic" else (1, len(cluster.nodes))
    members = frozenset(data.draw(st.sets(st.sampled_from(cluster.nodes), min_size=least, max_size=most)))
    queue = QueueFacts("q1", kind, members)
    pausing = must_pause(cluster, world)

    def enough(group: Set) -> bool:
        return 2 * len(group & members) > len(members) if kind == "quorum" else bool(group & members)

    def sees_all(node: str, group: Set) -> bool:
        return all(talk(world, node, other) for other in group)

    unhandled = not cluster.handles_partitions
    expected = {
        group
        for group in groups(world)
        if enough(group) and not group & pausing
        if whole(world, group) or (unhandled and all(sees_all(node, group) for node in group & members))
    }
    assert set(writable_from(queue, cluster, world)) == expected
    hubs = {n for group in groups(world) if unhandled and enough(group) for n in group if sees_all(n, group)}
    assert served_if_led_by(queue, cluster, world) == hubs.union(*expected)
    if kind != "mirrored":
        assert len(expected) <= 1  # two majorities share a member, and one copy is on one side
    if cluster.pauses_minorities or not world.cut:
        assert not any(sides_apart(cluster, world, queue.members))


@given(cases(), st.data())
def test_where_a_queue_whose_copies_move_is_surely_written_to(
    case: tuple[ClusterFacts, ClusterState], data: st.DataObject
) -> None:
    cluster, world = case
    nodes = frozenset(cluster.nodes)
    members = frozenset(data.draw(st.sets(st.sampled_from(cluster.nodes), min_size=2, max_size=len(nodes) - 1)))
    places = [frozenset(place) for place in itertools.combinations(sorted(nodes), len(members))]
    pausing = must_pause(cluster, world)
    expected = {
        group
        for group in groups(world)
        if whole(world, group) and not group & pausing and all(group & place for place in places)
    }
    moving = QueueFacts("q1", "mirrored", members, nodes - members)
    assert set(writable_from(moving, cluster, world)) == expected
    assert expected <= set(writable_from(QueueFacts("q1", "mirrored", members), cluster, world))


@given(cases(), st.permutations(NODES))
def test_names_do_not_matter(case: tuple[ClusterFacts, ClusterState], others: list[str]) -> None:
    """What is foreseen of a cluster is foreseen of one whose nodes swapped their names."""
    cluster, world = case
    swapped = dict(zip(NODES, others, strict=True))

    def named(nodes: Iterable[str]) -> Set:
        return frozenset(swapped[node] for node in nodes)

    renamed = ClusterFacts(
        tuple(swapped[node] for node in cluster.nodes),
        cluster.partition_handling,
        cluster.net_ticktime_s,
        cluster.broker_version,
        preferred=named(cluster.preferred),
        recover=cluster.recover,
        khepri=cluster.khepri,
    )
    cut = frozenset(map(named, world.cut))
    one, other = predict(cluster, world), predict(renamed, ClusterState(up=named(world.up), cut=cut))
    assert (named(one.pauses), named(one.may_pause)) == (other.pauses, other.may_pause)
    assert set(map(named, one.sides)) == set(other.sides)
    assert set(map(named, one.one_pauses)) == set(other.one_pauses)
    assert one.aftermath == other.aftermath
