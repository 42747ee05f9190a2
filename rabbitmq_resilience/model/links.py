"""Nodes, and the directed links between nodes, clients and load balancers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple


class Node(NamedTuple):
    """One broker. ``name`` is its zone's name and a number (``a1``), unique in its topology."""

    name: str
    zone: str


#: The end of the links that all clients without links of their own share.
ANY_CLIENT = "client:all"


def is_client(name: str) -> bool:
    """Return whether the end of a link is a client or a load balancer, not a broker. Clients are named by role and
    number from 0 (``publisher:0``), load balancers as ``balancer:0``."""
    return ":" in name


def is_balancer(name: str) -> bool:
    return name.startswith("balancer:")


class Link(NamedTuple):
    """One *directed* path between two brokers (by node name), a client and a broker, a client and a load balancer, or a
    load balancer and a broker."""

    source: str
    target: str

    @property
    def back(self) -> Link:
        """Return the link of the other direction."""
        return Link(self.target, self.source)

    @property
    def client(self) -> str | None:
        """Return the end that opens the connections: a client, or a balancer in front of a broker. Return None between
        brokers, as both open connections."""
        return next((end for end in sorted(self, key=is_balancer) if is_client(end)), None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the ends that are brokers."""
        return tuple(end for end in self if not is_client(end))

    @property
    def answering(self) -> str:
        """Return the end that answers a probe over the link; empty if such a link cannot exist (two clients)."""
        balancers = [end for end in self if is_balancer(end)]
        return (self.nodes or (balancers if len(balancers) == 1 else [""]))[-1]

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


def balancers_of(links: Iterable[Link]) -> frozenset[str]:
    """Return the balancers at the ends of links."""
    return frozenset(end for link in links for end in link if is_balancer(end))


def largest_group(names: Collection[str], parted: Collection[frozenset[str]]) -> frozenset[str]:
    """Return the largest group of nodes whose members all reach each other; of several, the first by name.

    ``parted``: the pairs of nodes that do not reach each other in at least one direction.
    """
    apart = {node: {peer for pair in parted if node in pair for peer in pair - {node}} for node in names}

    def grown(left: frozenset[str]) -> frozenset[str]:
        node = max(sorted(left), key=lambda one: len(apart[one] & left), default="")
        if not node or not apart[node] & left:
            return left
        groups = (grown(left - {node}), grown(left - apart[node]))
        return min(groups, key=lambda group: (-len(group), sorted(group)))

    return grown(frozenset(names))


def nodes_treating(links: Collection[Link], *, others: Collection[str] = ()) -> int:
    """Return at how many nodes at most the packets of these links between brokers are treated, and ``others``.

    Kernels treat packets that they send or, elsewhere, those that they receive: the larger number counts.
    """
    ends = ({link.source for link in links}, {link.target for link in links})
    return max(len({*others} | nodes) for nodes in ends)
