"""Decide when a queue must take messages, and when it is sent some: the model that all checkers share.

A queue must take messages while three conditions hold. It is writable from some side (``checkers.oracle``). Its
cluster is not being repaired after a split that its mode allows. No step keeps an alarm raised for which brokers block
publishers. A queue is sent no messages while the load pauses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.cluster_forms import forms
from rabbitmq_resilience.checkers.cluster_states import ClusterSide
from rabbitmq_resilience.checkers.facts import Facts, QueueFacts
from rabbitmq_resilience.checkers.fault_timeline import FaultTimeline, Moment, truth_of
from rabbitmq_resilience.checkers.gaps import UNSEEN_S_MAX
from rabbitmq_resilience.checkers.instability import leaders
from rabbitmq_resilience.checkers.observed_faults import NEVER_US, ObservedFault
from rabbitmq_resilience.checkers.oracle import served_if_led_by, writable_from
from rabbitmq_resilience.checkers.pauses import pauses_of
from rabbitmq_resilience.checkers.splits import splits
from rabbitmq_resilience.checkers.times import Period, Times, later, times, union


@dataclass(frozen=True)
class Promises:
    """The promises of a cluster to its queues, computed once for all of them.

    ``moments``: the possible states of the cluster; nodes that paused for a reason count as away. ``never``: the times
    in which no queue is promised to take messages.
    """

    facts: Facts
    cluster: ClusterFacts
    moments: Sequence[Moment]
    never: Times
    _lacking: dict[tuple[QueueFacts, float], Times] = field(default_factory=dict, init=False, repr=False)
    _doubted: dict[QueueFacts, Sequence[tuple[Period, ClusterSide]]] = field(
        default_factory=dict, init=False, repr=False
    )

    def lacking(self, queue: QueueFacts, *, grace_s: float) -> Times:
        """Return when ``queue`` may stand still: while it is perhaps not promised, and ``grace_s`` after that."""
        if queue.placed not in self._doubted:
            self._doubted[queue.placed] = list(self._doubts(queue))
        doubted = self._doubted[queue.placed]
        key = queue if any(served for _, served in doubted) else queue.placed, grace_s
        if key not in self._lacking:
            bad = union(times([period]) - led_by(self.facts, queue.name, served) for period, served in doubted)
            self._lacking[key] = later(bad | self.never, end_us=grace_s * 1e6)
        return self._lacking[key]

    def _doubts(self, queue: QueueFacts) -> Iterator[tuple[Period, ClusterSide]]:
        """Yield (period, nodes): in the period, queues with this placement may take nothing, except while one of the
        nodes leads them."""
        for moment in self.moments:
            cases = [(queue, form, world) for form in self.forms(moment) for world in moment.worlds]
            if not all(itertools.starmap(writable_from, cases)):
                yield (
                    (moment.start_us, moment.end_us),
                    frozenset.intersection(*itertools.starmap(served_if_led_by, cases)),
                )

    def forms(self, moment: Moment) -> Sequence[ClusterFacts]:
        """Return the forms that the cluster may have had at that moment."""
        return forms(self.facts, self.cluster, (moment.start_us, moment.end_us))


def led_by(facts: Facts, queue: str, nodes: ClusterSide) -> Times:
    """Return when one of the nodes surely led the queue: between two close looks that both show it as leader."""
    looks = itertools.pairwise(leaders(facts).get(queue, ())) if nodes else ()
    return times(
        (t_us, next_us)
        for (t_us, leader), (next_us, other) in looks
        if leader == other and leader in nodes and next_us - t_us <= UNSEEN_S_MAX * 1e6
    )


def promises(facts: Facts, cluster: ClusterFacts, span_us: Period) -> Promises:
    """Return the promises of the cluster in that span. Nodes that paused for a reason count as down."""
    return facts.once(_promises, cluster, span_us)


def _promises(facts: Facts, cluster: ClusterFacts, span_us: Period) -> Promises:
    paused = FaultTimeline(
        facts, cluster, [*truth_of(facts, cluster).steps, *pauses_of(facts, cluster, span_us).excused]
    )
    never = times([*_unmended(facts, cluster, span_us), *_blocked(facts)])
    return Promises(facts, cluster, tuple(paused.moments(span_us)), never)


def _unmended(facts: Facts, cluster: ClusterFacts, span_us: Period) -> Iterable[Period]:
    """Yield the times after a split that brokers do not heal, until an operator has taken all nodes of a side away."""
    for split in splits(facts, cluster, span_us) if not cluster.heals_splits else ():
        yield split.apart_us[1], split.ended_us


def _blocked(facts: Facts) -> Iterable[Period]:
    """Yield when publishers were seen blocked while a step may have blocked them: until the step is healed."""
    for step in facts.steps:
        for start, end in facts.blocked_us if step.blocks_publishers else ():
            common = max(start, step.possible_us[0]), min(end, step.possible_us[1])
            if common[0] < common[1]:
                yield common


def pauses(facts: Facts, span_us: Period) -> Times:
    """Return when the load pauses by its own steps, so that no queue is sent messages."""
    return times((start, end) for start, end, rate_per_s in facts.rate.pieces(*span_us) if rate_per_s == 0)


def target_share(facts: Facts, period_us: Period, *, steady_per_s: float, most: float = math.inf) -> float:
    """Return the mean target of that time divided by the target of the steady phase, or, if that phase had none, by the
    rate that it reached.

    A time without a limit counts as 1. It is more than 1 while the load peaks; at each moment it counts as ``most`` at
    most.
    """
    usual_per_s = facts.rate.plain or steady_per_s
    shares = (
        (end - start, 1.0 if rate_per_s is None else min(most, rate_per_s / usual_per_s))
        for start, end, rate_per_s in facts.rate.pieces(*period_us)
    )
    return sum(long_us * share for long_us, share in shares) / (period_us[1] - period_us[0])


def _is_restless(step: ObservedFault, *, mirrored: bool) -> bool:
    """Return whether changes go on unseen as long as the step lasts. Nodes that it takes away in turns are seen."""
    unseen = step.effect.intermittent and (step.cut or step.starved or not step.down)
    return bool(unseen or (step.effect.operation and mirrored))


def unsettled(facts: Facts, cluster: ClusterFacts, span_us: Period, *, grace_s: float, lost_grace_s: float) -> Times:
    """Return the times after each change of nodes or links; an intermittent cut makes changes again and again.

    They last ``lost_grace_s`` if a node or a link was lost and stays lost, which must first be noticed, else
    ``grace_s``. A node's pause belongs to its cut, but its return is a change. A rebalancing of mirrored queues is a
    change too: mirrors of a queue that moves join again. They are synchronised after the rebalancing has ended, and
    during that time the queue takes nothing.
    """
    moments = itertools.groupby(truth_of(facts, cluster).moments(span_us), key=lambda moment: moment.worst)
    worst = [(next(same).start_us, world) for world, same in moments]
    changes = [start_us for start_us, _ in worst[1:]]
    excused = [pause.possible_us for pause in pauses_of(facts, cluster, span_us).excused]
    changes += [end_us for _, end_us in excused]
    changing = [(at_us, at_us + grace_s * 1e6) for at_us in changes]
    for i, ((_, before), (start_us, now)) in enumerate(itertools.pairwise(worst)):
        if now.lost_since(before):
            found_us = next((at_us for at_us, world in worst[i + 2 :] if not world.lost_since(before)), NEVER_US)
            # A link may be whole again while the node that paused for it is not up yet.
            found_us = max(
                [found_us, *(end_us for from_us, end_us in excused if start_us <= from_us <= found_us < end_us)]
            )
            changing.append((start_us, min(start_us + lost_grace_s * 1e6, found_us)))
    mirrored = any(queue.kind == "mirrored" for queue in facts.queues)
    restless = times(step.possible_us for step in facts.steps if _is_restless(step, mirrored=mirrored))
    return times(changing) | later(restless, end_us=grace_s * 1e6)
