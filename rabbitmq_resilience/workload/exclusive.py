"""Check workloads whose consumers declare the queues: exclusive queues, and queues that expire.

An exclusive queue belongs to a connection and is gone with it. A queue expires after a time without a consumer.

Sources: RabbitMQ, "Queues" (exclusive queues: other connections may publish to one, but neither consume from it nor
declare, purge or delete it), and "Time-To-Live and Expiration" (queue TTL).
"""

from __future__ import annotations

from collections.abc import Iterator

from rabbitmq_resilience.workload.workload_fields import WorkloadFields

#: The types of such queues in a record.
EXCLUSIVE = "exclusive"
EXPIRING = "expiring"
#: Brokers may notice two heartbeats earlier than the client that a connection is gone (``checkers.exclusive_owners``).
HEARTBEAT_MAX_S = 5


def owner_problems(workload: WorkloadFields) -> Iterator[str]:
    """Yield the fields that contradict ``exclusive: true``, or ``redeclare: true``."""
    name = "exclusive" if workload.exclusive else "redeclare"
    expires = workload.limits is not None and workload.limits.expires_ms is not None
    if workload.exclusive and (workload.redeclare or expires):
        stated = "redeclare" if workload.redeclare else "limits.expires_ms"
        yield f"{stated} does not go with exclusive: such a queue is gone with its consumer's connection"
    elif workload.redeclare and not expires:
        yield "redeclare is for queues that expire: say when, such as limits: {expires_ms: 30000}"
    elif workload.redeclare and workload.heartbeat_s > HEARTBEAT_MAX_S:
        yield f"redeclare goes with a heartbeat_s up to {HEARTBEAT_MAX_S}: beyond, it is unknown when a consumer left"
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
        yield f"{other} does not go with {name}: a consumer declares its queue as it connects, on its node"
