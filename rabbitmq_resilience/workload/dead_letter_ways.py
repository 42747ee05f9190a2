"""Find the queues that the dead letters of a workload reach, and what is wrong with their ways."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from rabbitmq_resilience.workload.dead_lettering import DeadLetters
from rabbitmq_resilience.workload.matching import DEFAULT_EXCHANGE, Reached
from rabbitmq_resilience.workload.routing import Routing
from rabbitmq_resilience.workload.workload_fields import WorkloadFields


def problems(letters: DeadLetters, workload: WorkloadFields) -> Iterator[str]:
    """Yield the reasons why this workload cannot have these dead letters."""
    names = [service.name for service in workload.services]
    if letters.to not in names:
        known = ", ".join(names) if names else "none: state services, one of them for the dead letters"
        yield f"dead_letters.to: {letters.to} is no service; the services are {known}"
    elif len(names) == 1:
        yield f"dead_letters.to: {letters.to} is the only service; the messages are published to another one"
    taking = sum(service.queues for service in workload.services if service.name == letters.to)
    if letters.exchange == DEFAULT_EXCHANGE and 2 * taking > workload.queues:
        yield (
            f"dead_letters.to: {letters.to} has {taking} queues and the others {workload.queues - taking}: some "
            "queues would take no dead letters; have no more of them"
        )
    if workload.copy_every is not None:
        yield "dead_letters do not go with copy_every, whose copies are never read"
    if workload.acks == "automatic" and letters.reject_one_in is not None:
        yield "dead_letters.reject_one_in does not go with acks: automatic, which sends no answers: leave one out"
    if workload.confirms != "awaited":
        yield f"dead_letters do not go with confirms: {workload.confirms}: a refused message might have expired"
    if letters.strategy == "at_least_once" and workload.queue_type != "quorum":
        yield f"dead_letters.strategy: at_least_once goes with queue_type: quorum, not {workload.queue_type}"
    yield from letters.problems_of_limits(workload.limits)
    if letters.to in names:
        yield from _problems_of_ways(letters, workload)


def _problems_of_ways(letters: DeadLetters, workload: WorkloadFields) -> Iterator[str]:
    routing = workload.routing
    exchanges = [one.name for one in routing.exchanges] if routing is not None else []
    if letters.exchange == DEFAULT_EXCHANGE and letters.routing_key is not None:
        yield "dead_letters.routing_key goes with an exchange: for the default one the key is the name of a queue"
    elif letters.exchange != DEFAULT_EXCHANGE and letters.exchange not in exchanges:
        known = ", ".join(exchanges) or "none: state them in routing, with bindings to the queues that take them"
        yield f"dead_letters.exchange: {letters.exchange} is no exchange of routing; its exchanges are {known}"
    else:
        yield from _troubles(ways(letters, workload), letters.taking(workload.services), workload)


def ways(letters: DeadLetters, workload: WorkloadFields) -> Mapping[str, set[Reached]]:
    """Return {queue: the places its dead letters reach}, one place for each way its messages are published.

    The queues are those that take no dead letters themselves.
    """
    taking, routing = letters.taking(workload.services), workload.routing
    others = [name for name in workload.queue_names if name not in taking]
    if letters.exchange == DEFAULT_EXCHANGE or routing is None:
        return {name: {Reached(frozenset({taking[n % len(taking)]}))} for n, name in enumerate(others)}
    found: dict[str, set[Reached]] = {name: set() for name in others}
    router = routing.router(workload.queue_names)
    for turn, queues in zip(routing.turns, routing.may_take(workload.queue_names), strict=True):
        key = turn.routing_key if letters.routing_key is None else letters.routing_key
        for queue in queues & found.keys():
            found[queue].add(router.reached(letters.exchange, key, turn.headers))
    return found


def queues_of(letters: DeadLetters, workload: WorkloadFields) -> Mapping[str, tuple[str, ...]]:
    """Return {queue: the queues that take its dead letters, in the order of names}, for published queues."""
    return {name: tuple(sorted(way.queues)) for name, ways in ways(letters, workload).items() for way in ways}


def arguments(letters: DeadLetters, workload: WorkloadFields, queue: str) -> dict[str, object]:
    """Return the arguments to declare a queue with, so that its dead letters are routed."""
    named: dict[str, object] = {"x-dead-letter-exchange": letters.exchange}
    key = letters.routing_key
    if letters.exchange == DEFAULT_EXCHANGE:
        (key,) = queues_of(letters, workload)[queue]
    if key is not None:
        named["x-dead-letter-routing-key"] = key
    if letters.strategy == "at_least_once":
        named |= {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    return named


def _troubles(ways: Mapping[str, set[Reached]], taking: Sequence[str], workload: WorkloadFields) -> Iterator[str]:
    """Yield the reasons why it would be unknown where a dead letter must arrive, or which queue it comes from.

    ``ways``: see ``ways``.
    """
    for queue, its in ways.items():
        if len(its) > 1:
            yield (
                f"dead_letters: those of {queue} would go to different queues by the routing keys of its messages; "
                "give them one (dead_letters.routing_key), or bind all keys alike"
            )
        elif any(way.shards or not way.queues or way.queues - {*taking} for way in its):
            (way,) = its
            there = ", ".join(sorted([*way.queues, *way.shards])) or "no queue, which drops them"
            yield f"dead_letters: those of {queue} would go to {there}; let them go to some of {', '.join(taking)}"
    if workload.routing is None:
        return
    queues_of = {queue: way.queues for queue, its in ways.items() for way in its}
    for group in workload.routing.shards(workload.queue_names).values():
        if len({queues_of.get(queue) for queue in group}) > 1:
            yield f"dead_letters: those of the shards {', '.join(group)} must all go to the same queues"
    for turn, queues in zip(workload.routing.turns, workload.routing.may_take(workload.queue_names), strict=True):
        if published := sorted(queues & {*taking}):
            yield f"routing: {turn.routing_key!r} leads to {published[0]}, which takes dead letters and nothing else"
    yield from _mixed_up(queues_of, workload.routing, workload.queue_names)


def _mixed_up(queues_of: Mapping[str, frozenset[str]], routing: Routing, names: Sequence[str]) -> Iterator[str]:
    """Yield pairs of queues that take the same message, and whose dead letters go to the same queue.

    Two queues of one consistent hash exchange are no such pair.
    """
    group_of = {queue: name for name, group in routing.shards(names).items() for queue in group}
    pairs = {pair for queues in routing.may_take(names) for pair in itertools.combinations(sorted(queues), 2)}
    for one, other in sorted(pairs):
        both = queues_of.get(one, frozenset()) & queues_of.get(other, frozenset())
        if both and group_of.get(one, one) != group_of.get(other, other):
            yield (
                f"dead_letters: a message goes to {one} and to {other}, and {min(both)} would take the dead letters of "
                "both, which do not show where they come from; let them go to different queues"
            )
