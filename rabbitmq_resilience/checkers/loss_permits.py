"""Find messages that may be lost after a split: those that the sides which gave way had confirmed."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.facts import Facts, QueueFacts
from rabbitmq_resilience.checkers.fault_timeline import FaultTimeline, truth_of
from rabbitmq_resilience.checkers.loss_explanations import CHOICES_MAX
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.splits import Split, splits
from rabbitmq_resilience.checkers.times import NEVER, Period, Times, periods, times, union


@dataclass(frozen=True)
class LossPermit:
    """A permit to lose messages of the queue of this index that the node of this index confirmed in these times."""

    queue: int
    node: int
    confirmed_us: Times


def permits_loss(cluster: ClusterFacts, queue: QueueFacts) -> str:
    """Return why messages may be lost that one side of a split confirmed.

    It is empty if the mode allows no splits, or if splits do not affect the queue.
    """
    if queue.kind != "mirrored" or not cluster.splits:
        return ""
    return (
        f"{cluster.partition_handling} lets both sides of a mirrored queue confirm, and keeps what one of them has "
        '(RabbitMQ, "Clustering and Network Partitions")'
    )


def loss_permits(facts: Facts, queues: Collection[int]) -> Iterator[tuple[str, tuple[tuple[LossPermit, ...], ...]]]:
    """Yield (reason, sets of permits) for each time that a side of a split gave way, and for each group of ``queues``.

    Exactly one of the sets holds. The same side gave way for all queues with the same placement. For other queues it
    may be another side: if all nodes went away at once, the last of a queue's own nodes decides; if some stayed, the
    recorded states of the nodes decide. Messages that were not confirmed need no permit.

    If copies move, the nodes that had them are not known. Then one item covers all splits that follow from each other,
    with one set for each possible course.
    """
    cluster, span_us = facts.cluster, facts.publishing_us
    if cluster is None or span_us is None:
        return
    together: dict[QueueFacts | int, list[int]] = defaultdict(list)
    for index in sorted(queues):
        queue = facts.queues[index]
        together[index if queue.elsewhere else queue.placed].append(index)
    for alike in together.values():
        queue = facts.queues[alike[0]]
        reason = permits_loss(cluster, queue)
        for choices in facts.once(_choices_of, cluster, span_us, queue.placed) if reason else ():
            yield (
                reason,
                tuple(
                    tuple(LossPermit(index, node, when) for index in alike for node, when in choice)
                    for choice in choices
                ),
            )


#: For each node, by its index, the times whose confirms may be lost; all of them hold together.
_Choice = tuple[tuple[int, Times], ...]


def _choices_of(facts: Facts, cluster: ClusterFacts, span_us: Period, queue: QueueFacts) -> list[tuple[_Choice, ...]]:
    """Return the possible choices for each time that has to be explained by itself."""
    found = splits_of(facts, cluster, span_us, queue)
    if not queue.elsewhere:
        return [choices for each in found for choices in _choices(cluster, each)]
    together = _that_overlap(found)
    ways = ({way for each in one for way in _ways(_choices(cluster, each))} for one in together)
    return [tuple(sorted(all_ways, key=repr)) for all_ways in ways]


def splits_of(facts: Facts, cluster: ClusterFacts, span_us: Period, queue: QueueFacts) -> list[tuple[Split, ...]]:
    """Return the splits of a queue for each possible placement of its copies.

    Copies stay where they were declared until one of those nodes may be away, or apart from the others.
    """
    moved_us = copies_move_us(truth_of(facts, cluster), queue)
    found = []
    for holders in queue.placements:
        its = splits(facts, cluster, span_us, holders)
        found.append(tuple(split for split in its if holders == queue.members or split.apart_us[1] > moved_us))
    return found


def copies_move_us(truth: FaultTimeline, queue: QueueFacts) -> float:
    """Return the moment from which copies may have moved; NEVER_US if they cannot."""
    if not queue.elsewhere:
        return NEVER_US
    disturbed = [truth.away[node].possibly for node in queue.members & truth.away.keys()]
    disturbed += [both.possibly for pair, both in truth.cut.items() if pair <= queue.members]
    seen_us = (
        t_us for t_us, states in truth.facts.node_states if any(states.get(n, "up") != "up" for n in queue.members)
    )
    return min([start for start, _ in periods(union(disturbed))] + [next(seen_us, NEVER_US)])


def _choices(cluster: ClusterFacts, found: Iterable[Split]) -> Iterator[tuple[_Choice, ...]]:
    """Yield the possible choices for each time that a side gave way."""
    for split in found:
        for round_ in split.rounds:
            choices = {
                tuple(
                    (cluster.nodes.index(node), when)
                    for node, when in sorted(split.lost_with(survivor, round_).items())
                )
                for survivor in round_.survivors
            }
            yield tuple(sorted(choices, key=repr))


def _ways(rounds: Iterable[tuple[_Choice, ...]]) -> Iterator[_Choice]:
    """Yield each combination of one choice for each time; if there are too many, one that permits everything."""
    rounds = list(rounds)
    if math.prod(map(len, rounds)) > CHOICES_MAX:
        rounds = [(tuple(permit for choice in choices for permit in choice),) for choices in rounds]
    for chosen in itertools.product(*rounds):
        when: dict[int, Times] = defaultdict(lambda: NEVER)
        for node, lost in itertools.chain(*chosen):
            when[node] |= lost
        yield tuple(sorted(when.items(), key=lambda item: item[0]))


def _that_overlap(found: Sequence[Sequence[Split]]) -> Iterator[list[list[Split]]]:
    """Yield groups of splits, by placement, that overlap in time."""
    spans = times((split.apart_us[0], split.over_us) for each in found for split in each)
    for start, end in periods(spans):
        yield [[split for split in each if start <= split.apart_us[0] < end] for each in found]
