"""Compute how long publishers may need to reach a node that serves."""

from __future__ import annotations

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.history.events import LoadEvent

#: Time for clients to give up (``confirm_timeout_s`` is 10 s by default) and for leaders to be elected.
PATIENCE_S = 15.0
ELECTED_S, PAUSES_LATE_FROM = 5.0, (4,)  # its part for elections; the version from which nodes await each silent peer


def patience_s(facts: Facts, form: ClusterFacts) -> float:
    """Return the seconds that publishers may need to reach a node that serves, after a fault was noticed."""
    timeouts_s = [event.confirm_timeout_s for event in facts.of_kind(LoadEvent) if event.confirm_timeout_s is not None]
    pauses_in_time = form.pauses and form.broker_version < PAUSES_LATE_FROM
    in_vain = 1 if pauses_in_time else tried_in_vain(len(form.nodes))
    return patience_of_s(in_vain, max(timeouts_s, default=PATIENCE_S - ELECTED_S))


def tried_in_vain(nodes: int) -> int:
    """Return how many of that many nodes may lack a majority and serve no client."""
    return (nodes - 1) // 2


def patience_of_s(in_vain: int, confirm_timeout_s: float) -> float:
    """Return the seconds in which a publisher gives up ``in_vain`` nodes and a leader is elected."""
    return max(PATIENCE_S, ELECTED_S + in_vain * confirm_timeout_s)
