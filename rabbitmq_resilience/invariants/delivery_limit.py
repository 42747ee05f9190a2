"""Whether quorum queues may have given up messages that came back to them again and again.

Sources: release notes of RabbitMQ 4.0 (delivery limit); RabbitMQ, "Quorum Queues", poison messages (4.3).
"""

from __future__ import annotations

from rabbitmq_resilience.invariants.cluster_forms import forms
from rabbitmq_resilience.invariants.facts import ClusterFacts, Facts
from rabbitmq_resilience.invariants.steps import Step

#: From then on quorum queues give up a message that came back to them 20 times, also where no consumer rejected it.
LIMITED_SINCE = (4, 0)
#: From then on only deliveries count that failed: by a rejection, a crash or a lost connection.
FAILED_ALONE_SINCE = (4, 3)


def may_give_up(facts: Facts) -> bool:
    """Return whether queues may have dead letters by the limit of deliveries, as a step made messages come again."""
    if not any(queue.kind == "quorum" for queue in facts.queues):
        return False
    unknown = any(step.fault == "upgrade" and not step.becomes for step in facts.steps)  # in early records
    if facts.cluster is None or unknown:
        return any(step.injected for step in facts.steps)
    return any(_counts(facts, facts.cluster, step) for step in facts.steps if step.injected)


def _counts(facts: Facts, cluster: ClusterFacts, step: Step) -> bool:
    """Whether deliveries that come again by this step, or as it is healed, count up to the limit. From 4.3 on those do
    not that come again as brokers are cut apart: clients keep their connections."""
    versions = [form.broker_version for form in forms(facts, cluster, step.possible_us)]
    limited = [version for version in versions if version >= LIMITED_SINCE]
    if step.cut and not (step.down or step.starved or step.clients_cut):
        return any(version < FAILED_ALONE_SINCE for version in limited)
    return bool(limited)
