"""Find lost messages whose loss is permitted because a stored file of their queue was damaged.

A quorum queue keeps a confirmed message as long as a majority of its members has it (RabbitMQ, "Quorum Queues"). If a
message that was sent after the damaged node had ended is confirmed before that node starts again, a majority of the
members without it has this message. By Raft's log matching, they have all that came before, so nothing may be lost.
Otherwise the damaged member may have been needed. A classic queue has no other copy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.columns import Array, pieces
from rabbitmq_resilience.checkers.fan_out import Shards
from rabbitmq_resilience.checkers.observed_faults import ObservedFault
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.history import Outcome


def lost_with_files(history: History, queue: Array, shards: Shards) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Yield for each step that damaged files the reason, and which of the lost messages it may have lost.

    ``queue`` has the index of each lost message's queue.
    """
    facts = history.facts
    for step in facts.steps:
        if not (step.injected and step.damaged):
            continue
        exposed = [
            index
            for index, one in enumerate(facts.queues)
            if one.holders & step.damaged and not (one.kind == "quorum" and _has_majority(history, index, step))
        ]
        mine = np.isin(queue, sorted({shard for index in exposed for shard in shards.group_of(index)} | {*exposed}))
        if mine.any():
            nodes = ", ".join(sorted(step.damaged))
            yield (
                f"a stored file of {nodes} was damaged, and no majority without it is known to have the messages",
                mine,
            )


def _has_majority(history: History, queue: int, step: ObservedFault) -> bool:
    """Return whether a message was sent to the queue and confirmed while the damaged nodes were surely away."""
    start_us, end_us = step.sure_us
    for of_queue, sent_us, outcome_us, outcome in pieces(
        history.publishes(), "queue", "sent_us", "outcome_us", "outcome"
    ):
        during = (of_queue == queue) & (sent_us >= start_us) & (outcome_us < end_us)
        if (during & (outcome == Outcome.CONFIRMED)).any():
            return True
    return False
