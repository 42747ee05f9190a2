"""Find messages that quorum queues may have given up because they came back too often.

A message comes back when the connection of its consumer ends, when nodes lose each other, or when a queue gets another
leader. So the events between its sending and its dead letter bound how often it can have come back. The number of
recorded deliveries does not: a message that a consumer had no time to record came back too.

Sources: release notes of RabbitMQ 4.0 (delivery limit); RabbitMQ, "Quorum Queues", poison messages (4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.cluster_forms import forms
from rabbitmq_resilience.checkers.columns import Array, grouped, pieces
from rabbitmq_resilience.checkers.exclusive_owners import absences
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.message_ledger import Ledger
from rabbitmq_resilience.checkers.observed_faults import ObservedFault
from rabbitmq_resilience.checkers.verdict import History

#: From this version on quorum queues give up a message that came back 20 times, even if no consumer rejected it.
LIMITED_SINCE = (4, 0)
#: From this version on only failed deliveries count: by a rejection, a crash or a lost connection.
FAILED_ALONE_SINCE = (4, 3)
LIMIT = 20


#: Publisher, lane, and the place of the queue that takes a dead letter (``history.dead_letter_routes``).
Key = tuple[int, int, int]


def letters_came_us(history: History, ledger: Ledger) -> Mapping[Key, Array]:
    """Return when each dead letter first came, by sequence; infinity for those that never came."""
    letters = history.facts.letters
    found = {
        (publisher, number, place): np.full(len(m.outcome), np.inf)
        for publisher, m in ledger.messages.items()
        for number in range(len(m.lanes))
        for place in range(letters.places)
    }
    for *columns, intact in pieces(history.deliveries(), "queue", "publisher", "sequence", "received_us", "intact"):
        kept = intact & letters.taken_from(columns[0])
        queue, publisher, sequence, received_us = (column[kept] for column in columns)
        for (name,), rows in grouped(publisher) if len(publisher) else ():
            for number, lane in enumerate(ledger.messages[name].lanes):
                known = sequence[rows] < len(lane.queue)
                mine, at_us = sequence[rows][known], received_us[rows][known]
                place_of = letters.places_of(lane.queue[mine], queue[rows][known])
                for place in range(letters.places):
                    here = place_of == place
                    np.minimum.at(found[name, number, place], mine[here], at_us[here])
    return found


def may_have_given_up(history: History, ledger: Ledger, queue: Array, sent_us: Array, came_us: Array) -> Array:
    """Return a flag for each message: whether its ``queue`` may have given it up between its sending and its letter."""
    found = np.zeros(len(queue), np.bool_)
    for (index,), rows in grouped(queue) if len(queue) else ():
        readers = {key[0] for key in ledger.readings if ledger.shards.first_of(key[1]) == ledger.shards.first_of(index)}
        found[rows] = given_up(history.facts, sent_us[rows], came_us[rows], readers)
    return found


def given_up(facts: Facts, sent_us: Array, came_us: Array, consumers: Collection[int]) -> Array:
    """Return the flags of ``may_have_given_up`` for messages of one queue, which these ``consumers`` read."""
    limit, promised = float(LIMIT), facts.dead_letters
    if promised is not None and promised.delivery_limit is not None:
        limit = np.inf if promised.delivery_limit < 0 else max(1, promised.delivery_limit)  # 0: given up as it returns
    if not any(queue.kind == "quorum" for queue in facts.queues):
        return np.zeros(len(sent_us), np.bool_)
    acting = [step for step in facts.steps if step.injected and _counts(facts, step)]
    moments = [t_us for step in acting for t_us in step.possible_us]
    if _limited(facts, (facts.origin_us, np.inf)):
        moments += [start_us for number in consumers for start_us, _ in absences(facts, number)]
    returned_us = np.sort(np.array(moments, np.float64))
    between = np.searchsorted(returned_us, came_us, "right") - np.searchsorted(returned_us, sent_us)
    policies_us = [step.possible_us[0] for step in facts.steps if step.fault == "set_policy" and step.injected]
    is_lowered = came_us >= min(policies_us, default=np.inf)  # perhaps
    found: Array = between >= np.where(is_lowered, 1, limit)
    for step in acting:
        if step.effect.intermittent:
            is_limited = is_lowered | np.isfinite(limit)
            found |= is_limited & (sent_us < step.possible_us[1]) & (came_us > step.possible_us[0])
    return found


def _counts(facts: Facts, step: ObservedFault) -> bool:
    """Return whether deliveries that this step repeats count up to the limit.

    From 4.3 on deliveries that are repeated because brokers are cut apart do not count: clients keep their connections.
    """
    of_consumers = any(not client.startswith("publisher") for client in step.clients_cut)
    if not (step.down or step.cut or step.starved or step.effect.operation or of_consumers):
        return False
    only_apart = step.cut and not (step.down or step.starved or of_consumers)
    return _limited(facts, step.possible_us, before=FAILED_ALONE_SINCE if only_apart else None)


def _limited(facts: Facts, period_us: tuple[float, float], *, before: tuple[int, ...] | None = None) -> bool:
    """Return whether the cluster may have had a version with a limit in that period, and older than ``before``."""
    cluster: ClusterFacts | None = facts.cluster
    unknown = any(step.fault == "upgrade" and not step.effect.becomes for step in facts.steps)  # in early records
    if cluster is None or unknown:
        return True
    versions = [form.broker_version for form in forms(facts, cluster, period_us)]
    return any(version >= LIMITED_SINCE and (before is None or version < before) for version in versions)
