"""Which nodes and links a fault acts on, as people write them.

======================  ==========================================================================
``a1``                  the node of that name
``zone:a``              all nodes of the zone
``leader:q1``           the node that leads queue q1 at that moment
``follower:q1``         one of those that follow it then, chosen by the seed
``minority``            as many nodes as leave a majority, chosen by the seed
``majority``            the smallest majority, chosen by the seed
``one``                 one node, chosen by the seed
``all``                 every node
``rest``                as a side: the nodes that no other side names
``publisher:0``         that publisher, ``consumer:0`` that consumer; only at the ends of links
``application:web-0``   that process of the application; only at the ends of links, and of ``kill_client``
``balancer:0``          that load balancer; only of ``kill`` and ``pause``, and at the ends of links
``balancer:all``        every load balancer; only of ``kill`` and ``pause``
``X -> Y``              the links from each node of X to each of Y
``X <-> Y``             the same, in both directions; of more sides, such as ``X <-> Y <-> Z``, those of each pair
======================  ==========================================================================
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.model.links import Link, is_balancer
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.workload.application_model import ROLE
from rabbitmq_resilience.workload.workload_base import WorkloadBase

REST = "rest"
ALL_BALANCERS = "balancer:all"
_NO_NODES = ("publisher", "consumer", ROLE, "balancer")
_CHOSEN_BY_SEED = ("minority", "majority", "one")
_ROLES = ("leader:", "follower:")
_WORDS = (*_CHOSEN_BY_SEED, "all")

#: Return the node that leads a queue now, or None while the queue has no leader.
LeaderOf = Callable[[str], str | None]
#: Return the nodes that follow the leader of a queue now.
FollowersOf = Callable[[str], Sequence[str]]


class TargetError(ValueError):
    """A target that does not fit the topology. The text says which targets would fit."""


@dataclass(frozen=True)
class Resolver:
    """Resolve targets to nodes at the moment of injection."""

    topology: Topology
    leader_of: LeaderOf
    random: random.Random
    followers_of: FollowersOf = lambda _: ()

    @classmethod
    def without_chance(cls, topology: Topology) -> Resolver:
        """Return a resolver for fixed targets only: it knows no leader, and draws nothing."""
        return cls(topology, lambda _: None, random.Random(0))  # noqa: S311 - nothing is drawn

    def nodes(self, target: str) -> tuple[str, ...]:
        """Return the nodes that ``target`` means now, in the topology's order.

        Raise TargetError if ``target`` names a queue that has no leader at the moment.
        """
        names = self.topology.node_names
        if target.startswith("leader:"):
            leader = self.leader_of(target.removeprefix("leader:"))
            if leader is None:
                raise TargetError(f"{target}: the queue has no leader at this moment")
            return (leader,)
        if target.startswith("follower:"):
            followers = self.followers_of(target.removeprefix("follower:"))
            if not followers:
                raise TargetError(f"{target}: no node follows the leader of the queue at this moment")
            return (self.random.choice(sorted(followers)),)
        if target in _CHOSEN_BY_SEED:
            chosen = set(self.random.sample(names, size_of(target, self.topology)))
            return tuple(name for name in names if name in chosen)
        return fixed_nodes(target, self.topology)

    def sides(self, targets: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return one tuple of nodes for each side; ``rest`` takes the nodes that the others leave.

        Raise TargetError if two sides share a node, or if a side has none.
        """
        named = {target: self.nodes(target) for target in targets if target != REST}
        taken = [node for nodes in named.values() for node in nodes]
        shared = sorted({node for node in taken if taken.count(node) > 1})
        if shared:
            raise TargetError(f"{', '.join(shared)} would be on two sides of the cut")
        named[REST] = tuple(name for name in self.topology.node_names if name not in taken)
        if not all(named[target] for target in targets):
            raise TargetError("a side of the cut has no node")
        return tuple(named[target] for target in targets)


def fixed_nodes(target: str, topology: Topology) -> tuple[str, ...]:
    """Return the ends that a fixed target means: a name, a zone or ``all``, which depend on no moment and no chance."""
    if target == "all":
        return topology.node_names
    if target.startswith("zone:"):
        return tuple(node.name for node in topology.nodes if node.zone == target.removeprefix("zone:"))
    return (target,)


def is_fixed(target: str) -> bool:
    return target != REST and target not in _CHOSEN_BY_SEED and not target.startswith(_ROLES)


def _possible_ends(target: str, topology: Topology) -> tuple[str, ...]:
    """Return every end that the target may ever mean."""
    return fixed_nodes(target, topology) if is_fixed(target) else topology.node_names


def possible_nodes(target: str, topology: Topology) -> tuple[str, ...]:
    """Return every node that the target may ever mean."""
    return tuple(node for node in _possible_ends(target, topology) if node in topology.node_names)


def size_of(target: str, topology: Topology) -> int:
    """Return how many nodes a target means that is not ``rest``."""
    if target in _CHOSEN_BY_SEED:
        return _sizes(topology)[target]
    return len(fixed_nodes(target, topology)) if is_fixed(target) else 1


def _sizes(topology: Topology) -> Mapping[str, int]:
    nodes = len(topology.node_names)
    return {"minority": (nodes - 1) // 2, "majority": nodes // 2 + 1, "one": 1}


def names_no_node(target: str) -> bool:
    """Return whether the target is a client or a balancer."""
    return target.partition(":")[0] in _NO_NODES


def balancers_meant(target: str, topology: Topology) -> tuple[str, ...]:
    """Return the load balancers that the target means: one, or all of the topology."""
    return topology.balancer_names if target == ALL_BALANCERS else (target,)


def check_balancer(balancer: str, topology: Topology) -> None:
    """Raise TargetError if the topology has no balancer of that name."""
    there = topology.balancer_names
    if not there:
        raise TargetError(f"{balancer!r}: {topology.name} has no load balancers; give it some (balancers: 2)")
    if balancer not in there:
        raise TargetError(f"{balancer!r} is no balancer of {topology.name}; it has {_listed(there)}")


def check_client(client: str, workload: WorkloadBase) -> None:
    """Raise TargetError if the workload has no client of that name."""
    if problem := workload.client_problem(client):
        raise TargetError(problem)


def check_target(
    target: str,
    topology: Topology,
    queues: Collection[str] | None,
    *,
    rest: bool = False,
    clients_of: WorkloadBase | None = None,
) -> None:
    """Raise TargetError, naming what the topology has, if ``target`` can never be resolved. It may be a client or a
    balancer only if ``clients_of`` is given. ``queues`` is None if they are not known."""
    if clients_of is not None and names_no_node(target):
        if is_balancer(target):
            check_balancer(target, topology)
        else:
            check_client(target, clients_of)
        return
    known = [*topology.node_names, *(f"zone:{zone}" for zone in topology.zones), *_WORDS, *([REST] if rest else [])]
    if target in known:
        if target != REST and not size_of(target, topology):
            few = len(topology.nodes)
            text = f"{target!r} means no node of {topology.name}, which has {few}; of three nodes it would mean one"
            raise TargetError(text)
        return
    kind, _, name = target.partition(":")
    if f"{kind}:" in _ROLES:
        if queues is not None and name not in queues:
            raise TargetError(f"{target!r} names no queue of the workload; it has {_listed(queues)}")
        if target.startswith("follower:") and len(topology.nodes) == 1:
            raise TargetError(f"{target!r}: {topology.name} has one node, so no node follows a leader")
        return
    if kind == "zone":
        raise TargetError(f"{target!r} names no zone of {topology.name}; its zones are {_listed(topology.zones)}")
    near = difflib.get_close_matches(target, known, n=1)
    others = "leader:QUEUE, follower:QUEUE" + (", or a client: publisher:0" if clients_of is not None else "")
    hint = f"; did you mean {near[0]}?" if near else f"; right would be one of {', '.join(known)}, or {others}"
    raise TargetError(f"{target!r} is no target in {topology.name}{hint}")


def node_problems(target: str, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
    """Return what is wrong with the field ``node`` of a step, in the form that ``problems`` returns."""
    try:
        check_target(target, topology, workload.queue_names)
    except TargetError as error:
        return {"node": str(error)}
    return {}


def check_links(
    expression: str, topology: Topology, queues: Collection[str] | None, clients_of: WorkloadBase | None
) -> None:
    """Raise TargetError if a link expression is malformed or can never be resolved; see ``check_target``."""
    sides, _ = split_links(expression)
    for side in sides:
        check_target(side, topology, queues, rest=True, clients_of=clients_of)
    if sides.count(REST) > 1:
        raise TargetError(f"{expression!r} has rest as two sides: it is what the others leave")
    links = fixed_links(expression, topology)
    if not links:
        raise TargetError(f"{expression!r} names no link: both ends are the same node, or clients")
    check_ways(links, topology)


def check_ways(links: Collection[Link], topology: Topology) -> None:
    """Raise TargetError for a link of a client over which it never connects."""
    unused = [link for link in sorted(links) if not topology.has_link(link)]
    if unused and topology.balancers:
        ways = _listed(topology.balancer_names)
        raise TargetError(f"{unused[0]} is no link in {topology.name}: clients connect to {ways}; name one of these")


def resolved_links(expression: str, resolver: Resolver) -> frozenset[Link]:
    """Return the directed links of ``X -> Y`` or ``X <-> Y``, resolved now."""
    sides, both = split_links(expression)
    ends = resolver.sides(sides) if REST in sides else [resolver.nodes(side) for side in sides]
    return links_between(ends, one_way=not both)


def fixed_links(expression: str, topology: Topology) -> frozenset[Link]:
    """Return all links that the expression can ever mean. An end that is not fixed may be any node."""
    sides, both = split_links(expression)
    if REST in sides and all(side == REST or is_fixed(side) for side in sides):
        return links_between(Resolver.without_chance(topology).sides(sides), one_way=not both)
    return possible_links(sides, topology, one_way=not both)


def possible_links(sides: Sequence[str], topology: Topology, *, one_way: bool = False) -> frozenset[Link]:
    """Return all links between the targets, even if they are not fixed. A target that is not fixed may be any node."""
    return links_between([_possible_ends(side, topology) for side in sides], one_way=one_way)


def links_between(sides: Sequence[Sequence[str]], *, one_way: bool = False) -> frozenset[Link]:
    """Return the links of every pair of ends on different sides, in both directions.

    With ``one_way``, a side has links only to the sides after it. Two clients or two balancers have no link to each
    other, and no end has a link to itself."""
    return frozenset(
        link
        for i, one in enumerate(sides)
        for j, other in enumerate(sides)
        if (i < j if one_way else i != j)
        for link in (Link(a, b) for a in one for b in other if a != b)
        if link.answering
    )


def split_links(expression: str) -> tuple[list[str], bool]:
    """Return the sides of a link expression, and whether it means both directions. Raise TargetError if it is
    malformed."""
    both = "<->" in expression
    sides = [side.strip() for side in expression.split("<->" if both else "->")]
    if len(sides) < 2 or not all(sides) or any("->" in side for side in sides) or (len(sides) > 2 and not both):
        raise TargetError(f"{expression!r} is no link; write it as 'zone:a -> zone:b', or with <-> for both directions")
    return sides, both


def _listed(names: Collection[str]) -> str:
    shown = list(names)[:8]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "")
