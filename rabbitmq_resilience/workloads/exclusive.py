"""Exclusive queues: each belongs to the connection of the consumer that declared it, and is gone with it.

Source: RabbitMQ, "Queues" (exclusive queues): other connections may publish to one, but neither consume from it nor
declare, purge or delete it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rabbitmq_resilience.workloads.spec import Workload

#: What a record calls the type of such a queue.
EXCLUSIVE = "exclusive"


def exclusive_problems(workload: Workload) -> Iterator[str]:
    """What does not go with ``exclusive: true``."""
    if workload.queue_type != "classic":
        yield f"exclusive goes with queue_type: classic, not {workload.queue_type}"
    if not 0 < workload.consumers <= workload.queues:
        yield (
            f"an exclusive queue has one consumer, whose own it is: have 1 to {workload.queues} consumers for "
            f"{workload.queues} queues, not {workload.consumers}"
        )
    others = {
        "services": bool(workload.services),
        "routing": workload.routing is not None,
        "dead_letters": workload.dead_letters is not None,
        "single_active_consumer": workload.single_active_consumer,
        "copy_every": workload.copy_every is not None,
        "leaders_on": bool(workload.leaders_on),
    }
    for name in (name for name, stated in others.items() if stated):
        yield f"{name} does not go with exclusive: a queue is where its consumer is, and there once that has connected"
