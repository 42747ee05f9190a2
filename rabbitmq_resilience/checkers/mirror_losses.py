"""Count lost messages of mirrored queues that were lost although some node with a copy was up all the time.

If all nodes with a copy were away at one moment, the one that comes back first leads the copy that it has, and mirrors
that rejoin throw theirs away (RabbitMQ 3.13, "Classic Queue Mirroring").
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rabbitmq_resilience.checkers.columns import Array
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.fan_out import Shards

#: The number of no_loss that is there if anything was lost in a run with mirrored queues.
WITH_A_MIRROR_UP = "lost_with_a_mirror_up"


def lost_with_a_mirror_up(facts: Facts, queue: Array, sent_us: Array, shards: Shards) -> Mapping[str, int]:
    """Return how many of the lost messages were sent after the last moment at which all nodes with a copy of their
    queue were seen away, by the name of that number; empty without mirrored queues. ``queue`` has the index of each
    lost message's queue."""
    mirrored = {index: one for index, one in enumerate(facts.queues) if one.kind == "mirrored"}
    if not mirrored:
        return {}
    explained = np.zeros(len(queue), np.bool_)
    for index, one in mirrored.items():
        away_us = [t_us for t_us, states in facts.node_states if all(states.get(n, "up") != "up" for n in one.holders)]
        mine = np.isin(queue, sorted({index, *shards.group_of(index)}))
        explained |= mine & (sent_us < max(away_us, default=0))
    return {WITH_A_MIRROR_UP: int(np.count_nonzero(~explained))}
