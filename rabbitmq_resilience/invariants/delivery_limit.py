"""Which messages quorum queues may have given up, as they came back to them again and again.

A message comes back when the connection of its consumer ends, and as nodes lose each other or a queue gets another
leader. So what happened since it was sent bounds how often it can have come back; that it was received once says
nothing, as what a consumer had no time to record came back too.

Sources: release notes of RabbitMQ 4.0 (delivery limit); RabbitMQ, "Quorum Queues", poison messages (4.3).
"""

from __future__ import annotations

import numpy as np

from rabbitmq_resilience.invariants.cluster_forms import forms
from rabbitmq_resilience.invariants.columns import Array
from rabbitmq_resilience.invariants.facts import ClusterFacts, Facts
from rabbitmq_resilience.invariants.owners import absences
from rabbitmq_resilience.invariants.steps import Step

#: From then on quorum queues give up a message that came back to them 20 times, also where no consumer rejected it.
LIMITED_SINCE = (4, 0)
#: From then on only deliveries count that failed: by a rejection, a crash or a lost connection.
FAILED_ALONE_SINCE = (4, 3)
LIMIT = 20


def may_have_given_up(facts: Facts, sent_us: Array) -> Array:
    """Return of each message, by the moment at which it was sent, whether its queue may have given it up since."""
    limit, promised = LIMIT, facts.dead_letters
    if promised is not None and promised.delivery_limit is not None:
        limit = promised.delivery_limit
    if any(step.fault == "set_policy" and step.injected for step in facts.steps):
        limit = 1  # which a policy may have lowered
    none = np.zeros(len(sent_us), np.bool_)
    if limit < 0 or not any(queue.kind == "quorum" for queue in facts.queues):
        return none
    acting = [step for step in facts.steps if step.injected and _counts(facts, step)]
    endless = [step.possible_us[1] for step in acting if step.intermittent]
    moments = [t_us for step in acting for t_us in step.possible_us]
    if _limited(facts, (facts.origin_us, np.inf)):
        consumers = {number for number, _ in facts.of_clients("consumer")}
        moments += [start_us for number in consumers for start_us, _ in absences(facts, number)]
    returned_us = np.sort(np.array(moments, np.float64))
    since = len(returned_us) - np.searchsorted(returned_us, sent_us)
    found: Array = (since >= limit) | (sent_us < max(endless, default=-np.inf))
    return found


def _counts(facts: Facts, step: Step) -> bool:
    """Whether deliveries that come again by this step count up to the limit. From 4.3 on those do not that come again
    as brokers are cut apart: clients keep their connections."""
    acts = step.down or step.cut or step.starved or step.alarmed or step.operation or step.clients_cut
    if not acts:
        return False
    only_apart = step.cut and not (step.down or step.starved or step.clients_cut)
    return _limited(facts, step.possible_us, before=FAILED_ALONE_SINCE if only_apart else None)


def _limited(facts: Facts, period_us: tuple[float, float], *, before: tuple[int, ...] | None = None) -> bool:
    """Whether the cluster may have been of a version with a limit then, and of one that is older than ``before``."""
    cluster: ClusterFacts | None = facts.cluster
    unknown = any(step.fault == "upgrade" and not step.becomes for step in facts.steps)  # in early records
    if cluster is None or unknown:
        return True
    versions = [form.broker_version for form in forms(facts, cluster, period_us)]
    return any(version >= LIMITED_SINCE and (before is None or version < before) for version in versions)
