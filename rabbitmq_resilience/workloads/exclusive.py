"""Queues that their consumers declare: exclusive ones, each of which belongs to a connection and is gone with it, and
those that expire when they had no consumer for a time.

Sources: RabbitMQ, "Queues" (exclusive queues: other connections may publish to one, but neither consume from it nor
declare, purge or delete it), and "Time-To-Live and Expiration" (queue TTL).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rabbitmq_resilience.workloads.spec import Workload

#: What a record calls the types of such queues.
EXCLUSIVE = "exclusive"
EXPIRING = "expiring"
#: Brokers may notice two heartbeats earlier than a client that its connection is gone (``invariants.owners``).
HEARTBEAT_MAX_S = 5


def owner_problems(workload: Workload) -> Iterator[str]:
    """What does not go with ``exclusive: true``, or with ``redeclare: true``."""
    name = "exclusive" if workload.exclusive else "redeclare"
    expires = workload.limits is not None and workload.limits.expires_ms is not None
    if workload.exclusive and (workload.redeclare or expires):
        stated = "redeclare" if workload.redeclare else "limits.expires_ms"
        yield f"{stated} does not go with exclusive: such a queue is gone with its consumer's connection"
    elif workload.redeclare and not expires:
        yield "redeclare is for queues that expire: say when, such as limits: {expires_ms: 30000}"
    elif workload.redeclare and workload.heartbeat_s > HEARTBEAT_MAX_S:
        yield f"redeclare goes with a heartbeat_s up to {HEARTBEAT_MAX_S}: later nobody knows when a consumer was gone"
    if workload.queue_type != "classic":
        yield f"{name} goes with queue_type: classic, not {workload.queue_type}"
    if not 0 < workload.consumers <= workload.queues:
        yield (
            f"with {name} a queue has one consumer, which declares it: have 1 to {workload.queues} consumers for "
            f"{workload.queues} queues, not {workload.consumers}"
        )
    others = {
        "consume: at_drain": workload.consume == "at_drain",
        "services": bool(workload.services),
        "a consistent_hash exchange": workload.routing is not None and bool(workload.routing.plugins),
        "dead_letters": workload.dead_letters is not None,
        "single_active_consumer": workload.single_active_consumer,
        "copy_every": workload.copy_every is not None,
        "leaders_on": bool(workload.leaders_on),
    }
    for other in (other for other, stated in others.items() if stated):
        yield f"{other} does not go with {name}: a queue is where its consumer is, and there once that has connected"
