"""Find lost messages whose loss is permitted because a stored file of their queue was damaged, or all files were gone.

A quorum queue keeps a confirmed message as long as a majority of its members has it (RabbitMQ, "Quorum Queues"). If a
message that was sent after the damaged node had ended is confirmed before that node starts again, a majority of the
members without it has this message. By Raft's log matching, they have all that came before, so nothing may be lost.
Otherwise the damaged member may have been needed. This does not hold if another member was damaged earlier, as its log
lists messages that it may no longer have, nor if confirms were not awaited. In a mirrored queue such a message shows
that another mirror leads, from which the node takes all messages when it is back. A classic queue has no other copy.

A node that lost all that it had stored is judged alike, except that it counts as whole once it is back: it lists
nothing that it does not have.

Only messages that were sent before the node was up again can be lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.columns import Array, pieces
from rabbitmq_resilience.checkers.fan_out import Shards
from rabbitmq_resilience.checkers.observed_faults import ObservedFault
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.history import Outcome


def lost_with_files(
    history: History, queue: Array, sent_us: Array, shards: Shards
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Yield for each step that damaged or removed files the reason, and which of the lost messages it may have lost.

    ``queue`` has the index of each lost message's queue.
    """
    facts = history.facts
    steps = sorted(
        (s for s in facts.steps if s.injected and (s.damaged or s.emptied)), key=lambda step: step.possible_us[0]
    )
    for number, step in enumerate(steps):
        nodes = step.damaged | step.emptied
        exposed = [
            index
            for index, one in enumerate(facts.queues)
            if one.holders & nodes
            and (step.emptied or step.damages(one.kind))
            and (
                one.kind == "classic"
                or one.holders & _damaged_before(steps[:number], one.kind) - nodes
                or not _goes_on(history, index, step)
            )
        ]
        mine = np.isin(queue, sorted({shard for index in exposed for shard in shards.group_of(index)} | {*exposed}))
        mine &= sent_us < max(facts.first_up_us(node, after_us=step.possible_us[1]) for node in nodes)
        if mine.any():
            what, how = ("all that was stored on", "removed") if step.emptied else ("a stored file of", "damaged")
            was = f"{'was' if 'injected' in step.states else 'may have been'} {how}"
            without = "without it" if len(nodes) == 1 else "without them"
            yield (
                f"{what} {', '.join(sorted(nodes))} {was}, and no majority {without} is known to have the messages",
                mine,
            )


def _damaged_before(steps: Sequence[ObservedFault], queue_type: str) -> frozenset[str]:
    """Return the nodes of which ``steps`` damaged a file of queues of that type."""
    return frozenset().union(*(step.damaged for step in steps if step.damages(queue_type)))


def _goes_on(history: History, queue: int, step: ObservedFault) -> bool:
    """Return whether a message was sent to the queue and confirmed while the damaged nodes were surely away."""
    if not history.facts.heeds_confirms:
        return False
    start_us, end_us = step.sure_us
    for of_queue, sent_us, outcome_us, outcome in pieces(
        history.publishes(), "queue", "sent_us", "outcome_us", "outcome"
    ):
        during = (of_queue == queue) & (sent_us >= start_us) & (outcome_us < end_us)
        if (during & (outcome == Outcome.CONFIRMED)).any():
            return True
    return False
