"""Compute the queues that a message is routed to, by AMQP's rules and RabbitMQ's alternate exchanges.

Sources: AMQP 0-9-1, section 3.1.3 (exchange types); RabbitMQ, "Exchanges", "Alternate Exchanges" and "Consistent Hash
Exchange". A headers exchange matches strings with strings; it ignores headers whose names begin with ``x-``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

ExchangeType = Literal["direct", "topic", "fanout", "headers", "consistent_hash"]

#: The exchange that routes to the queue whose name is the routing key.
DEFAULT_EXCHANGE = ""

Headers = Mapping[str, str]


class Bound(NamedTuple):
    """One binding, as a broker keeps it.

    ``headers`` are the pairs that a headers exchange looks for; ``match`` says if all or any of them must match.
    """

    exchange: str
    destination: str
    to_exchange: bool
    routing_key: str
    headers: tuple[tuple[str, str], ...] = ()
    match: str = "all"


@dataclass(frozen=True)
class Reached:
    """The queues that one message goes to.

    The message goes to each of the ``queues``, and to exactly one queue of each consistent hash exchange in ``shards``.
    Only the broker knows to which one.
    """

    queues: frozenset[str] = frozenset()
    shards: frozenset[str] = frozenset()


class Router:
    """A router of messages over ``exchanges``, {name: (type, alternate exchange or None)}, and their bindings."""

    def __init__(self, exchanges: Mapping[str, tuple[ExchangeType, str | None]], bindings: Iterable[Bound]) -> None:
        self._exchanges = exchanges
        #: Bindings that take one routing key, by exchange and key, so that few of thousands must be looked at.
        self._by_key: defaultdict[tuple[str, str], list[Bound]] = defaultdict(list)
        self._others: defaultdict[str, list[Bound]] = defaultdict(list)
        for bound in bindings:
            kind = exchanges[bound.exchange][0]
            if kind == "direct" or (kind == "topic" and not _has_wildcard(bound.routing_key)):
                self._by_key[bound.exchange, bound.routing_key].append(bound)
            else:
                self._others[bound.exchange].append(bound)

    def reached(self, exchange: str, routing_key: str, headers: Headers) -> Reached:
        """Return the queues that a message to that exchange goes to; the exchange may be the default one."""
        if exchange == DEFAULT_EXCHANGE:
            return Reached(frozenset({routing_key}))
        queues: set[str] = set()
        shards: set[str] = set()
        seen, waiting = {exchange}, [exchange]
        while waiting:
            name = waiting.pop()
            kind, alternate = self._exchanges[name]
            taking = [] if kind == "consistent_hash" else self._taking(name, kind, routing_key, headers)
            if kind == "consistent_hash" and self._others[name]:
                shards.add(name)
            elif taking:
                queues |= {bound.destination for bound in taking if not bound.to_exchange}
            follows = {bound.destination for bound in taking if bound.to_exchange}
            if not taking and name not in shards and alternate is not None:
                follows = {alternate}
            waiting += follows - seen
            seen |= follows
        return Reached(frozenset(queues), frozenset(shards))

    def _taking(self, exchange: str, kind: ExchangeType, routing_key: str, headers: Headers) -> list[Bound]:
        """Return the bindings of the exchange that the message matches."""
        by_key = self._by_key.get((exchange, routing_key), [])
        return by_key + [bound for bound in self._others[exchange] if _takes(bound, kind, routing_key, headers)]


def _has_wildcard(pattern: str) -> bool:
    return any(word in ("*", "#") for word in words(pattern))


def _takes(bound: Bound, kind: ExchangeType, routing_key: str, headers: Headers) -> bool:
    match kind:
        case "topic":
            return topic_matches(words(bound.routing_key), words(routing_key))
        case "headers":
            found = [headers.get(name) == value for name, value in bound.headers]
            return all(found) if bound.match == "all" else any(found)
        case "fanout":
            return True
        case _:
            return bound.routing_key == routing_key


def words(key: str) -> list[str]:
    """Return the words between the dots of a topic's key or pattern; an empty key has no word."""
    return key.split(".") if key else []


def topic_matches(pattern: list[str], key: list[str]) -> bool:
    """Return whether the pattern matches the key: ``*`` is one word, ``#`` is any number of words."""
    #: Whether the words of the pattern so far match the first 0, 1, ... words of the key.
    matched = [True] + [False] * len(key)
    for word in pattern:
        if word == "#":
            begins = matched.index(True) if True in matched else len(matched)
            matched = [place >= begins for place in range(len(matched))]
        else:
            matched = [False, *(before and word in ("*", its) for before, its in zip(matched, key, strict=False))]
    return matched[-1]
