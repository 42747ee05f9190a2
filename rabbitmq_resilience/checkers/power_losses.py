"""Count lost messages that no power cut explains, so that a loss by design hides no other one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rabbitmq_resilience.checkers.columns import Array
from rabbitmq_resilience.checkers.fan_out import Shards
from rabbitmq_resilience.checkers.verdict import History

#: The number of no_loss that is there if messages were lost in a run with a power cut.
WITHOUT_POWER_CUT = "lost_without_power_cut"


def lost_without_power_cut(history: History, queue: Array, sent_us: Array, shards: Shards) -> Mapping[str, int]:
    """Return how many of the lost messages no power cut explains, by the name of that number; empty without a cut.

    ``queue`` has the index of each lost message's queue. A cut explains messages that were sent before it had ended the
    nodes, to queues that one of these nodes holds.
    """
    facts = history.facts
    cuts = [step for step in facts.steps if step.fault == "power_cut" and step.injected]
    explained = np.zeros(len(queue), np.bool_)
    for step in cuts:
        held = [index for index, one in enumerate(facts.queues) if one.holders & step.down]
        mine = sorted({shard for index in held for shard in shards.group_of(index)} | {*held})
        explained |= np.isin(queue, mine) & (sent_us < step.sure_us[0])
    return {WITHOUT_POWER_CUT: int(np.count_nonzero(~explained))} if cuts else {}
