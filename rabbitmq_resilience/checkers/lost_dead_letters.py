"""Find dead letters with at_most_once that may be lost, as the brokers of their queues were disturbed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.delivery_limit import Key
from rabbitmq_resilience.checkers.facts import Facts, QueueFacts
from rabbitmq_resilience.checkers.fault_timeline import truth_of
from rabbitmq_resilience.checkers.instability import acts_on_copies
from rabbitmq_resilience.checkers.message_ledger import Flags, ledger_of
from rabbitmq_resilience.checkers.times import Times, later, periods, times
from rabbitmq_resilience.checkers.verdict import History

#: How long a disturbance has an effect after its nodes were seen up again.
FELT_FOR_S = 30.0

Moments = npt.NDArray[np.float64]


def disturbed(history: History, key: Key, began_us: Moments, settled_us: Moments) -> Flags:
    """Return a flag for each message: whether brokers were disturbed while it, or its dead letter, was on its way.

    The brokers are those of its queue and of the queue that takes its dead letters.
    """
    publisher, number, place = key
    facts, ledger = history.facts, ledger_of(history)
    lane = ledger.messages[publisher].lanes[number]
    found = np.zeros(len(began_us), np.bool_)
    for source, taking in facts.letters.queues_of.items():
        mine = lane.there & (ledger.shards.first(lane.queue) == ledger.shards.first_of(source))
        if place < len(taking) and mine.any():
            queues = [facts.queues[one] for one in (source, taking[place]) if one < len(facts.queues)]
            found[mine] = meets(began_us[mine], settled_us[mine], _disturbed_us(facts, queues))
    return found


def _disturbed_us(facts: Facts, queues: Sequence[QueueFacts]) -> Times:
    """Return when at_most_once promises nothing for these queues.

    That is while a step acts on brokers that may have the queues or on links to these brokers, or may move leaders, and
    ``FELT_FOR_S`` after that. If it took nodes away, the time counts from when they were seen up again. Steps on
    clients alone, and operations on queues, do not count.
    """
    if facts.cluster is None:
        disturbed = times(step.possible_us for step in facts.steps if step.injected)
    else:
        truth = truth_of(facts, facts.cluster)
        acting = [
            step.possible_us
            for step in facts.steps
            if step.injected and (step.cut or step.starved or step.slow_s or step.effect.operation)
            if any(acts_on_copies(facts, step, queue) for queue in queues)
        ]
        nodes = frozenset().union(*(queue.holders for queue in queues))
        disturbed = times([*acting, *(absence for node in sorted(nodes) for absence in truth.absences(node))])
    return later(disturbed, end_us=FELT_FOR_S * 1e6)


def meets(start_us: Moments, end_us: Moments, when: Times) -> Flags:
    """Return a flag for each span: whether it has a moment in those times."""
    found = np.zeros(len(start_us), np.bool_)
    for start, end in periods(when):
        found |= (start_us < end) & (end_us >= start)
    return found
