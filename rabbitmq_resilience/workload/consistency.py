"""Find contradictions between the fields of a workload."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from rabbitmq_resilience.workload import dead_letter_ways
from rabbitmq_resilience.workload.exclusive import owner_problems
from rabbitmq_resilience.workload.workload_fields import WorkloadFields

#: The limit for queues with copies on several nodes: each is declared, watched and has its leader elected by itself.
REPLICATED_QUEUES_MAX = 5_000
#: The limit from 4.3 on. Before 4.3, all priorities above 4 are the same.
QUORUM_PRIORITY_MAX = 31


def problems(workload: WorkloadFields) -> Iterator[str]:
    """Yield a sentence for each contradiction between fields of the workload."""
    letters = workload.dead_letters
    return chain(
        _of_queues(workload),
        _of_consumers(workload),
        owner_problems(workload) if workload.owned else (),
        _of_spread(workload),
        _of_routing(workload),
        dead_letter_ways.problems(letters, workload) if letters is not None else (),
        _of_messages(workload),
    )


def _of_queues(workload: WorkloadFields) -> Iterator[str]:
    if workload.queue_type != "classic" and workload.queues > REPLICATED_QUEUES_MAX:
        yield f"queues: more than {REPLICATED_QUEUES_MAX} go with queue_type: classic only"
    if workload.queue_type != "mirrored" and workload.mirroring is not None:
        yield "mirroring goes with queue_type: mirrored"
    if workload.queue_type != "quorum" and workload.group_size is not None:
        yield "group_size goes with queue_type: quorum"
    if workload.queue_type == "quorum" and workload.lazy:
        yield "lazy goes with queue_type: classic or mirrored; quorum has max_in_memory_length"
    if workload.queue_type != "quorum" and workload.max_in_memory_length is not None:
        yield "max_in_memory_length goes with queue_type: quorum; classic and mirrored have lazy"
    if workload.queue_type != "classic" and not workload.durable:
        yield "durable: false goes with queue_type: classic; others are durable always"


def _of_consumers(workload: WorkloadFields) -> Iterator[str]:
    takes_time = any(group.processing_ms or group.variable_processing for group in workload.groups)
    if workload.acks == "early" and not takes_time:
        yield "acks: early acknowledges before the processing: say how long that takes, in processing_ms"
    if workload.acks == "automatic" and takes_time:
        yield "processing takes time before the acknowledgement: with acks: automatic there is none"
    if workload.ack_every > workload.prefetch:
        yield "ack_every is over prefetch: the consumer would never acknowledge"


def _of_spread(workload: WorkloadFields) -> Iterator[str]:
    spread = workload.spread
    if problem := spread.problem(queues=len(workload.published_queues), publishers=workload.publishers):
        yield problem
    if spread.run > 1 and workload.copy_every is not None:
        yield "copy_every copies one message in N, and spread.run sends several to one queue; leave one of them out"


def _of_routing(workload: WorkloadFields) -> Iterator[str]:
    routing = workload.routing
    if routing is None:
        return
    if workload.spread.channel == "per_queue":
        yield "spread.channel: per_queue does not go with routing, which lets queues share messages"
    if workload.copy_every is not None:
        yield "copy_every does not go with routing, which says where each message goes"
    if routing.plugins and workload.limits is not None:
        yield (
            "limits do not go with a consistent_hash exchange: test messages find out which queue it takes, and no "
            "queue may drop them"
        )
    yield from routing.problems(workload.queue_names)


def _of_messages(workload: WorkloadFields) -> Iterator[str]:
    if workload.message_sizes and workload.message_bytes != type(workload).model_fields["message_bytes"].default:
        yield "message_bytes is one size and message_sizes are several: leave one of them out"
    if workload.queue_type == "quorum" and max(workload.priorities, default=0) > QUORUM_PRIORITY_MAX:
        yield f"quorum queues take priorities up to {QUORUM_PRIORITY_MAX}, not {max(workload.priorities)}"
    if workload.priorities and max(workload.priorities) == 0:
        yield "priorities are all 0, the same as none: leave them out, or write such as [0, 9]"
