"""Messages that go to several queues, one of them on nodes that are all away: a broker knows no such queue then, routes
to the others alone and confirms. Nothing is returned, as another queue took it (seen on 3.10.8 with a classic queue).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.invariants.columns import Array, grouped
from rabbitmq_resilience.invariants.facts import ClusterFacts, Facts
from rabbitmq_resilience.invariants.ledger import Ledger
from rabbitmq_resilience.invariants.pauses import Pauses, pauses_of
from rabbitmq_resilience.invariants.steps import NEVER_US
from rabbitmq_resilience.invariants.times import NEVER, Period, Times, periods, times

Flags = npt.NDArray[np.bool_]

#: Why such a message may be lost.
REASON = "brokers route without {queue} what goes to other queues too while its nodes are away"


def sharing(facts: Facts, ledger: Ledger) -> frozenset[int]:
    """The queues, by index, that share messages with others and that brokers may pass over: not quorum queues, which
    they always know."""
    shared = ledger.sharing_queues()
    return frozenset(i for i, queue in enumerate(facts.queues) if queue.kind != "quorum" and i in shared)


def passed_over(facts: Facts, ledger: Ledger, rows: Mapping[str, Array]) -> Iterator[tuple[str, Flags]]:
    """Which lost messages may never have been routed to their queue, and why, queue by queue: another queue took them,
    and the node that confirmed them may have missed all nodes of this one on their way. ``rows``: ``publisher``,
    ``sequence``, ``queue``, ``node``, ``sent_us`` and ``outcome_us``."""
    cluster, span_us = facts.cluster, facts.publishing_us
    if cluster is None or span_us is None:
        return
    taken = _taken_elsewhere(ledger, rows)
    pauses = pauses_of(facts, cluster, span_us)
    for index in sorted(sharing(facts, ledger)):
        queue, mine = facts.queues[index], (rows["queue"] == index) & taken
        for node, name in enumerate(cluster.nodes):
            of_node = mine & (rows["node"] == node)
            if not of_node.any() or name in queue.members:
                continue
            missed = [_missed(facts, cluster, pauses, member, name) for member in sorted(queue.members)]
            over = np.zeros(len(taken), np.bool_)
            for start, end in periods(reduce(lambda one, other: one & other, missed)):
                over |= of_node & (rows["sent_us"] < end) & (rows["outcome_us"] >= start)
            if over.any():
                yield REASON.format(queue=queue.name), over


def _taken_elsewhere(ledger: Ledger, rows: Mapping[str, Array]) -> Flags:
    """Of which messages another queue had its copy."""
    taken = np.zeros(len(rows["sequence"]), np.bool_)
    for (publisher,), mine in grouped(rows["publisher"]) if len(taken) else ():
        received = np.logical_or.reduce([lane.received for lane in ledger.messages[publisher].lanes])
        taken[mine] = received[rows["sequence"][mine]]
    return taken


def _missed(facts: Facts, cluster: ClusterFacts, pauses: Pauses, node: str, by: str) -> Times:
    """When ``by`` may have missed ``node``: that was away, until it was seen up again, or a cut between them lasted
    until it may be noticed, until one of them was seen to be back from a restart after it: until then nobody declares
    its queues again."""
    truth = pauses.truth
    cut = truth.cut[frozenset({node, by})].possibly if node != by else NEVER
    noticed = [
        (from_us, _restarted_us(facts, (node, by), noticed_us=from_us, healed_us=period[1]))
        for period, from_us in truth.noticeable(cut, sudden=truth.sudden)
    ]
    return truth.away[node].possibly | _not_seen(facts, cluster, node) | times(noticed)


def _not_seen(facts: Facts, cluster: ClusterFacts, node: str) -> Times:
    """When it was seen away, from a tick before: a look shows what had begun before it."""
    tick_us = cluster.net_ticktime_s * 1e6
    seen: list[Period] = []
    for t_us, states in facts.node_states:
        if states.get(node, "up") != "up":
            seen.append((t_us - tick_us, facts.first_up_us(node, after_us=t_us)))
    return times(seen)


def _restarted_us(facts: Facts, nodes: tuple[str, ...], *, noticed_us: float, healed_us: float) -> float:
    """When the first of the nodes was up again that had been seen away since, and not before the cut was healed."""
    backs = [
        facts.first_up_us(node, after_us=max(t_us, healed_us))
        for t_us, states in facts.sightings(noticed_us, NEVER_US)
        for node in nodes
        if states.get(node, "up") != "up"
    ]
    return min(backs, default=NEVER_US)
