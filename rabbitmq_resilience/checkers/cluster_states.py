"""Represent what the network and the nodes may be like at a moment: which nodes run, and which are cut apart."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rabbitmq_resilience.checkers.cut_pairs import Pair

ClusterSide = frozenset[str]


@dataclass(frozen=True)
class ClusterState:
    """A possible state. ``up``: the running nodes. ``cut``: the pairs of nodes that are cut apart."""

    up: ClusterSide
    cut: frozenset[Pair]

    @property
    def components(self) -> tuple[ClusterSide, ...]:
        """Return the running nodes in groups that reach each other, directly or through other nodes."""
        left, groups = set(self.up), []
        while left:
            group, border = set(), {left.pop()}
            while border:
                node = border.pop()
                group.add(node)
                reached = {other for other in left if frozenset((node, other)) not in self.cut}
                border |= reached
                left -= reached
            groups.append(frozenset(group))
        return tuple(sorted(groups, key=sorted))

    def reach_of(self, node: str) -> ClusterSide:
        """Return the running nodes that ``node`` reaches directly, itself included if it runs."""
        return frozenset(other for other in self.up if frozenset((node, other)) not in self.cut)

    def cut_within(self, component: Collection[str]) -> frozenset[Pair]:
        """Return the pairs of the component that are cut apart and reach each other through other nodes."""
        members = frozenset(component)
        return frozenset(pair for pair in self.cut if pair <= members)

    def lost_since(self, before: ClusterState) -> bool:
        """Return whether a node or a link is missing that was there before."""
        return bool(before.up - self.up or self.cut - before.cut)
