"""How many nodes a schedule may act on at the same time, compared with all possibilities, one by one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator

import pytest

from rabbitmq_resilience.extensions.attached.at_once import most_at_once
from rabbitmq_resilience.extensions.attached.held_links import out_of_reach
from rabbitmq_resilience.model.links import Link, largest_group, nodes_treating
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Scenario

NODES = ("a1", "b1", "c1", "d1", "e1")
HEAD = """
version: 1
title: At once
topology: {name: five, zones: {a: 1, b: 1, c: 1, d: 1, e: 1}, partition_handling: pause_minority, net_ticktime_s: 5}
workload: {queue_type: quorum, queues: 1, publishers: 1, consumers: 1, rate_per_s: 10}
schedule:
"""
REST = "\ninvariants: {no_loss: {}}\n"


def scenario(*steps: str) -> Scenario:
    return fault_file.parse(HEAD + "\n".join(f"  - {{{step}}}" for step in steps) + REST, driver="attached")


def whole_groups(parted: Collection[frozenset[str]]) -> Iterator[tuple[str, ...]]:
    for size in range(len(NODES), 0, -1):
        for group in itertools.combinations(NODES, size):
            if not any(frozenset(pair) in parted for pair in itertools.combinations(group, 2)):
                yield group


def test_the_largest_group_reaches_itself_for_all_sets_of_pairs() -> None:
    pairs = [frozenset(pair) for pair in itertools.combinations(NODES, 2)]
    for chosen in range(2 ** len(pairs)):
        parted = {pair for i, pair in enumerate(pairs) if chosen >> i & 1}
        first = next(whole_groups(parted))
        assert largest_group(NODES, parted) == set(first)
        assert out_of_reach(NODES, [Link(*sorted(pair)) for pair in parted]) == max(1, len(NODES) - len(first))


@pytest.mark.parametrize("count", range(2, 6))
@pytest.mark.parametrize("rest", [False, True])
def test_sides_count_as_the_links_that_they_cut(count: int, rest: bool) -> None:
    between = (*NODES[:count], *(["rest"] if rest and count < len(NODES) else []))
    step = Partition(fault="partition", at_s=1, for_s=20, between=between)
    footprint = step.footprint(scenario("at_s: 1, for_s: 20, fault: kill, node: a1").topology)
    parted = {frozenset(link) for link in footprint.links}
    assert footprint.acts == {"cut": max(1, len(NODES) - len(next(whole_groups(parted))))}


@pytest.mark.parametrize(
    ("steps", "acts", "expected"),
    [
        (["at_s: 2, for_s: 20, fault: latency, links: a1 <-> b1, latency_ms: 100"], {"delay"}, ((0,), 2)),
        (["at_s: 2, for_s: 20, fault: latency, links: a1 -> b1, latency_ms: 100"], {"delay"}, ((0,), 1)),
        (
            [
                "at_s: 2, for_s: 20, fault: latency, links: a1 <-> b1, latency_ms: 100",
                "at_s: 5, for_s: 20, fault: latency, links: c1 <-> d1, latency_ms: 100",
            ],
            {"delay"},
            ((0, 1), 4),
        ),
        (
            [
                "at_s: 2, for_s: 20, fault: kill, node: a1",
                "at_s: 5, for_s: 20, fault: latency, links: c1 <-> d1, latency_ms: 100",
            ],
            {"kill", "delay"},
            ((0, 1), 3),
        ),
        (["at_s: 2, for_s: 20, fault: partition, between: [a1, b1, c1, d1]"], {"cut"}, ((0,), 3)),
    ],
)
def test_links_count_by_their_ends(steps: list[str], acts: set[str], expected: tuple[tuple[int, ...], int]) -> None:
    found = most_at_once(scenario(*steps), acts)
    assert found is not None
    assert (found.steps, found.nodes) == expected


def test_packets_are_treated_at_one_end_of_each_link() -> None:
    links = {Link("a1", "b1"), Link("a1", "c1")}
    assert nodes_treating(links) == 2
    assert nodes_treating({link.back for link in links}) == 2
    assert nodes_treating(links, others=["a1", "e1"]) == 4


def drawn_steps(source: random.Random) -> list[str]:
    """Return steps that begin at times or on conditions, some after earlier ones; a step kills one node."""
    steps = []
    for number in range(source.randint(2, 6)):
        when = source.choice(["at", "state", "after"])
        if when == "at":
            begin = f"at_s: {source.randint(1, 90)}"
        elif when == "state" or number == 0:
            begin = "when: {node_is: {node: e1, state: up}}"
        else:
            begin = f"when: {{after_step: {{step: {source.randrange(number)}}}}}"
        steps.append(f"{begin}, for_s: {source.randint(5, 40)}, fault: kill, node: {source.choice(NODES)}")
    return steps


def most_killed(of: Scenario) -> int:
    """Return the most nodes that steps which may all overlap kill, by trying all sets of steps."""
    schedule = of.schedule

    def awaited(i: int) -> set[int]:
        when = schedule[i].when
        if when is None or when.after_step is None:
            return set()
        return {when.after_step.step, *awaited(when.after_step.step)}

    def overlap(i: int, j: int) -> bool:
        if i in awaited(j) or j in awaited(i):
            return False
        one, two = schedule[i], schedule[j]
        if one.at_s is None or one.ends_s is None or two.at_s is None or two.ends_s is None:
            return True
        return one.at_s <= two.ends_s and two.at_s <= one.ends_s

    most = 0
    for size in range(1, len(schedule) + 1):
        for group in itertools.combinations(range(len(schedule)), size):
            if all(overlap(i, j) for i, j in itertools.combinations(group, 2)):
                steps = [schedule[i] for i in group]
                most = max(most, len({step.node for step in steps if isinstance(step, Kill)}))
    return most


def test_steps_that_wait_for_others_count_as_in_all_sets_of_steps() -> None:
    source = random.Random(4711)  # noqa: S311 - it draws cases
    counted = 0
    while counted < 80:
        try:
            of = scenario(*drawn_steps(source))
        except fault_file.FaultFileError:
            continue
        counted += 1
        found = most_at_once(of, {"kill"})
        assert found is not None
        assert found.nodes == most_killed(of)
