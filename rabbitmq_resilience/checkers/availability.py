"""Check that a queue goes on confirming while its majority is up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.cluster_forms import forms
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
from rabbitmq_resilience.checkers.stalls import QueueConfirms, Stall
from rabbitmq_resilience.checkers.times import Period, later, left, periods, union
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
            seen = QueueConfirms.of(traffic, index, idle, alone=not companions.get(index), spacing=spacing)
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
class _Judged:
    """The judgement of one queue; ``unseen`` states in words what cannot be known."""

    stalls: Sequence[Stall]
    unseen: Sequence[str]
    demanded_s: float
    judged_s: float


def _judged(  # noqa: PLR0917 - all that one queue is judged by
    queue: str, seen: QueueConfirms, demanded: Sequence[Period], facts: Facts, bound_s: float, more: Sequence[Stall]
) -> _Judged:
    chaos_us = facts.phases.get("chaos", seen.span_us[1])
    usual_s = seen.usual_s((seen.span_us[0], chaos_us))
    stalls = [stall for period in demanded for stall in seen.stalls(queue, period, over_s=bound_s, usual_s=usual_s)]
    open_s = [seen.open_s(period) for period in demanded]
    cut_short = [
        s if seen.silent_s(period, usual_s) < s <= bound_s else 0.0 for period, s in zip(demanded, open_s, strict=True)
    ]
    whole_s = [seen.lasts_s(*period) for period in demanded]
    unseen = [
        f"{queue} confirmed nothing from {facts.at(start)} to {facts.at(end)}, {facts.faults_during(start, end)}, "
        f"and may stand still after that; let steps lie {bound_s:g} s and more apart"
        for (start, end), cut_s in zip(demanded, cut_short, strict=True)
        if cut_s and not len(seen.within((start, end)))
    ]
    unseen = [*_end_unseen(queue, seen, facts, usual_s, bound_s), *unseen]
    return _Judged([*stalls, *more], unseen, sum(whole_s), sum(whole_s) - sum(cut_short))


def _end_unseen(queue: str, seen: QueueConfirms, facts: Facts, usual_s: float, bound_s: float) -> Iterator[str]:
    end_us = seen.span_us[1]
    healed_us = facts.last_healed_us
    longer = f"let the load go on for more than {bound_s:g} s after recovery (phases.settled_s)"
    open_s = seen.open_s(seen.span_us)
    if open_s > seen.silent_s(seen.span_us, usual_s):
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


def _excuse(facts: Facts, stall: Stall, bound_s: float) -> str:
    members = next(queue.members for queue in facts.queues if queue.name == stall.queue)
    span = stall.start_us, stall.end_us
    return of_this_machine(facts, members, *span, allowed_s=bound_s, came=stall.ended, without=stall.idle)
