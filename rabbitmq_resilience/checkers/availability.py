"""Check that a queue goes on confirming while its majority is up."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.cluster_forms import forms
from rabbitmq_resilience.checkers.columns import Array
from rabbitmq_resilience.checkers.exclusive_owners import lacking_of
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.lateness import of_this_machine
from rabbitmq_resilience.checkers.liveness import pauses, promises
from rabbitmq_resilience.checkers.message_ledger import ledger_of
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.oracle import noticed_within_s
from rabbitmq_resilience.checkers.own_messages import OwnMessages
from rabbitmq_resilience.checkers.patience import PATIENCE_S, patience_of_s, patience_s, tried_in_vain
from rabbitmq_resilience.checkers.spacing import Spacing
from rabbitmq_resilience.checkers.times import Period, later, left, periods, union
from rabbitmq_resilience.checkers.traffic import TICK_US, Traffic
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.unreachable_clients import publishers_cut_off
from rabbitmq_resilience.checkers.verdict import (
    EXAMPLES_MAX,
    Coverage,
    Finding,
    History,
    InvariantSpec,
    Number,
    Verdict,
)
from rabbitmq_resilience.model.durations import TICKS_MAX

#: A queue that refuses messages for a smaller part of its stall also had another cause to stand still.
REFUSED_MIN = 0.75
#: If confirms come often, shorter silence says nothing.
STANDS_STILL_S = 1.0


class Availability(InvariantSpec):
    """From the start of the steady phase to the end of publishing, no queue is without a confirm for longer than
    ``stall_s_max``. The default is the time to notice a fault, and 15 s for clients to give up and for leaders to be
    elected. If nodes without a majority do not pause, or pause late (from 4.0 on), publishers may try several nodes in
    vain, and each costs ``confirm_timeout_s``. Then the default has this time for less than half of the nodes and 5 s
    instead, if that is more than 15 s. Noticing takes 1.25 times ``net_ticktime``. For quorum queues in clusters with
    metadata in Khepri it takes at most twice the poll interval of Raft's failure detector: 5 s, or
    ``raft.adaptive_failure_detector.poll_interval`` in the topology's ``settings``. Messages that were under way at
    the end are waited for.

    Nodes that see each other only in part are no majority, unless they need not pause for that, and all copies of the
    queue, or its leader according to the looks before and after, are on nodes that see all others.

    Noticing a fault and electing a leader are part of the stall. A queue may stand still only while it has no majority,
    while a step's alarm blocks publishers, or while steps killed all its publishers or left them no way to a node that
    serves, and ``grace_s`` after that. An exclusive queue may also stand still while steps did so to its consumer. A
    node that goes away by itself excuses nothing, unless it had a reason to pause. Time in which the load pauses does
    not count; at all other times every queue is taken to have publishers that reach it. If messages of a queue are due
    more than a second apart, by the load's target or as they mostly came, a stall begins when the next message was due.
    A message to several queues is confirmed when all have it. So a queue may also stand still while a queue that shares
    messages with it has no majority, except while a message waits that goes to no such queue and was sent while its
    publisher had less than 32 messages to such queues under way (``quorum_commands_soft_limit`` lets as many into a
    channel). Stalls are known to some hundredths of a second.

    A stall that is cut short, by the end of publishing or by time in which the queue may stand still, might have become
    too long. So the verdict is UNKNOWN if a queue confirmed nothing after the last healing, or in a whole stretch that
    ends with such time, or at the end of publishing for longer than usual. If its messages are due more than a second
    apart, the last case needs a message that waited for over a second.

    A stall that is too long, but not twice as long as allowed, is UNKNOWN if a broker with a copy of the queue waited
    for a processor of this machine for long enough to explain the excess, or while other programs take much of this
    machine. If no confirm ended the stall, it is UNKNOWN only if such a broker waited for half of the time or more.

    ``refused_ratio`` is reported, not judged: the part of a too long stall in which refusals of its messages came one
    after another; the smallest of several.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "faults_begun"})

    stall_s_max: Annotated[float, Field(gt=0)] | None = None
    grace_s: Annotated[float, Field(ge=0)] = 15

    def bound_s(self, net_ticktime_s: float) -> float:
        """Return ``stall_s_max``, or the time of missed ticks and 15 s. ``bound_of_s`` may be longer."""
        return TICKS_MAX * net_ticktime_s + PATIENCE_S if self.stall_s_max is None else self.stall_s_max

    def last_confirms_s(self, *, net_ticktime_s: float, confirm_timeout_s: float, nodes: int) -> float:
        """Return the longest bound of any version and queue type in a cluster with that many nodes, and the grace."""
        if self.stall_s_max is not None:
            return self.stall_s_max + self.grace_s
        patience_s = patience_of_s(max(1, tried_in_vain(nodes)), confirm_timeout_s)
        return TICKS_MAX * net_ticktime_s + patience_s + self.grace_s

    def bound_of_s(self, facts: Facts, cluster: ClusterFacts) -> float:
        """Return the bound in seconds: the longest of all queues and of all forms that the cluster may have had."""
        if self.stall_s_max is not None:
            return self.stall_s_max
        found = forms(facts, cluster, facts.publishing_us or (0.0, NEVER_US))
        return max(patience_s(facts, form) + noticed_within_s(form, q) for form in found for q in facts.queues)

    def check(self, history: History) -> Finding:
        facts, ledger = history.facts, ledger_of(history)
        traffic = ledger.traffic
        if not facts.heeds_confirms:
            return Finding(Verdict.UNKNOWN, "publishers await no confirms, so what a queue took is not known")
        if facts.cluster is None or traffic is None or not facts.queues:
            return Finding(Verdict.UNKNOWN, "the events do not state the cluster, its queues and when they were used")
        bound_s = self.bound_of_s(facts, facts.cluster)
        idle = tuple(periods(pauses(facts, traffic.span_us)))
        judged = []
        companions, spacing = ledger.companions(), Spacing.of(facts, ledger)
        span_us = traffic.span_us[0], max(traffic.span_us[1], *traffic.waited_us.values(), 0)
        promised = promises(facts, facts.cluster, span_us)
        lacking = {
            index: lacking_of(facts, facts.cluster, promised, queue, grace_s=self.grace_s)
            for index, queue in enumerate(facts.queues)
        }
        own = OwnMessages.of(history, {index: lacking[index] for index in companions.keys() & lacking.keys()})
        for index, queue in facts.published_queues.items():
            seen = _Confirms.of(traffic, index, idle, alone=not companions.get(index), spacing=spacing)
            its = lacking[index] | later(publishers_cut_off(facts, ledger, index), end_us=self.grace_s * 1e6)
            of_others = union(lacking[other] for other in companions.get(index, ()) if other in lacking) - its
            demanded = left(seen.span_us, its | of_others)
            waits = [
                seen.stall(queue.name, wait)
                for period in periods(of_others)
                for wait in own.stalls(index, period, seen.moments, over_us=bound_s * 1e6)
            ]
            stalls = [stall for stall in waits if stall.length_s > bound_s]
            judged.append(_judged(queue.name, seen, demanded, facts, bound_s, stalls))
        return _finding(facts, judged, bound_s)


@dataclass(frozen=True)
class _Stall:
    """A stall of a queue. ``length_s`` excludes ``idle``, the time in which the load paused. ``ended``: a confirm ended
    it. ``refused``: the part of it in which refusals came one after another."""

    queue: str
    start_us: float
    end_us: float
    length_s: float
    ended: bool
    refused: float
    idle: Sequence[Period]

    def __lt__(self, other: _Stall) -> bool:
        return self.length_s < other.length_s

    def describe(self, facts: Facts) -> str:
        text = (
            f"{self.length_s:g} s on {self.queue} from {facts.at(self.start_us)}, "
            f"phase {facts.phase_at(self.start_us)}, {facts.faults_during(self.start_us, self.end_us)}"
        )
        return text if self.refused < REFUSED_MIN else f"{text}; messages were refused for most of it"


@dataclass(frozen=True, eq=False)
class _Confirms:
    """The confirms of a queue. All moments are middles of ticks. ``span_us``: from the start of the steady phase to the
    end of publishing. If messages were under way then, it ends when the first was confirmed or the last given up.
    ``refused_us``: ticks with refused messages that went to no other queue; of other messages it is not known which
    queue refused. ``due_us``: ticks in which messages were due. ``seldom_us``: how far apart these are if that is over
    a second, else 0. ``waiting``: for each tick, whether messages were under way after it."""

    moments: Array
    span_us: Period
    idle: Sequence[Period]
    refused_us: Array
    due_us: Array
    seldom_us: float
    waiting: Array

    @classmethod
    def of(cls, traffic: Traffic, queue: int, idle: Sequence[Period], *, alone: bool, spacing: Spacing) -> _Confirms:
        flow, (start_us, end_us) = traffic.flows.get(queue), traffic.span_us
        none = np.zeros(0)
        late = [traffic.late_us[queue]] if queue in traffic.late_us else []

        def middles(ticks: Array) -> Array:
            return start_us + (np.flatnonzero(ticks) + 0.5) * TICK_US

        due_us = middles(none if flow is None else flow.due)
        apart_us = spacing.of_queue_us(due_us)
        return cls(
            np.concatenate((middles(none if flow is None else flow.confirms), late)),
            (start_us, traffic.waited_us.get(queue, end_us)),
            idle,
            middles(traffic.nacks.get(queue, none) if alone else none),
            due_us,
            apart_us if apart_us > STANDS_STILL_S * 1e6 else 0.0,
            np.zeros(1, np.bool_) if flow is None else np.cumsum(flow.under_way) > 0,
        )

    def within(self, period: Period) -> Array:
        return self.moments[(self.moments > period[0]) & (self.moments <= period[1])]

    def lasts_s(self, start_us: float, end_us: float) -> float:
        """Return the seconds without the pauses of the load. So a queue that is dead before and after a pause stands
        still all the time."""
        return seconds(end_us - start_us - sum(max(0, min(end_us, e) - max(start_us, s)) for s, e in self.idle))

    def stalls(self, queue: str, period: Period, *, over_s: float, usual_s: float) -> Iterator[_Stall]:
        """Yield the longest stall of the period, and all others over ``over_s``. A stall lies between confirms, or
        between a confirm and an end of the period."""
        edges = np.concatenate(([period[0]], self.within(period), [period[1]]))
        begins, ends = self._tried(edges[:-1], edges[1:]), edges[1:]
        lengths = ends - begins - (self._paused(ends) - self._paused(begins))
        longest = int(np.argmax(lengths))
        for one in sorted({longest, *np.flatnonzero(lengths > over_s * 1e6).tolist()}):
            start_us, end_us = float(begins[one]), float(ends[one])
            length_s, ended = seconds(float(lengths[one])), one < len(lengths) - 1
            refused = self._refused((start_us, end_us), usual_s)
            yield _Stall(queue, start_us, end_us, length_s, ended, refused, self.idle)

    def stall(self, queue: str, period: Period) -> _Stall:
        """Return the period as a stall of the queue."""
        ended = bool((self.moments >= period[1]).any())
        return _Stall(queue, *period, self.lasts_s(*period), ended, 0.0, self.idle)

    def _paused(self, moments_us: Array) -> Array:
        """Return how long the load had paused in all before each of the moments, in microseconds."""
        return sum((np.clip(moments_us - start, 0, end - start) for start, end in self.idle), np.zeros(len(moments_us)))

    def _tried(self, edges: Array, ends: Array) -> Array:
        """Return when the queue was first tried after each edge: when the next message was due, or at the latest had to
        be. A queue that is used often is tried all the time."""
        if not self.seldom_us:
            return edges
        due_us = np.append(self.due_us, np.inf)
        first_us = due_us[np.searchsorted(self.due_us, edges, side="right")]
        ticks = np.clip((edges - self.span_us[0]) // TICK_US, 0, len(self.waiting) - 1).astype(int)
        at_last_us = edges + self.seldom_us
        for _ in self.idle:  # while the load pauses no message becomes due
            at_last_us = edges + self.seldom_us + self._paused(at_last_us) - self._paused(edges)
        tried_us = np.minimum(np.minimum(first_us, at_last_us), ends)
        return np.where(self.waiting[ticks], edges, tried_us)

    def _refused(self, stall: Period, usual_s: float) -> float:
        """Return the part of the stall in which refusals came no further apart than confirms usually do."""
        within = self.refused_us[(self.refused_us > stall[0]) & (self.refused_us < stall[1])]
        if not within.size:
            return 0.0
        lengths_s = [self.lasts_s(*pair) for pair in itertools.pairwise([stall[0], *within, stall[1]])]
        whole_s = sum(lengths_s)
        return float(sum(length_s for length_s in lengths_s if length_s <= usual_s) / whole_s) if whole_s else 0.0

    def open_s(self, period: Period) -> float:
        """Return the seconds without confirm at the end of the period; of a seldom used queue since it was tried."""
        since_us = np.array([max([period[0], *self.within(period)[-1:]])])
        return self.lasts_s(float(self._tried(since_us, np.array([period[1]]))[0]), period[1])

    def silent_s(self, usual_s: float) -> float:
        """Return how long an open stall may be before it counts as cut short, in seconds."""
        return STANDS_STILL_S if self.seldom_us else usual_s

    def usual_s(self, steady_us: Period) -> float:
        """Return how long the queue may be silent without standing still: twice its longest silence in the steady
        phase. If it confirmed only once in that phase, its silence lasted until the next confirm."""
        moments = self.within(steady_us)
        if len(moments) == 1:
            moments = self.moments[self.moments >= moments[0]][:2]
        return max(STANDS_STILL_S, 2 * seconds(float(np.max(np.diff(moments)))) if len(moments) > 1 else 0.0)


@dataclass(frozen=True)
class _Judged:
    """The judgement of one queue; ``unseen`` states in words what cannot be known."""

    stalls: Sequence[_Stall]
    unseen: Sequence[str]
    demanded_s: float
    judged_s: float


def _judged(  # noqa: PLR0917 - all that one queue is judged by
    queue: str, seen: _Confirms, demanded: Sequence[Period], facts: Facts, bound_s: float, more: Sequence[_Stall]
) -> _Judged:
    chaos_us = facts.phases.get("chaos", seen.span_us[1])
    usual_s = seen.usual_s((seen.span_us[0], chaos_us))
    stalls = [stall for period in demanded for stall in seen.stalls(queue, period, over_s=bound_s, usual_s=usual_s)]
    open_s = [seen.open_s(period) for period in demanded]
    cut_short = [s if seen.silent_s(usual_s) < s <= bound_s else 0.0 for s in open_s]
    whole_s = [seen.lasts_s(*period) for period in demanded]
    unseen = [
        f"{queue} confirmed nothing from {facts.at(start)} to {facts.at(end)}, {facts.faults_during(start, end)}, "
        f"and may stand still after that; let steps lie {bound_s:g} s and more apart"
        for (start, end), cut_s in zip(demanded, cut_short, strict=True)
        if cut_s and not len(seen.within((start, end)))
    ]
    unseen = [*_end_unseen(queue, seen, facts, usual_s, bound_s), *unseen]
    return _Judged([*stalls, *more], unseen, sum(whole_s), sum(whole_s) - sum(cut_short))


def _end_unseen(queue: str, seen: _Confirms, facts: Facts, usual_s: float, bound_s: float) -> Iterator[str]:
    end_us = seen.span_us[1]
    healed_us = facts.last_healed_us
    longer = f"let the load go on for more than {bound_s:g} s after recovery (phases.settled_s)"
    open_s = seen.open_s(seen.span_us)
    if open_s > seen.silent_s(usual_s):
        began_us = max([seen.span_us[0], *seen.moments[-1:]])
        yield f"{queue} confirmed nothing from {facts.at(began_us)} until publishing ended {open_s:g} s later; {longer}"
    elif healed_us is not None and not len(seen.within((healed_us, max(healed_us, end_us)))):
        yield f"{queue} confirmed nothing after the last healing at {facts.at(healed_us)}; {longer}"


def _finding(facts: Facts, judged: Sequence[_Judged], bound_s: float) -> Finding:
    least = max(judged, key=lambda one: one.demanded_s - one.judged_s)
    coverage = Coverage(round(least.judged_s, 3), round(least.demanded_s, 3))
    stalls = sorted((stall for one in judged for stall in one.stalls), reverse=True)
    if not stalls:
        return Finding(Verdict.UNKNOWN, "no queue had a majority for long enough to be judged", coverage=coverage)
    longest = stalls[0]
    queues_judged = sum(bool(one.stalls) for one in judged)
    refused = [stall.refused for stall in stalls if stall.length_s > bound_s]
    excused = {stall: _excuse(facts, stall, bound_s) for stall in stalls if stall.length_s > bound_s}
    numbers: dict[str, Number] = {
        "stall_s": longest.length_s,
        "stall_start_s": facts.since_start_s(longest.start_us),
        "queue": longest.queue,
        "queues_judged": queues_judged,
        "refused_ratio": round(min(refused), 3) if refused else None,
        "stalls_too_long": len(excused),
        "stalls_excused": sum(map(bool, excused.values())),
    }
    summary = f"the longest stall that no step excuses was {longest.describe(facts)}; allowed are {bound_s:g} s"
    too_long = [stall.describe(facts) for stall, excuse in excused.items() if not excuse]
    of_machine = [f"{stall.describe(facts)}; {excuse}" for stall, excuse in excused.items() if excuse]
    unseen = [*of_machine, *(text for one in judged for text in one.unseen)]
    if too_long or not unseen:
        verdict = Verdict.INVALID if too_long else Verdict.VALID
        return Finding(verdict, summary, numbers, tuple(too_long[:EXAMPLES_MAX]), coverage)
    summary = f"{unseen[0]}; in the observed time, {summary}"
    return Finding(Verdict.UNKNOWN, summary, numbers, tuple(unseen[:EXAMPLES_MAX]), coverage)


def _excuse(facts: Facts, stall: _Stall, bound_s: float) -> str:
    members = next(queue.members for queue in facts.queues if queue.name == stall.queue)
    span = stall.start_us, stall.end_us
    return of_this_machine(facts, members, *span, allowed_s=bound_s, came=stall.ended, without=stall.idle)
