"""When steps of the schedule kept publishers away from the brokers: a queue that nobody could publish to stands still
for no fault of the brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.invariants.ledger import Ledger
from rabbitmq_resilience.invariants.steps import NEVER_US
from rabbitmq_resilience.invariants.times import NEVER, Period, Times, at_least, times, union
from rabbitmq_resilience.record.events import WorkerEvent

_PUBLISHER = "publisher"


def kept_away(facts: Facts) -> Mapping[int, Times]:
    """For each publisher, by its number, when it was killed on purpose, until it was started again, or cut off from
    every node. Those that always could publish are left out. That one cannot connect is the brokers' doing."""
    return facts.once(_kept_away)


def _kept_away(facts: Facts) -> Mapping[int, Times]:
    found: dict[int, Times] = defaultdict(lambda: NEVER)
    for number, periods in _killed(facts).items():
        found[number] |= times(periods)
    nodes = frozenset(facts.cluster.nodes if facts.cluster else ())
    clients = {client for step in facts.steps for client in step.clients_cut if client.startswith(f"{_PUBLISHER}:")}
    for client in clients if nodes else ():
        cut = [times(s.possible_us for s in facts.steps if node in s.clients_cut.get(client, ())) for node in nodes]
        found[int(client.partition(":")[2])] |= at_least(len(cut), cut)
    return {number: when for number, when in found.items() if not when.empty}


def _killed(facts: Facts) -> Mapping[int, list[Period]]:
    killed_us: dict[int, int] = {}
    found: dict[int, list[Period]] = defaultdict(list)
    for event in facts.of_kind(WorkerEvent):
        kind, _, number = event.worker.partition("-")
        if kind != _PUBLISHER:
            continue
        if event.event == "killed":
            killed_us.setdefault(int(number), event.t_us)
        elif event.event == "started" and int(number) in killed_us:
            found[int(number)].append((killed_us.pop(int(number)), event.t_us))
    for publisher, start_us in killed_us.items():
        found[publisher].append((start_us, NEVER_US))
    return found


def nobody_could_publish(facts: Facts, ledger: Ledger, queue: int) -> Times:
    """When all who published to the queue of that index, at any time, were kept away."""
    away = kept_away(facts)
    if not away:
        return NEVER
    its = [
        number
        for number, messages in ledger.messages.items()
        if any((lane.queue[lane.there] == queue).any() for lane in messages.lanes)
    ]
    return at_least(len(its), [away.get(number, NEVER) for number in its]) if its else NEVER


def somebody_could_not_publish(facts: Facts) -> Times:
    """When any publisher was kept away."""
    return union(kept_away(facts).values())
