"""A queue whose majority is up goes on confirming."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from rabbitmq_resilience.invariants.cluster_forms import forms
from rabbitmq_resilience.invariants.columns import Array
from rabbitmq_resilience.invariants.facts import ClusterFacts, Facts
from rabbitmq_resilience.invariants.kept_away import nobody_could_publish
from rabbitmq_resilience.invariants.lateness import of_this_machine
from rabbitmq_resilience.invariants.ledger import ledger_of
from rabbitmq_resilience.invariants.liveness import pauses, promises
from rabbitmq_resilience.invariants.oracle import noticed_within_s
from rabbitmq_resilience.invariants.own_messages import OwnMessages
from rabbitmq_resilience.invariants.owners import lacking_of
from rabbitmq_resilience.invariants.spacing import Spacing
from rabbitmq_resilience.invariants.steps import NEVER_US
from rabbitmq_resilience.invariants.times import Period, later, left, periods, union
from rabbitmq_resilience.invariants.traffic import TICK_US, Traffic
from rabbitmq_resilience.invariants.units import seconds
from rabbitmq_resilience.invariants.verdict import (
    EXAMPLES_MAX,
    Coverage,
    Finding,
    History,
    InvariantSpec,
    Number,
    Verdict,
)
from rabbitmq_resilience.invariants.worlds import TICKS_MAX
from rabbitmq_resilience.record.events import LoadEvent

#: For clients to lose patience (``confirm_timeout_s`` is 10 s by default) and for leaders to be elected.
PATIENCE_S = 15.0
ELECTED_S, PAUSES_LATE_FROM = 5.0, (4,)  # the part of it for elections; nodes wait for each silent peer from then on
#: A queue that refuses messages for less of its stall had another cause to stand still too.
REFUSED_MIN = 0.75
#: Where confirms come often, shorter silence says nothing.
STANDS_STILL_S = 1.0


class Availability(InvariantSpec):
    """The longest time without any confirm from a queue, between the start of the steady phase and the end of
    publishing, is at most ``stall_s_max``: by default the time to notice a fault, and 15 s for clients to lose patience
    and for leaders to be elected. Where nodes without a majority do not pause, or only late as from 4.0 on, publishers
    may try one after another in vain, and each costs ``confirm_timeout_s``: then it is that for less than half of the
    nodes, and 5 s. Noticing takes 1.25 times ``net_ticktime``; for quorum queues in clusters whose metadata is in
    Khepri it takes no longer than twice the poll interval of Raft's failure detector, which is 5 s or
    ``raft.adaptive_failure_detector.poll_interval`` in the topology's ``settings``. Messages that were under way at
    the end are waited for.

    Of nodes that see each other only in part none is a majority, unless they need not pause for that, and all copies of
    the queue, or the one that leads it by the looks before and after, are on nodes that see all others.

    Noticing a fault and electing a leader are part of the stall. Only while a queue has no majority, a step's alarm
    blocks publishers, or steps killed all its publishers or left them no way to a node that serves, and ``grace_s``
    from then on, may it stand still; an exclusive one while steps did so to its consumer, too. A node that goes away by
    itself excuses nothing, unless it had a reason to pause. Time in which the load pauses does not count; but for that,
    every queue is taken to have publishers that reach it. Where messages of a queue are due more than a second apart,
    by the load's target or as they mostly came, a stall begins when the next one was due. A message that goes to
    several queues is confirmed when all have it, so a queue may also stand still while one that shares messages with it
    has no majority; but not while a message waits that goes to no such queue, and was sent when less than 32 that do
    were under way from its publisher (as many fit into a channel by ``quorum_commands_soft_limit``). Stalls are known
    to some hundredths of a second.

    A stall that is cut short, by the end of publishing or by time in which the queue may stand still, might have become
    too long. So it is UNKNOWN where a queue confirmed nothing after the last healing, or in a whole stretch that ends
    with time in which it may stand still, or at the end of publishing for longer than it usually does: one whose
    messages are due more than a second apart, where one waited for over a second.

    A stall that is too long, and not twice as long, is UNKNOWN where a broker with a copy of the queue waited for a
    processor of this machine for so long that it would have been short enough without that, and while other programs
    take much of this machine; one that no confirm ended, only where such a broker waited for half of the time and more.

    Told, not judged: ``refused_ratio``, for which part of a stall that is too long refusals of its messages came one
    after another; of several, the smallest.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "faults_begun"})

    stall_s_max: Annotated[float, Field(gt=0)] | None = None
    grace_s: Annotated[float, Field(ge=0)] = 15

    def bound_s(self, net_ticktime_s: float) -> float:
        """Return the bound of queues whose loss brokers notice by ``net_ticktime``, in seconds."""
        return TICKS_MAX * net_ticktime_s + PATIENCE_S if self.stall_s_max is None else self.stall_s_max

    def bound_of_s(self, facts: Facts, cluster: ClusterFacts) -> float:
        """Return the bound in seconds, the longest for all that the cluster may have been and for all its queues."""
        if self.stall_s_max is not None:
            return self.stall_s_max
        found = forms(facts, cluster, facts.publishing_us or (0.0, NEVER_US))
        return max(_patience_s(facts, form) + noticed_within_s(form, q) for form in found for q in facts.queues)

    def check(self, history: History) -> Finding:
        facts, ledger = history.facts, ledger_of(history)
        traffic = ledger.traffic
        if not facts.heeds_confirms:
            return Finding(Verdict.UNKNOWN, "publishers await no confirms, so it is not known what a queue took")
        if facts.cluster is None or traffic is None or not facts.queues:
            return Finding(Verdict.UNKNOWN, "the events do not tell the cluster, its queues and when they were used")
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
            its = lacking[index] | later(nobody_could_publish(facts, ledger, index), end_us=self.grace_s * 1e6)
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


def _patience_s(facts: Facts, form: ClusterFacts) -> float:
    """Return how long publishers may need until they have come to a node that serves, once a fault was noticed."""
    timeouts_s = [event.confirm_timeout_s for event in facts.of_kind(LoadEvent) if event.confirm_timeout_s is not None]
    in_vain = 1 if form.pauses and form.broker_version < PAUSES_LATE_FROM else (len(form.nodes) - 1) // 2
    return max(PATIENCE_S, ELECTED_S + in_vain * max(timeouts_s, default=PATIENCE_S - ELECTED_S))


@dataclass(frozen=True)
class _Stall:
    """``length_s`` is without ``idle``, the time in which the load paused. ``ended``: by a confirm. ``refused``: for
    which part of it refusals came one after another."""

    queue: str
    start_us: float
    end_us: float
    length_s: float
    ended: bool
    refused: float
    idle: Sequence[Period]

    def __lt__(self, other: _Stall) -> bool:
        return self.length_s < other.length_s

    def told(self, facts: Facts) -> str:
        told = (
            f"{self.length_s:g} s on {self.queue} from {facts.at(self.start_us)}, "
            f"phase {facts.phase_at(self.start_us)}, {facts.beside(self.start_us, self.end_us)}"
        )
        return told if self.refused < REFUSED_MIN else f"{told}; messages were refused for most of it"


@dataclass(frozen=True, eq=False)
class _Confirms:
    """When a queue confirmed something, as the middles of ticks, from the start of the steady phase to the end of
    publishing or, where messages were under way then, until the first of them was confirmed or the last given up.
    ``refused_us`` are the middles of those in which messages were refused that went to no other queue: of others it is
    not known which queue did. ``due_us`` are the middles of those in which messages were due, ``seldom_us`` how far
    apart these are where that is over a second, and else 0. ``waiting`` says of each tick whether messages were under
    way after it."""

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
        """By a clock that stands still while the load pauses: a queue that is dead before a pause and after it stands
        still all the while."""
        return seconds(end_us - start_us - sum(max(0, min(end_us, e) - max(start_us, s)) for s, e in self.idle))

    def stalls(self, queue: str, period: Period, *, over_s: float, usual_s: float) -> Iterator[_Stall]:
        """The longest time between neighbours of: the period's ends, and the confirms within it; and every other one
        that is over that length."""
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
        """Return that time as a stall of the queue."""
        ended = bool((self.moments >= period[1]).any())
        return _Stall(queue, *period, self.lasts_s(*period), ended, 0.0, self.idle)

    def _paused(self, moments_us: Array) -> Array:
        """Return for how long the load had paused before each of the moments."""
        return sum((np.clip(moments_us - start, 0, end - start) for start, end in self.idle), np.zeros(len(moments_us)))

    def _tried(self, edges: Array, ends: Array) -> Array:
        """Return from when on the queue was tried after each of the edges: the first message that was due after it, and
        no later than one had to be due. A queue that is used often is tried all the time."""
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
        """For which part of the stall refusals came no further apart than confirms usually do."""
        within = self.refused_us[(self.refused_us > stall[0]) & (self.refused_us < stall[1])]
        if not within.size:
            return 0.0
        lengths_s = [self.lasts_s(*pair) for pair in itertools.pairwise([stall[0], *within, stall[1]])]
        whole_s = sum(lengths_s)
        return float(sum(length_s for length_s in lengths_s if length_s <= usual_s) / whole_s) if whole_s else 0.0

    def open_s(self, period: Period) -> float:
        """Return for how long it had stood still at the end of the period: a seldom used queue since it was tried."""
        since_us = np.array([max([period[0], *self.within(period)[-1:]])])
        return self.lasts_s(float(self._tried(since_us, np.array([period[1]]))[0]), period[1])

    def silent_s(self, usual_s: float) -> float:
        """Return for how long it may be open; a seldom used queue that is tried answers as soon as any other."""
        return STANDS_STILL_S if self.seldom_us else usual_s

    def usual_s(self, steady_us: Period) -> float:
        """For how long it may be silent without standing still: twice as long as it was in its steady phase. One that
        is used so seldom that it confirmed once in it was silent until it confirmed again."""
        moments = self.within(steady_us)
        if len(moments) == 1:
            moments = self.moments[self.moments >= moments[0]][:2]
        return max(STANDS_STILL_S, 2 * seconds(float(np.max(np.diff(moments)))) if len(moments) > 1 else 0.0)


@dataclass(frozen=True)
class _Judged:
    """What is to be said of one queue; ``unseen`` says in words what nobody can tell."""

    stalls: Sequence[_Stall]
    unseen: Sequence[str]
    demanded_s: float
    judged_s: float


def _judged(  # noqa: PLR0917 - what one queue is judged by
    queue: str, seen: _Confirms, demanded: Sequence[Period], facts: Facts, bound_s: float, more: Sequence[_Stall]
) -> _Judged:
    chaos_us = facts.phases.get("chaos", seen.span_us[1])
    usual_s = seen.usual_s((seen.span_us[0], chaos_us))
    stalls = [stall for period in demanded for stall in seen.stalls(queue, period, over_s=bound_s, usual_s=usual_s)]
    open_s = [seen.open_s(period) for period in demanded]
    cut_short = [s if seen.silent_s(usual_s) < s <= bound_s else 0.0 for s in open_s]
    whole_s = [seen.lasts_s(*period) for period in demanded]
    unseen = [
        f"{queue} confirmed nothing from {facts.at(start)} to {facts.at(end)}, {facts.beside(start, end)}, and may "
        f"stand still after that; let steps lie {bound_s:g} s and more apart"
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
    elif healed_us is not None and healed_us < end_us and not len(seen.within((healed_us, end_us))):
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
    told = f"the longest stall that no step excuses was {longest.told(facts)}; allowed are {bound_s:g} s"
    too_long = [stall.told(facts) for stall, excuse in excused.items() if not excuse]
    of_machine = [f"{stall.told(facts)}; {excuse}" for stall, excuse in excused.items() if excuse]
    unseen = [*of_machine, *(text for one in judged for text in one.unseen)]
    if too_long or not unseen:
        verdict = Verdict.INVALID if too_long else Verdict.VALID
        return Finding(verdict, told, numbers, tuple(too_long[:EXAMPLES_MAX]), coverage)
    summary = f"{unseen[0]}; as far as was seen, {told}"
    return Finding(Verdict.UNKNOWN, summary, numbers, tuple(unseen[:EXAMPLES_MAX]), coverage)


def _excuse(facts: Facts, stall: _Stall, bound_s: float) -> str:
    members = next(queue.members for queue in facts.queues if queue.name == stall.queue)
    span = stall.start_us, stall.end_us
    return of_this_machine(facts, members, *span, allowed_s=bound_s, came=stall.ended, without=stall.idle)
