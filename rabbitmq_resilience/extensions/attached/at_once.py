"""Count at how many nodes the steps of a schedule may act at the same time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.extensions.attached.held_links import out_of_reach
from rabbitmq_resilience.model.actions import ACTIONS
from rabbitmq_resilience.model.links import nodes_treating
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.scenario.model import Scenario

#: Acts that count the nodes that a cut separates, by pairs.
_PARTING = frozenset(verb for verb, action in ACTIONS.items() if action.parts)


@dataclass(frozen=True)
class Together:
    """The numbers of steps, and the number of nodes at which they may act at once."""

    steps: tuple[int, ...]
    nodes: int


def most_at_once(scenario: Scenario, acts: Collection[str]) -> Together | None:
    """Return the steps that may act at the most nodes at once, among those that do one of ``acts``; None if none does.

    A step that waits for a condition may begin at any time, but not before the steps that it waits for are healed."""
    footprints = scenario.footprints
    doing = [i for i, step in enumerate(footprints) if acts & step.acts.keys()]
    groups = _groups(scenario.schedule, doing)
    found = [Together(group, _nodes(scenario.topology, [footprints[i] for i in group], acts)) for group in groups]
    return max(found, key=lambda one: (one.nodes, -len(one.steps)), default=None)


def _groups(schedule: Sequence[AnyFault], doing: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the groups of steps that may all be at work at one moment, and to which no other step can be added."""
    meets = {i: {j for j in doing if j != i and _may_meet(schedule, i, j)} for i in doing}

    def grown(group: tuple[int, ...], more: set[int], seen: set[int]) -> Iterator[tuple[int, ...]]:
        """Yield the groups with all of ``group``, some of ``more`` and none of ``seen`` (Bron and Kerbosch, 1973)."""
        if not more and not seen:
            yield tuple(sorted(group))
            return
        pivot = max(more | seen, key=lambda i: len(meets[i] & more))
        for i in sorted(more - meets[pivot]):
            yield from grown((*group, i), more & meets[i], seen & meets[i])
            more, seen = more - {i}, seen | {i}

    if doing:
        yield from grown((), set(doing), set())


def _there(schedule: Sequence[AnyFault], j: int, i: int) -> bool:
    """Return whether step ``j`` may be at work, or just be healed, when step ``i`` begins."""
    step, begins_s = schedule[j], schedule[i].at_s
    if step.at_s is None or step.ends_s is None or begins_s is None:
        return True
    return step.at_s <= begins_s <= step.ends_s


def _may_meet(schedule: Sequence[AnyFault], i: int, j: int) -> bool:
    if i in _awaited(schedule, j) or j in _awaited(schedule, i):
        return False
    return _there(schedule, i, j) or _there(schedule, j, i)


def _awaited(schedule: Sequence[AnyFault], i: int) -> Iterator[int]:
    """Yield the steps that are healed before step ``i`` begins."""
    when = schedule[i].when
    while when is not None and when.after_step is not None:
        yield when.after_step.step
        when = schedule[when.after_step.step].when


def _nodes(topology: Topology, steps: Sequence[Footprint], acts: Collection[str]) -> int:
    """Return the number of nodes, exactly if all targets are stated. Otherwise each step may have drawn other nodes."""
    doing = {act for step in steps for act in step.acts if act in acts}
    counts = [max(n for act, n in step.acts.items() if act in acts) for step in steps]
    most = min(len(topology.node_names), sum(counts))
    if len(steps) == 1 or not all(step.targets and step.is_fixed for step in steps):
        return most
    if doing <= _PARTING:
        links = {link for step in steps for link in step.links if link.client is None}
        return min(most, out_of_reach(topology.node_names, links))
    if not doing & _PARTING:
        nodes = {node for step in steps for node in step.acted_on}
        links = {link for step in steps for link in step.links | step.packets if link.client is None}
        return min(most, nodes_treating(links, others=nodes))
    return most
