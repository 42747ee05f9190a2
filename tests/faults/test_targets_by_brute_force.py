"""Targets, sides and links for any topology; and which links are cut, for any overlap of faults."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import CutCount
from rabbitmq_resilience.nemesis.targets import (
    Resolver,
    TargetError,
    check_target,
    fixed_links,
    links_between,
    resolved_links,
)

TOPOLOGIES = [topology_catalogue.load(name) for name in topology_catalogue.names()]
topologies = st.sampled_from(TOPOLOGIES)


#: How many nodes there must be for some targets to mean any.
NODES_MIN = {"minority": 3, "follower:q1": 2}


def targets(topology: Topology) -> st.SearchStrategy[str]:
    zones = [f"zone:{zone}" for zone in topology.zones]
    words = ["minority", "majority", "one", "all", "leader:q1", "follower:q1"]
    named = [*topology.node_names, *zones, *words]
    return st.sampled_from([target for target in named if len(topology.nodes) >= NODES_MIN.get(target, 1)])


@st.composite
def resolvers(draw: st.DrawFn, topology: Topology) -> Resolver:
    leader = draw(st.sampled_from(topology.node_names))
    followers = [node for node in topology.node_names if node != leader]
    luck = random.Random(draw(st.integers(0, 10**6)))  # noqa: S311 - no secret
    return Resolver(topology, lambda _: leader, luck, lambda _: followers)


@given(st.data())
def test_a_target_that_is_accepted_means_some_of_the_nodes_each_once(data: st.DataObject) -> None:
    topology = data.draw(topologies)
    target = data.draw(targets(topology))
    check_target(target, topology, ("q1",))
    nodes = data.draw(resolvers(topology)).nodes(target)
    assert nodes
    assert list(nodes) == [node for node in topology.node_names if node in nodes]
    half = len(topology.nodes) / 2
    if target == "majority":
        assert half < len(nodes) <= half + 1
    if target == "minority":  # as many as leave a majority
        assert len(topology.nodes) - len(nodes) > half >= len(topology.nodes) - len(nodes) - 1


@pytest.mark.parametrize("target", NODES_MIN)
@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: topology.name)
def test_a_target_that_means_no_node_is_refused(topology: Topology, target: str) -> None:
    if len(topology.nodes) >= NODES_MIN[target]:
        check_target(target, topology, ("q1",))
    else:
        with pytest.raises(TargetError, match=topology.name):
            check_target(target, topology, ("q1",))


@given(st.data())
def test_sides_share_no_node_and_rest_is_what_they_leave(data: st.DataObject) -> None:
    topology = data.draw(topologies)
    named = data.draw(st.lists(targets(topology), min_size=1, max_size=3, unique=True))
    try:
        sides = data.draw(resolvers(topology)).sides([*named, "rest"])
    except TargetError as error:
        assert "two sides" in str(error) or "no node" in str(error)
        return
    everybody = list(itertools.chain(*sides))
    assert sorted(everybody) == sorted(topology.node_names)
    assert all(sides)


@given(st.lists(st.sets(st.integers(0, 9), min_size=1), min_size=2, max_size=4), st.booleans())
def test_links_are_all_pairs_across(numbers: Sequence[set[int]], one_way: bool) -> None:
    """Ends 0 to 2 are clients, which have links to nodes only."""
    names = [f"publisher:{i}" if i < 3 else f"n{i}" for i in range(10)]
    sides = [tuple(names[i] for i in sorted(side)) for side in numbers]
    expected = set()
    for a, b in itertools.permutations(names, 2):
        clients = a.startswith("publisher") and b.startswith("publisher")
        places = [(i, j) for i, one in enumerate(sides) for j, two in enumerate(sides) if a in one and b in two]
        if not clients and any(i < j if one_way else i != j for i, j in places):
            expected.add(Link(a, b))
    assert links_between(sides, one_way=one_way) == expected


@given(st.data())
def test_what_links_mean_now_is_among_what_they_may_ever_mean(data: st.DataObject) -> None:
    """The proxies of a run are placed by the latter, before anybody knows the former."""
    topology = data.draw(topologies)
    ends = data.draw(st.tuples(targets(topology), targets(topology)))
    text = data.draw(st.sampled_from([" -> ", " <-> "])).join(ends)
    now = resolved_links(text, data.draw(resolvers(topology)))
    assert now <= fixed_links(text, topology)
    if "<->" in text:
        assert {link.back for link in now} == now


LINKS = [Link(a, b) for a, b in itertools.permutations(("a1", "b1", "c1"), 2)]


@given(st.lists(st.tuples(st.sets(st.sampled_from(LINKS), min_size=1), st.integers(0, 9), st.integers(1, 9))))
def test_a_link_is_cut_as_long_as_any_fault_cuts_it(faults: list[tuple[set[Link], int, int]]) -> None:
    """Against a table of moments; what is told to cut and restore adds up to the same."""
    count = CutCount()
    cut: set[Link] = set()

    def add(links: Collection[Link]) -> None:
        cut.update(links)

    def restore(links: Collection[Link]) -> None:
        assert set(links) <= cut, "restored though it was whole"
        cut.difference_update(links)

    for now in range(20):
        for links, at, lasts in faults:
            if at + lasts == now:
                count.remove(links, restore)
        for links, at, _ in faults:
            if at == now:
                count.add(links, add)
        expected = {link for links, at, lasts in faults if at <= now < at + lasts for link in links}
        assert cut == expected
        assert {link for link in LINKS if count.is_cut(link)} == expected
