"""Convert an effect on links for checkers: pairs of brokers, and clients with the ends that they lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import is_balancer, is_client

Pair = frozenset[str]


def slow_s(effect: Effect) -> Mapping[Pair, float]:
    """Return for each pair of nodes the added delay of messages, there and back together, in seconds."""
    ends = Counter(frozenset(link) for link in effect.links_slow if not any(map(is_client, link)))
    return {pair: ways * effect.slow_s for pair, ways in ends.items() if effect.slow_s}


def clients_cut(links: Iterable[Sequence[str]]) -> Mapping[str, frozenset[str]]:
    """Return what each client (``publisher:0``) or load balancer is cut off from, in at least one direction.

    Clients are cut off from nodes and load balancers, load balancers from nodes.
    """
    cut = [(client, node) for client, node in (sorted(link, key=_far_from_brokers, reverse=True) for link in links)]
    clients = {client for client, _ in cut if is_client(client)}
    return {client: frozenset(node for one, node in cut if one == client) for client in clients}


def _far_from_brokers(end: str) -> int:
    """Return the distance of a link's end from brokers: 0 for a broker, 1 for a load balancer, 2 for a client."""
    return is_client(end) + (is_client(end) and not is_balancer(end))


def pairs(links: Iterable[Sequence[str]]) -> frozenset[Pair]:
    """Return the links between brokers as pairs without direction; links of clients are left out.

    A connection needs both directions, so a link that is cut one way is cut.
    """
    return frozenset(frozenset(link) for link in links if not any(map(is_client, link)))
