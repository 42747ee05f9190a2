"""The partition oracle: what RabbitMQ promises for a cut cluster, by mode, shape of the cut, queue and version.

The oracle has no notion of time. It says what holds once every node has noticed the cut, and what must follow when the
cut heals.

Sources, RabbitMQ documentation of 3.13, the last that describes all modes: "Clustering and Network Partitions" (modes,
split brain, autoheal), "Quorum Queues" (a majority of members), "Classic Queue Mirroring" (a mirror is promoted on each
side), and of 4.3: "Clustering and Network Partitions" (no mode has an effect any more). Partial partitions:
rabbit_node_monitor of 3.10, ``partial_partition``, which logs "Partial partition detected".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.cluster_states import ClusterSide, ClusterState
from rabbitmq_resilience.checkers.facts import QueueFacts
from rabbitmq_resilience.model.durations import TICKS_MAX

#: What follows once the cut is healed. ``whole``: paused nodes come back and no change is undone. ``restarts``: all
#: sides but one restart and take over the state of that one. ``split``: the nodes do nothing until an operator restarts
#: a side.
Aftermath = Literal["whole", "restarts", "split"]


@dataclass(frozen=True)
class PartitionOutcome:
    """The predicted reaction of a cluster to a cut.

    ``pauses``: these nodes pause until the cut is healed. ``one_pauses``: at least one node of each group pauses.
    ``may_pause``: these nodes may pause in addition, and no others. ``sides``: the groups of nodes that continue.
    """

    pauses: ClusterSide
    one_pauses: tuple[ClusterSide, ...]
    may_pause: ClusterSide
    sides: tuple[ClusterSide, ...]
    aftermath: Aftermath


@lru_cache(maxsize=4096)
def predict(cluster: ClusterFacts, world: ClusterState) -> PartitionOutcome:
    """Predict what the cluster does in this ``world`` once every node has noticed it.

    The results are cached: an hour of faults has hundreds of moments and few worlds, and every queue asks about each.
    """
    pauses: set[str] = set()
    doubtful: set[str] = set()
    groups: list[ClusterSide] = []
    for component in world.components:
        lonely = {node for node in component if _must_pause(cluster, world, node)}
        pauses |= lonely
        partial = world.cut_within(component)
        if not partial:
            continue
        doubtful |= component
        if cluster.pauses_minorities:
            groups += [pair for pair in sorted(partial, key=sorted) if not pair & lonely]
    whole = [c for c in world.components if not world.cut_within(c) and not c & pauses]
    split = len(whole) > 1 or (bool(doubtful) and not cluster.pauses_minorities)
    return PartitionOutcome(
        pauses=frozenset(pauses),
        one_pauses=tuple(groups),
        may_pause=frozenset(doubtful - pauses if cluster.pauses else ()),
        sides=tuple(whole),
        aftermath=_aftermath(cluster) if split else "whole",
    )


def _must_pause(cluster: ClusterFacts, world: ClusterState, node: str) -> bool:
    """Return whether ``node`` must pause. A node counts only the peers that it reaches directly."""
    reach = world.reach_of(node)
    if cluster.pauses_minorities:
        return 2 * len(reach) <= len(cluster.nodes)
    if cluster.pauses_without_preferred:
        return not reach & cluster.preferred
    return False


def _aftermath(cluster: ClusterFacts) -> Aftermath:
    if not cluster.handles_partitions:
        return "whole"
    return "restarts" if cluster.heals_splits else "split"


#: An election waits for this many readings of Raft's failure detector at most (RabbitMQ, "Clustering", wide area
#: networks: up to roughly twice the poll interval).
DETECTOR_POLLS = 2


def noticed_within_s(cluster: ClusterFacts, queue: QueueFacts) -> float:
    """Return how long a leader that went silent may stay unnoticed by the other members of its queue, in seconds.

    Quorum queues elect another leader by Raft's own detector. They do so earlier if the silent node is taken for dead
    before, as with a short ``net_ticktime``. If metadata is in Mnesia, its transactions may wait until the silent node
    is taken for dead.
    """
    ticks_s = TICKS_MAX * cluster.net_ticktime_s
    if queue.kind != "quorum" or cluster.handles_partitions:
        return ticks_s
    return min(ticks_s, DETECTOR_POLLS * cluster.detector_poll_s)


def members_needed(queue: QueueFacts) -> int:
    """Return how many members must be reached for a message to be written and confirmed."""
    return len(queue.members) // 2 + 1 if queue.kind == "quorum" else 1


def writable_from(queue: QueueFacts, cluster: ClusterFacts, world: ClusterState) -> tuple[ClusterSide, ...]:
    """Return the sides through whose nodes the queue takes messages and confirms them.

    A quorum queue needs more than half of its members on one side. A mirrored queue needs a mirror, which is promoted
    there. A classic queue needs its only copy. If copies move, only the copies count that have no place on another
    side. The oracle does not model which mirrors are synchronised. A component in which some nodes do not see each
    other promises nothing, with one exception: no node pauses for it, and all copies are on nodes that see all others.
    """
    sides = [
        *predict(cluster, world).sides,
        *(c for c in _unhandled(cluster, world) if not c & queue.holders - _hubs(c, world)),
    ]
    return tuple(side for side in sides if _members_in(side, queue) >= members_needed(queue))


def served_if_led_by(queue: QueueFacts, cluster: ClusterFacts, world: ClusterState) -> ClusterSide:
    """Return the nodes that let the queue take and confirm messages while they lead it.

    Members that do not see each other still follow a leader that all of them see, if no node pauses because of the cut.
    """
    served = [*writable_from(queue, cluster, world)]
    enough = (c for c in _unhandled(cluster, world) if _members_in(c, queue) >= members_needed(queue))
    return frozenset().union(*served, *(_hubs(component, world) for component in enough))


def _unhandled(cluster: ClusterFacts, world: ClusterState) -> tuple[ClusterSide, ...]:
    """Return the components in which some nodes do not see each other, if the mode does nothing about it."""
    return () if cluster.handles_partitions else tuple(c for c in world.components if world.cut_within(c))


def _hubs(component: ClusterSide, world: ClusterState) -> ClusterSide:
    """Return the nodes of a component that see all others of it."""
    return component.difference(*world.cut_within(component))


def _members_in(side: ClusterSide, queue: QueueFacts) -> int:
    """Return how many members of the queue are on ``side`` at least."""
    if queue.elsewhere:
        return len(queue.members) - len(queue.holders - side)
    return len(queue.members & side)
