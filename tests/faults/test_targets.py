"""Targets: what people write, and the nodes and links that it means."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.targets import (
    Resolver,
    TargetError,
    check_target,
    fixed_links,
    links_between,
    resolved_links,
)
from tests.messages import Messages

FIVE = topology_catalogue.load("five_nodes_three_zones")


def resolver(seed: int = 0, leader: str | None = "b2") -> Resolver:
    return Resolver(FIVE, lambda _: leader, random.Random(seed))  # noqa: S311 - a seeded choice, no secret


@pytest.mark.parametrize(
    ("target", "nodes"),
    [("a1", ("a1",)), ("zone:b", ("b1", "b2")), ("all", FIVE.node_names), ("leader:q1", ("b2",))],
)
def test_nodes(target: str, nodes: tuple[str, ...]) -> None:
    assert resolver().nodes(target) == nodes


@given(st.integers(0, 1000))
def test_chosen_by_seed(seed: int) -> None:
    """The same seed chooses the same nodes, of the right number, in the topology's order."""
    for target, size in (("minority", 2), ("majority", 3), ("one", 1)):
        chosen = resolver(seed).nodes(target)
        assert chosen == resolver(seed).nodes(target)
        assert len(chosen) == size
        assert list(chosen) == [name for name in FIVE.node_names if name in chosen]


def test_every_node_is_chosen_by_some_seed() -> None:
    assert {resolver(seed).nodes("one")[0] for seed in range(100)} == set(FIVE.node_names)


def test_leaderless_queue(message: Messages) -> None:
    with message.of(TargetError):
        resolver(leader=None).nodes("leader:q1")


def test_sides() -> None:
    assert resolver().sides(("zone:c", "rest")) == (("c1",), ("a1", "a2", "b1", "b2"))
    assert resolver().sides(("a1", "zone:b", "rest")) == (("a1",), ("b1", "b2"), ("a2", "c1"))


@pytest.mark.parametrize(("targets", "names"), [(("zone:b", "b1"), "b1"), (("all", "rest"), "side")])
def test_impossible_sides(targets: tuple[str, ...], names: str, message: Messages) -> None:
    with message.of(TargetError) as refused:
        resolver().sides(targets)
    assert names in str(refused.value)


def test_cut_is_both_directions_of_every_pair_across() -> None:
    assert links_between((("c1",), ("a1", "b1"))) == {
        Link("c1", "a1"),
        Link("a1", "c1"),
        Link("c1", "b1"),
        Link("b1", "c1"),
    }


def test_cut_one_way_is_what_the_first_side_sends() -> None:
    assert links_between((("c1",), ("a1", "b1")), one_way=True) == {Link("c1", "a1"), Link("c1", "b1")}


def test_clients_have_links_to_nodes_only() -> None:
    assert links_between((("publisher:0",), ("consumer:0",), ("a1",)), one_way=True) == {
        Link("publisher:0", "a1"),
        Link("consumer:0", "a1"),
    }
    assert resolver().sides(("publisher:0", "zone:a", "rest")) == (("publisher:0",), ("a1", "a2"), ("b1", "b2", "c1"))


def test_directed_links() -> None:
    assert resolved_links("zone:a -> c1", resolver()) == {Link("a1", "c1"), Link("a2", "c1")}
    assert resolved_links("a1 <-> c1", resolver()) == {Link("a1", "c1"), Link("c1", "a1")}


def test_links_that_a_moment_decides_may_be_those_of_any_node() -> None:
    assert fixed_links("leader:q1 -> c1", FIVE) == {Link(node, "c1") for node in ("a1", "a2", "b1", "b2")}
    assert fixed_links("a1 -> c1", FIVE) == {Link("a1", "c1")}


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("zone:z", "a, b, c"),
        ("leader:q9", "q1"),
        ("a9", "a1, a2"),
        ("majorty", "majority"),
        ("rest", "target"),
        ("", "target"),
    ],
)
def test_unknown_target(target: str, names: str, message: Messages) -> None:
    with message.of(TargetError) as refused:
        check_target(target, FIVE, ("q1",))
    assert names in str(refused.value)
