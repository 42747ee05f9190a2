"""Find when a split was seen to be over: all sides but one have restarted, and the cluster is whole again.

Source: RabbitMQ, "Clustering and Network Partitions": nodes of a side that gave way restart, and take over what the
trusted side has. From then on they are part of one cluster.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

from rabbitmq_resilience.checkers.cluster_states import ClusterSide
from rabbitmq_resilience.checkers.fault_timeline import FaultTimeline
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.times import Period

#: A node that goes away by itself within this time may still be one of a side that gives way.
STAYS_S = 30.0


def seen_over_us(
    truth: FaultTimeline, sides: Collection[ClusterSide], absences: Mapping[str, tuple[Period, ...]], healed_us: float
) -> float:
    """Return the first sighting after ``healed_us`` with all nodes up, and the nodes of all ``sides`` but one restarted
    before.

    Return NEVER_US if there is no such sighting, or a node went away by itself soon after it. ``absences``: when each
    node was away. Sides that may have had nodes in common cannot be distinguished.
    """
    if len(sides) < 2 or any(one & other for one, other in itertools.combinations(sides, 2)):
        return NEVER_US
    backs_us = sorted(_back_us(side, absences, healed_us) for side in sides)
    restarted_us = backs_us[len(sides) - 2]
    facts, nodes = truth.facts, truth.cluster.nodes
    whole_us = next(
        (t for t, states in facts.node_states if t >= restarted_us and all(states.get(n) == "up" for n in nodes)),
        NEVER_US,
    )
    until_us = whole_us + STAYS_S * 1e6
    again = any(
        states.get(node, "up") != "up" and not _taken(truth, node, t_us)
        for t_us, states in facts.sightings(whole_us, until_us)
        for node in nodes
    )
    return NEVER_US if again else whole_us


def _back_us(side: ClusterSide, absences: Mapping[str, tuple[Period, ...]], healed_us: float) -> float:
    """Return when all nodes of the side had restarted after the healing and were back; NEVER_US if one did not
    restart."""
    backs = [min((end for start, end in absences.get(n, ()) if start >= healed_us), default=NEVER_US) for n in side]
    return max(backs, default=NEVER_US)


def _taken(truth: FaultTimeline, node: str, t_us: float) -> bool:
    """Return whether a step may have taken the node away then."""
    return any(start <= t_us <= end for start, end in truth.absences(node))
