"""Messages that go to several queues, one of them classic on a node that is not there: a broker knows no such queue
then, routes to the others alone and confirms. Nothing is returned, as another queue took it (seen on 3.10.8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rabbitmq_resilience.invariants.facts import ClusterFacts, Facts
from rabbitmq_resilience.invariants.ledger import Ledger
from rabbitmq_resilience.invariants.pauses import RESTARTED_WITHIN_S, pauses_of
from rabbitmq_resilience.invariants.splits import LossPermit
from rabbitmq_resilience.invariants.steps import NEVER_US
from rabbitmq_resilience.invariants.times import Period, Times, later, periods, times, union

_REASON = (
    "{queue} is a classic queue, and brokers route without it what goes to other queues too while {node} is not there"
)


def passed_over(facts: Facts, ledger: Ledger) -> Mapping[int, str]:
    """The classic queues that share messages with others, by index, and the node that each is on."""
    shared = ledger.sharing_queues()
    return {
        index: next(iter(queue.members))
        for index, queue in enumerate(facts.queues)
        if queue.kind == "classic" and len(queue.members) == 1 and index in shared
    }


def permits_of_passing_over(facts: Facts, ledger: Ledger) -> Iterator[tuple[str, tuple[tuple[LossPermit, ...], ...]]]:
    """As ``splits.loss_permits``: whichever node confirmed it."""
    cluster, span_us = facts.cluster, facts.publishing_us
    if cluster is None or span_us is None:
        return
    for index, node in passed_over(facts, ledger).items():
        missed_us = _missed_us(facts, cluster, node, span_us)
        permits = tuple(LossPermit(index, confirming, missed_us) for confirming in range(len(cluster.nodes)))
        yield _REASON.format(queue=facts.queue_name(index), node=node), (permits,)


def _missed_us(facts: Facts, cluster: ClusterFacts, node: str, span_us: Period) -> Times:
    """When others may have missed the node: it was away, until it was seen up again, or a link to it was cut, until
    brokers must have noticed that it is whole. Where sides may go on apart, only a restart has it back for sure."""
    pauses = pauses_of(facts, cluster, span_us)
    truth = pauses.truth
    cut = union(bounds.possibly for pair, bounds in truth.cut.items() if node in pair)
    mended_us = NEVER_US if cluster.splits else pauses.within_us + RESTARTED_WITHIN_S * 1e6
    unseen = times(
        (t_us, facts.first_up_us(node, after_us=t_us))
        for t_us, states in facts.node_states
        if states.get(node, "up") != "up"
    )
    # a state is a look, and what it shows had begun before
    begun = times((start - pauses.tick_us, end) for start, end in periods(unseen))
    return truth.away[node].possibly | later(cut, end_us=mended_us) | begun
