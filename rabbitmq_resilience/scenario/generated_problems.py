"""Find what is wrong with a scenario whose load this suite generates."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from rabbitmq_resilience.checkers.latency_bound import LatencyBound, LatencyBounds
from rabbitmq_resilience.checkers.order import Order
from rabbitmq_resilience.model.links import ANY_CLIENT, Link
from rabbitmq_resilience.model.yaml_files import Location
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.targets import TargetError, check_target
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.sut.drivers import DRIVERS
from rabbitmq_resilience.workload.dead_lettering import AGAIN_AFTER_S
from rabbitmq_resilience.workload.limits import Limits
from rabbitmq_resilience.workload.load import share
from rabbitmq_resilience.workload.services import Service
from rabbitmq_resilience.workload.workload_model import Workload


def generated_problems(scenario: Scenario, driver: str | None) -> Iterator[tuple[Location, str]]:
    """Yield a load that does not fit the topology, the phases, this machine or what is demanded of it."""
    if scenario.topology.client_tls:
        text = "TLS of clients ends at the tap, which only the user's own program has; leave it out, or write"
        yield ("topology", "client_tls"), f"{text} workload: {{kind: application, ...}}"
    yield from placement_problems(scenario)
    yield from _load_problems(scenario)
    yield from _balancer_problems(scenario)
    yield from _limit_problems(scenario, driver)
    yield from _consumer_problems(scenario)
    demanded = [name for name in ("availability", "throughput") if name in scenario.chosen_invariants]
    unserved = sorted(_without_publisher(scenario)) if demanded else []
    if unserved:
        text = f"{' and '.join(demanded)} cannot be judged while no publisher sends to {', '.join(unserved[:5])}"
        yield ("workload", "publishers"), f"{text}; have more publishers, so that each queue keeps one on every side"
    if "metadata" in scenario.chosen_invariants and scenario.generated.declare_every_s is None:
        text = "the invariant metadata is demanded, and nothing would be declared; say how often, such as 0.5"
        yield ("workload", "declare_every_s"), text
    yield from _dead_letter_problems(scenario, demanded)


def _balancer_problems(scenario: Scenario) -> Iterator[tuple[Location, str]]:
    workload = scenario.generated
    if not scenario.topology.balancers:
        return
    if workload.owned:
        field = "exclusive" if workload.exclusive else "redeclare"
        text = "a queue that its consumer declares is at the node of that, which a balancer chooses"
        yield ("workload", field), f"{text}; take a topology without balancers"
    if workload.reconnect == "own_zone":
        text = "balancers are in no zone, and choose the node of a client"
        yield ("workload", "reconnect"), f"{text}; write reconnect: anywhere, or take a topology without them"


def _dead_letter_problems(scenario: Scenario, confirming: Sequence[str]) -> Iterator[tuple[Location, str]]:
    """Yield problems with dead letters. ``confirming`` are the demanded invariants that need confirms."""
    letters, limits = scenario.generated.dead_letters, scenario.generated.limits
    if letters is None:
        if "dead_letters" in scenario.chosen_invariants:
            text = "the invariant dead_letters is demanded, and there are none; say where they go, such as {to: failed}"
            yield ("workload", "dead_letters"), text
        return
    if confirming and letters.strategy == "at_least_once" and limits is not None and limits.max_length is not None:
        text = f"{' and '.join(confirming)} cannot be judged if dead letters that a queue keeps fill it"
        yield ("workload", "limits", "max_length"), f"{text}; leave it out"
    if scenario.schedule and letters.strategy == "at_least_once" and scenario.phases.drain_s <= AGAIN_AFTER_S:
        text = f"a dead letter whose confirm a fault took is published again after {AGAIN_AFTER_S:g} s, in the drain"
        yield ("phases", "drain_s"), f"{text}; give it more time, such as 240"
    most = _messages_max(scenario)
    known = most is not None and not letters.limited(limits)
    if known and letters.rejects_none(publishers=scenario.generated.publishers, messages=most or 0):
        text = f"consumers reject none of the {most} messages that there are at most"
        yield ("workload", "dead_letters", "reject_one_in"), f"{text}; lower it, or send more"
    if letters.limited(limits) and any(bound.of == "end_to_end" for bound in _latency_bounds(scenario)):
        text = "what expires or is dropped never arrives, so that its latency has no end"
        yield ("invariants", "latency"), f"{text}; demand that of confirms (of: confirm), or leave limits out"


def _latency_bounds(scenario: Scenario) -> Sequence[LatencyBound]:
    latency = scenario.chosen_invariants.get("latency")
    return latency.bounds if isinstance(latency, LatencyBounds) else ()


def _messages_max(scenario: Scenario) -> int | None:
    """Return how many messages are sent at most, even with the longest recovery; None if no rate limits them."""
    workload, phases = scenario.generated, scenario.phases
    rates = [workload.rate_per_s, *(step.rate_per_s for step in workload.variable_rate)]
    if None in rates:
        return None
    longest_s = phases.steady_s + scenario.chaos_s + phases.recovery_s + scenario.settled_s
    return math.ceil(longest_s * max(rate for rate in rates if rate is not None))


def _consumer_problems(scenario: Scenario) -> Iterator[tuple[Location, str]]:
    """Yield demands on queues that have too many consumers for it, or too few."""
    order, letters = scenario.chosen_invariants.get("order"), scenario.generated.dead_letters
    unordered = {letters.to} if letters is not None else set()  # the order of dead letters is never promised
    for i, group in enumerate(scenario.generated.groups):
        at = ("workload", "services", i, "consumers") if group.name else ("workload", "consumers")
        named = isinstance(order, Order) and order.shared_queues == "named"
        if named and group.name not in unordered and group.consumers > group.queues:
            text = f"order is promised where a queue has one consumer, and there are {group.queues} queues"
            alone = scenario.generated.single_active_consumer
            instead = "write order: {shared_queues: judged}" if alone else "do not demand order"
            yield at, f"{text}; have no more consumers, or {instead}"
        if group.consume == "at_drain" and any(bound.of == "end_to_end" for bound in _latency_bounds(scenario)):
            text = "messages wait for the drain, which is no latency of the cluster"
            yield ("invariants", "latency"), f"{text}; demand that of confirms (of: confirm), or leave consume out"
        if "single_active_consumer" in scenario.chosen_invariants and group.consumers < 2 * group.queues:
            text = f"for another consumer to take over, each of {group.queues} queues needs two, and there are fewer"
            yield at, f"{text}; have {2 * group.queues} consumers, or fewer queues"


def _without_publisher(scenario: Scenario) -> set[str]:
    """Return the queues whose publishers are all taken away by one step, or may all be in one zone."""
    workload, nodes = scenario.generated, scenario.topology.nodes
    by_queue: dict[str, list[int]] = {name: [] for name in workload.published_queues}
    ways = _ways(workload)
    for publisher in range(workload.publishers):
        for queue in {queue for turn in share(publisher, workload.publishers, len(ways)) for queue in ways[turn]}:
            by_queue[queue].append(publisher)
    taken_by = ((step, step.footprint(scenario.topology)) for step in scenario.sane_steps.values())
    killed = [of.processes | (_cut_off(of, scenario) if step.for_s > 1 else set()) for step, of in taken_by]
    unserved = {
        name for name, mine in by_queue.items() for taken in killed if {f"publisher:{i}" for i in mine} <= taken
    }
    if workload.reconnect == "own_zone":
        zones = {name: {nodes[i % len(nodes)].zone for i in mine} for name, mine in by_queue.items()}
        unserved |= {name for name, there in zones.items() if there != set(scenario.topology.zones)}
    return unserved


def _ways(workload: Workload) -> list[Collection[str]]:
    """Return the queues that each turn of a publisher may lead to. Only the broker knows which shard takes a
    message."""
    names, routing = workload.queue_names, workload.routing
    if routing is None:
        return [{name} for name in workload.published_queues]
    return [*routing.may_take(names)]


def _cut_off(footprint: Footprint, scenario: Scenario) -> set[str]:
    """Return the clients that a step may cut off from all their endpoints."""
    links = frozenset() if footprint.slows_links else footprint.links
    clients = {link.client for link in links} - {None}
    places = scenario.topology.balancer_names or scenario.topology.client_nodes
    return {client for client in clients if client and all(Link(client, place) in links for place in places)}


def _limit_problems(scenario: Scenario, driver: str | None) -> Iterator[tuple[Location, str]]:
    """Yield more clients than this machine lets connect."""
    if driver is not None:
        topology = scenario.topology
        limits = Limits.of_this_machine(broker_descriptors=DRIVERS[driver].open_files())
        addresses, brokers = len(topology.balancer_names or topology.client_nodes), len(topology.client_nodes)
        proxied = any(link.client == ANY_CLIENT for link in topology.network_links)
        balancers = set(topology.balancer_names)
        away = max(
            (len(step.footprint(topology).resources & balancers) for step in scenario.sane_steps.values()), default=0
        )
        balanced = topology.balancers is not None
        too_many = limits.problems(
            scenario.generated, addresses=addresses, brokers=brokers, balanced=balanced, away=away, proxied=proxied
        )
        for field, text in too_many:
            yield ("workload", field), text


def _load_problems(scenario: Scenario) -> Iterator[tuple[Location, str]]:
    """Yield loads that vary for longer than there is time, or are too slow to be distinguished from a standstill."""
    workload, phases = scenario.generated, scenario.phases
    groups: list[tuple[Location, Service]]
    groups = [((("services", i) if group.name else ()), group) for i, group in enumerate(workload.groups)]
    varying: list[tuple[Location, float]] = [(("variable_rate",), sum(step.for_s for step in workload.variable_rate))]
    varying += [((*at, "variable_processing"), sum(s.for_s for s in group.variable_processing)) for at, group in groups]
    for at, length_s in varying:
        if length_s > scenario.chaos_s:
            text = f"the steps last {length_s:g} s, past the end of the schedule (phases.chaos_s is {phases.chaos_s:g})"
            yield ("workload", *at), f"{text}; shorten them, or make chaos_s longer"
    for at, group in groups:
        acknowledged_s = group.processing_ms / 1000 * workload.ack_every
        if acknowledged_s > phases.recovery_s:
            text = f"a consumer acknowledges {workload.ack_every} messages every {acknowledged_s:g} s"
            text = f"{text}, too seldom to be seen within phases.recovery_s ({phases.recovery_s:g}); lower ack_every"
            yield ("workload", *at, "processing_ms"), text


def placement_problems(scenario: Scenario) -> Iterator[tuple[Location, str]]:
    """Yield queues that the topology has no place for. Other kinds of load place none."""
    topology, workload = scenario.topology, scenario.workload
    if not isinstance(workload, Workload):
        return
    size = len(topology.nodes)
    for i, target in enumerate(workload.leaders_on):
        try:
            check_target(target, topology, ())
            if target not in topology.node_names and not target.startswith("zone:"):
                raise TargetError(f"{target!r}: leaders are placed on nodes by name, or on a zone (zone:a)")
        except TargetError as error:
            yield ("workload", "leaders_on", i), str(error)
    if workload.group_size is not None and workload.group_size > size:
        yield (
            ("workload", "group_size"),
            f"{workload.group_size} members need as many nodes; {topology.name} has {size}",
        )
    copies = workload.mirroring.ha_params if workload.mirroring else None
    if copies is not None and copies > size:
        yield ("workload", "mirroring", "ha_params"), f"{copies} copies need as many nodes; {topology.name} has {size}"
