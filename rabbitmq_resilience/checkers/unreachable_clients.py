"""Find when steps of the schedule kept clients away from the brokers.

If no publisher could reach a queue, it stands still without a fault of the brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rabbitmq_resilience.checkers.application_connections import connections_of
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.fault_timeline import truth_of
from rabbitmq_resilience.checkers.message_ledger import Ledger
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.pauses import pauses_of
from rabbitmq_resilience.checkers.times import NEVER, Period, Times, at_least, later, times, union
from rabbitmq_resilience.history.events import ApplicationUseEvent, ClusterEvent, LoadEvent

_PUBLISHER = "publisher"
#: A process of an application that has had no connection for this long does not try to connect.
IDLES_FROM_S = 5.0
_CHANGES = ("injecting", "injected", "healing", "healed")


@dataclass(frozen=True)
class KeptAway:
    """The times in which steps left clients of a role no broker that had to serve them. If a broker had to serve a
    client, and the client could not connect, that is the brokers' fault and not part of these times.

    ``of`` has, by number, each client that was killed on purpose, until it was started again; that had no way to a
    node; that keeps to a zone without a serving node; or that is a process of an application and did not try to connect
    for over 5 s. ``others``: the times for all other clients. A node is no way
    while a step has taken it away, while it pauses for a reason, and while a link to it is cut. A load balancer without
    a usable node is no way either.
    """

    of: Mapping[int, Times]
    others: Times

    def when(self, number: int) -> Times:
        """Return the times in which the client of that number was kept away."""
        return self.of.get(number, self.others)


def kept_away(facts: Facts, role: str = _PUBLISHER) -> KeptAway:
    """Return when steps kept the clients of a role away; computed once."""
    return facts.once(_kept_away, role)


def _kept_away(facts: Facts, role: str) -> KeptAway:
    ways, absent = _ways(facts), _not_serving(facts)

    def without(client: str, addresses: Mapping[str, frozenset[str]]) -> Times:
        """Return when the client had no way through any of these addresses."""
        lost = [
            _cut_off(facts, client, address)
            | at_least(len(nodes), [absent.get(n, NEVER) | _cut_off(facts, address, n) for n in sorted(nodes)])
            for address, nodes in addresses.items()
        ]
        return at_least(len(lost), lost) if lost else NEVER

    others = without("", ways)
    of_application = _processes(facts, role)
    found = {number: without(f"{role}:{number}", ways) for number in _cut_clients(facts, role)}
    found |= {number: without(client, ways) for number, client in of_application.items()}
    for number, mine in _of_own_zone(facts, ways).items() if role == _PUBLISHER else ():
        found[number] = without(f"{role}:{number}", mine)
    for number, client in of_application.items() if role == _PUBLISHER else ():
        found[number] |= times(_unconnected(facts, client.partition(":")[2]))
    for number, spans in _killed(facts, role).items():
        found[number] = found.get(number, others) | times(spans)
    return KeptAway({number: when for number, when in found.items() if not when.empty}, others)


def _ways(facts: Facts) -> Mapping[str, frozenset[str]]:
    """Return the addresses that clients connect to, each with the nodes behind it."""
    recorded = next((event.addresses for event in facts.of_kind(ClusterEvent)), {})
    nodes = facts.cluster.nodes if facts.cluster else ()
    found = {address: frozenset(behind) for address, behind in recorded.items()}
    return found or {node: frozenset({node}) for node in nodes}


def _processes(facts: Facts, role: str) -> Mapping[int, str]:
    """Return the clients of a role that are processes of the user's application, by number, as steps name them."""
    use = next(facts.of_kind(ApplicationUseEvent), None)
    processes = use.processes if use is not None else {}
    return {of[role]: f"application:{name}" for name, of in processes.items() if of[role] is not None}


def _unconnected(facts: Facts, process: str) -> Iterator[Period]:
    """Yield the times, long enough to count, in which a process did not even try to connect."""
    edges_us = [facts.origin_us, *(facts.publishing_us or ())[1:]]
    mine = [c for c in connections_of(facts) if c.process == process]
    if not mine:
        return
    ended_us: float = edges_us[0]
    for connection in mine:
        if connection.opened_us - ended_us > IDLES_FROM_S * 1e6:
            yield ended_us, connection.opened_us
        ended_us = max(ended_us, connection.closed_us)
    if ended_us < edges_us[-1] - IDLES_FROM_S * 1e6:
        yield ended_us, NEVER_US


def _cut_clients(facts: Facts, role: str) -> set[int]:
    named = (client.partition(":") for step in facts.steps for client in step.clients_cut)
    return {int(number) for kind, _, number in named if kind == role and number.isdigit()}


def _of_own_zone(facts: Facts, ways: Mapping[str, frozenset[str]]) -> Mapping[int, Mapping[str, frozenset[str]]]:
    """Return the ways of each publisher that connects only to nodes of its own zone."""
    zones = next((event.nodes for event in facts.of_kind(ClusterEvent)), {})
    load = next((event for event in facts.of_kind(LoadEvent) if event.reconnect == "own_zone"), None)
    homes = list(ways)
    if load is None or not homes:
        return {}
    zone_of = {number: zones.get(homes[number % len(homes)]) for number in range(load.publishers or 0)}
    return {number: {n: ways[n] for n in homes if zones.get(n) == zone} for number, zone in zone_of.items()}


def _not_serving(facts: Facts) -> Mapping[str, Times]:
    """Return when each node did not serve: a step had taken it away, or it paused for a reason."""
    cluster, span_us = facts.cluster, facts.publishing_us
    if cluster is None:
        return {}
    away = {node: both.possibly for node, both in truth_of(facts, cluster).away.items()}
    for pause in pauses_of(facts, cluster, span_us).excused if span_us else ():
        away |= {node: away[node] | times([pause.possible_us]) for node in pause.down}
    return away


def _cut_off(facts: Facts, client: str, end: str) -> Times:
    """Return when steps may have cut the client or balancer off from the node or balancer ``end``."""
    return times(s.possible_us for s in facts.steps if end in s.clients_cut.get(client, ()))


def _killed(facts: Facts, role: str) -> Mapping[int, list[Period]]:
    killed_us: dict[int, int] = {}
    found: dict[int, list[Period]] = {}
    for client, event in facts.of_clients(role):
        if event.event == "killed":
            killed_us.setdefault(client, event.t_us)
        elif event.event == "started" and client in killed_us:
            found.setdefault(client, []).append((killed_us.pop(client), event.t_us))
    for client, start_us in killed_us.items():
        found.setdefault(client, []).append((start_us, NEVER_US))
    return found


def publishers_cut_off(facts: Facts, ledger: Ledger, queue: int) -> Times:
    """Return when all publishers that ever published to the queue of that index were kept away."""
    away = kept_away(facts)
    if not away.of and away.others.empty:
        return NEVER
    its = [
        number
        for number, messages in ledger.messages.items()
        if any((lane.queue[lane.there] == queue).any() for lane in messages.lanes)
    ]
    return at_least(len(its), [away.when(number) for number in its]) if its else NEVER


def publishers_reconnecting(facts: Facts, *, within_s: float) -> Times:
    """Return when publishers may have had to connect again.

    That is while any publisher was kept away, and ``within_s`` after that. It is also ``within_s`` after a step cut a
    publisher or a balancer off from one of its addresses, or restored it: clients notice that, and go another way.
    """
    away = kept_away(facts)
    steps = [step for step in facts.steps if any(not client.startswith("consumer") for client in step.clients_cut)]
    moments = [step.states[end] for step in steps for end in _CHANGES if end in step.states]
    changing = times((at_us, at_us + within_s * 1e6) for at_us in moments)
    flapping = times(step.possible_us for step in steps if step.effect.intermittent)
    return later(union([*away.of.values(), away.others, flapping]), end_us=within_s * 1e6) | changing
