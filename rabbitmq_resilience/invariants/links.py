"""What an effect does to links, in the form that checkers ask for: pairs of brokers, and clients by themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rabbitmq_resilience.clusters.spec import is_balancer, is_client
from rabbitmq_resilience.record.events import Effect

Pair = frozenset[str]


def slow_s(effect: Effect) -> Mapping[Pair, float]:
    """By how much messages between two nodes are later, there and back together, in seconds."""
    ends = Counter(frozenset(link) for link in effect.links_slow if not any(map(is_client, link)))
    return {pair: ways * effect.slow_s for pair, ways in ends.items() if effect.slow_s}


def clients_cut(links: Iterable[Sequence[str]]) -> Mapping[str, frozenset[str]]:
    """Of clients (``publisher:0``) the nodes and load balancers that they are cut off from, one way at least, and of
    load balancers the nodes."""
    cut = [(client, node) for client, node in (sorted(link, key=_far_from_brokers, reverse=True) for link in links)]
    clients = {client for client, _ in cut if is_client(client)}
    return {client: frozenset(node for one, node in cut if one == client) for client in clients}


def _far_from_brokers(end: str) -> int:
    """A broker, a load balancer before it, a client before that."""
    return is_client(end) + (is_client(end) and not is_balancer(end))


def pairs(links: Iterable[Sequence[str]]) -> frozenset[Pair]:
    """Links between brokers without their direction: a connection needs both, so one that is cut one way is cut. A
    client's link parts no brokers, and is none of them."""
    return frozenset(frozenset(link) for link in links if not any(map(is_client, link)))
