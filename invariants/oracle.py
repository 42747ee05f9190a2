"""The partition oracle: what RabbitMQ promises of a cluster that is cut, by mode, shape of the cut, queue and version.

It knows nothing of time: it says what holds once every node has noticed the cut, and what must follow when it heals.

Sources, RabbitMQ documentation of 3.13, the last that describes all modes: "Clustering and Network Partitions"
(modes, split brain, autoheal), "Quorum Queues" (a majority of members), "Classic Queue Mirroring" (a mirror is promoted
on each side), and of 4.3: "Clustering and Network Partitions" (no mode has an effect any more). Partial partitions:
rabbit_node_monitor of 3.10, ``partial_partition``, which the log tells as "Partial partition detected".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from invariants.facts import ClusterFacts, QueueFacts
from invariants.situations import Side, Situation

#: What follows once the cut is healed. ``whole``: paused nodes come back and nothing was undone. ``restarts``: all
#: sides but one restart and take over its state. ``split``: nobody does anything until an operator restarts a side.
Aftermath = Literal["whole", "restarts", "split"]


@dataclass(frozen=True)
class Forecast:
    """``pauses``: each of them pauses, and stays so until the cut is healed. ``one_pauses``: of each of these groups at
    least one does. ``may_pause``: nobody else may. ``sides``: the groups of nodes that go on."""

    pauses: Side
    one_pauses: tuple[Side, ...]
    may_pause: Side
    sides: tuple[Side, ...]
    aftermath: Aftermath


def foresee(cluster: ClusterFacts, situation: Situation) -> Forecast:
    """What the cluster does about the cut of ``situation``, whenever it is."""
    return _foreseen(cluster, Situation(0, 0, situation.up, situation.cut))


@lru_cache(maxsize=4096)
def _foreseen(cluster: ClusterFacts, situation: Situation) -> Forecast:
    """An hour of faults has hundreds of situations and few shapes of them, and every queue asks about each."""
    pauses: set[str] = set()
    doubtful: set[str] = set()
    groups: list[Side] = []
    for component in situation.components:
        lonely = {node for node in component if _must_pause(cluster, situation, node)}
        pauses |= lonely
        partial = situation.cut_within(component)
        if not partial:
            continue
        doubtful |= component
        if cluster.pauses_minorities:
            groups += [pair for pair in sorted(partial, key=sorted) if not pair & lonely]
    whole = [c for c in situation.components if not situation.cut_within(c) and not c & pauses]
    split = len(whole) > 1 or (bool(doubtful) and not cluster.pauses_minorities)
    may = pauses | (doubtful if cluster.pauses else set())
    return Forecast(
        pauses=frozenset(pauses),
        one_pauses=tuple(groups),
        may_pause=frozenset(may),
        sides=tuple(whole),
        aftermath=_aftermath(cluster) if split else "whole",
    )


def _must_pause(cluster: ClusterFacts, situation: Situation, node: str) -> bool:
    """A node looks at those that it reaches itself."""
    reach = situation.reach_of(node)
    if cluster.pauses_minorities:
        return 2 * len(reach) <= len(cluster.nodes)
    if cluster.pauses_without_preferred:
        return not reach & cluster.preferred
    return False


def _aftermath(cluster: ClusterFacts) -> Aftermath:
    if not cluster.handles_partitions:
        return "whole"
    heals = cluster.partition_handling == "autoheal" or cluster.recover == "autoheal"
    return "restarts" if heals else "split"


def writable_from(queue: QueueFacts, cluster: ClusterFacts, situation: Situation) -> tuple[Side, ...]:
    """The sides through whose nodes the queue takes messages and confirms them.

    A quorum queue needs more than half of its members on one side; a mirrored one a mirror, which is promoted there;
    a classic one its only copy. Which mirrors are synchronised is not modelled. A component in which not everybody
    sees everybody is promised nothing.
    """
    needed = len(queue.members) // 2 + 1 if queue.kind == "quorum" else 1
    return tuple(side for side in foresee(cluster, situation).sides if len(queue.members & side) >= needed)


def confirms_on_both_sides(queue: QueueFacts, cluster: ClusterFacts, situation: Situation) -> bool:
    return len(writable_from(queue, cluster, situation)) > 1


def permitted_loss(queue: QueueFacts, cluster: ClusterFacts, situation: Situation) -> str:
    """Why messages that the queue confirmed while the cut lasted may be lost after it; empty if none may."""
    forecast = foresee(cluster, situation)
    if queue.kind != "mirrored" or forecast.aftermath == "whole":
        return ""
    partial = any(map(situation.cut_within, situation.components))
    if not partial and not confirms_on_both_sides(queue, cluster, situation):
        return ""
    return (
        f"{cluster.partition_handling} lets both sides of a mirrored queue confirm, and keeps what one of them has "
        '(RabbitMQ, "Clustering and Network Partitions")'
    )
