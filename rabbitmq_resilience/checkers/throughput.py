"""Check that faults cost at most some of the confirm rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.exclusive_owners import lacking_at_nodes, unowned
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.fault_timeline import truth_of
from rabbitmq_resilience.checkers.gaps import lasting_s
from rabbitmq_resilience.checkers.liveness import pauses, promises, target_share, unsettled
from rabbitmq_resilience.checkers.machine_load import could_take, describe_others
from rabbitmq_resilience.checkers.message_ledger import ledger_of
from rabbitmq_resilience.checkers.times import Period, Times, left, periods, times, union
from rabbitmq_resilience.checkers.traffic import TICK_US, Traffic
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.unreachable_clients import publishers_reconnecting
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.checkers.waits import LAGGED_MAX, NOT_HELD, confirm_waits
from rabbitmq_resilience.history.events import LoadEvent
from rabbitmq_resilience.tools.percentages import percent_unlike

#: Parts that are not larger than this count as zero, because of rounding.
NOTHING = 1e-6
#: A steady phase that reaches less than this part of its target is no base for comparison.
STEADY_RATIO_MIN = 0.8


class Throughput(InvariantSpec):
    """In each window of ``window_s`` the cluster confirms at least ``ratio_min`` of the mean rate in this run's own
    steady phase. It may confirm less, in proportion, if the load's target sinks below that of the steady phase.
    Exclusive queues do not count while steps keep their consumers away, and for ``grace_s`` after that.

    The windows follow one another from the end of the steady phase to the end of publishing. They lie in times in which

    - no step has taken the majority of a queue away, and nothing changed for ``grace_s`` (mirrored queues that are
      rebalanced change, too);
    - no node or link that is still away was lost within ``lost_grace_s`` (by default as long as a queue may stand still
      by ``availability``);
    - for ``grace_s`` no step's alarm blocked publishers, no step killed a publisher, and no step cut off a publisher or
      a load balancer;
    - the load does not pause.

    A node that goes away by itself excuses nothing. The verdict is UNKNOWN if no window is left, if the steady phase
    did not come near its target, or if other programs may have taken much of this machine in every window that fell
    short.

    The record must show what happened after the last healing. If no such window begins after it, the last ``window_s``
    of publishing are judged: with the demanded rate, the rate has come back; if not, they may have been too early, and
    the verdict is UNKNOWN.

    Reported, not judged: ``kept_ratio``, the confirms of all times in which a node was away, as a part of what the
    steady rate would have given at the target of those times.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})

    ratio_min: Annotated[float, Field(gt=0, le=1)] = 0.5
    window_s: Annotated[float, Field(ge=0.1)] = 5
    grace_s: Annotated[float, Field(ge=0)] = 15
    lost_grace_s: Annotated[float, Field(ge=0)] | None = None

    @property
    def least_phases(self) -> Mapping[str, float]:
        return {"settled_s": self.window_s}

    @property
    def settled_s(self) -> float:
        """Return how long the load must go on; recovery is reported within a second of the last change."""
        return self.grace_s + self.window_s + 1

    def check(self, history: History) -> Finding:
        facts = history.facts
        span = facts.publishing_us
        if facts.cluster is None or span is None or "chaos" not in facts.phases:
            return Finding(Verdict.UNKNOWN, "the events do not show the cluster and its steady phase")
        if not facts.heeds_confirms:
            return Finding(Verdict.UNKNOWN, "publishers await no confirms, so it is not known how many there were")
        traffic = ledger_of(history).traffic
        confirms = np.zeros((span[1] - span[0]) // TICK_US + 1) if traffic is None else traffic.messages
        total = np.concatenate(([0], np.cumsum(confirms)))

        def rate_per_s(start_us: float, end_us: float) -> float:
            first, last = (round((t - span[0]) / TICK_US) for t in (start_us, end_us))
            return float(total[last] - total[first]) / (max(1, last - first) * TICK_US / 1e6)

        chaos_us = facts.phases["chaos"]
        steady_per_s = rate_per_s(span[0], chaos_us)
        stretches = self._demanded(facts, facts.cluster, span)
        owned = self._owned(facts, traffic, (span[0], chaos_us))

        def there(window: Period) -> float:
            """Return the part of the messages that have a queue to go to during the whole window."""
            return 1 - sum(part for when, part in owned if not (when & times([window])).empty)

        windows = [window for stretch in stretches for window in self._windows(stretch) if there(window) > NOTHING]
        reached = {"steady_per_s": round(steady_per_s, 1), "windows": len(windows)}
        if not steady_per_s or not windows:
            missing = "nothing was confirmed in the steady phase" if windows else "no window was settled long enough"
            return Finding(Verdict.UNKNOWN, missing, reached)
        if problem := _not_held(history, (span[0], chaos_us), steady_per_s):
            return Finding(Verdict.UNKNOWN, problem, reached)

        def asked_per_s(window: Period) -> float:
            return steady_per_s * target_share(facts, window, steady_per_s=steady_per_s, most=1.0) * there(window)

        def ratio(window: Period) -> float:
            return rate_per_s(*window) / asked_per_s(window) if there(window) > NOTHING else math.inf

        def described(window: Period) -> str:
            asked = _rate_in_words(asked_per_s(window), steady_per_s)
            return (
                f"{percent_unlike(ratio(window), self.ratio_min)} of {asked} from {facts.at(window[0])} to "
                f"{facts.at(window[1])}, phase {facts.phase_at(window[0])}, {facts.faults_during(*window)}"
            )

        worst = sorted(windows, key=lambda window: (ratio(window), window))
        short = [window for window in worst if ratio(window) < self.ratio_min]
        disturbed = could_take(facts, short)
        last = self._last_window(facts, windows, span)
        doubt = (
            "" if last is None or (last and ratio(last) >= self.ratio_min) else self._doubt(last and described(last))
        )
        summary = (
            f"the slowest of {len(windows)} windows had {described(worst[0])}; demanded are {self.ratio_min:.0%} "
            f"of {steady_per_s:.0f} messages/s"
            + (f"; {describe_others(facts, *short[0])}" if short and disturbed else "")
        )
        broken = short and not disturbed
        away = _node_away(facts, facts.cluster, (chaos_us, span[1]))
        return Finding(
            Verdict.INVALID if broken else Verdict.UNKNOWN if short or doubt else Verdict.VALID,
            summary if broken or not doubt else f"{doubt}; in the observed time, {summary}",
            {
                "steady_per_s": round(steady_per_s, 1),
                "ratio": round(ratio(worst[0]), 3),
                "kept_ratio": _kept_ratio(facts, away, rate_per_s, steady_per_s),
                "slowest_start_s": facts.since_start_s(worst[0][0]),
                "windows": len(windows),
                "windows_short": len(short),
            },
            tuple(map(described, short[:EXAMPLES_MAX])),
            Coverage(round(len(windows) * self.window_s, 3), lasting_s(stretches)),
        )

    def _last_window(self, facts: Facts, windows: Sequence[Period], span_us: Period) -> Period | tuple[()] | None:
        """Return the window that must show the rate after the last healing; None if other windows do, empty if there is
        none."""
        healed_us = facts.last_healed_us
        if healed_us is None or windows[-1][0] >= healed_us:
            return None
        loaded = left((max(healed_us, span_us[0]), span_us[1]), pauses(facts, span_us))
        ends = [end for start, end in loaded if end - start >= self.window_s * 1e6]
        return (ends[-1] - self.window_s * 1e6, ends[-1]) if ends else ()

    def _doubt(self, seen: str | tuple[()]) -> str:
        """Return why the time after the last healing is not sufficiently observed, and how to observe more."""
        longer = f"let it go on for more than {self.grace_s + self.window_s:g} s after recovery (phases.settled_s)"
        if not seen:
            return f"the load ended less than {self.window_s:g} s after the last healing; {longer}"
        return f"after the last healing there were only {seen}, which may have been too early; {longer}"

    def _owned(self, facts: Facts, traffic: Traffic | None, steady_us: Period) -> list[tuple[Times, float]]:
        """Return, for each queue that its consumer declares, when it was unowned and its part of the steady phase."""
        if traffic is None:
            return []
        ticks = round((steady_us[1] - steady_us[0]) / TICK_US)
        sums = {index: int(confirms[:ticks].sum()) for index, confirms in traffic.confirms.items()}
        total = max(1, sum(sums.values()))
        queues = ((index, queue) for index, queue in enumerate(facts.queues) if queue.consumer is not None)
        return [(unowned(facts, q, grace_s=self.grace_s), sums.get(index, 0) / total) for index, q in queues]

    def _demanded(self, facts: Facts, cluster: ClusterFacts, span_us: Period) -> list[Period]:
        """Return the periods in which the rate is demanded."""
        lost_grace_s = Availability().bound_of_s(facts, cluster) if self.lost_grace_s is None else self.lost_grace_s
        exempt = unsettled(facts, cluster, span_us, grace_s=self.grace_s, lost_grace_s=lost_grace_s)
        exempt |= pauses(facts, span_us)
        exempt |= publishers_reconnecting(facts, within_s=self.grace_s)
        promised = promises(facts, cluster, span_us)
        lacking = {lacking_at_nodes(facts, cluster, promised, queue, grace_s=self.grace_s) for queue in facts.queues}
        return left((facts.phases["chaos"], span_us[1]), union([exempt, *lacking]))

    def _windows(self, stretch: Period) -> Iterator[Period]:
        start, window_us = stretch[0], self.window_s * 1e6
        for i in range(int((stretch[1] - start) // window_us)):
            yield start + i * window_us, start + (i + 1) * window_us


def _not_held(history: History, steady_us: Period, steady_per_s: float) -> str:
    """Return why the steady phase is no base for comparison, and what kept it from its target; empty if it is."""
    facts = history.facts
    target_per_s = facts.rate.plain
    if not target_per_s or steady_per_s >= STEADY_RATIO_MIN * target_per_s:
        return ""
    load = next(facts.of_kind(LoadEvent), None)
    lagged, others = confirm_waits(history).due_within(*steady_us).lagged_ratio, describe_others(facts, *steady_us)
    if lagged > LAGGED_MAX:
        why = f"publishers themselves lagged with {lagged:.0%} of them: {NOT_HELD}"
    elif load is None or load.in_flight is None:
        why = "the cluster or this machine does not hold the load"
    else:
        why = "publishers waited for the cluster, which does not hold the load"
    return (
        f"{steady_per_s:.0f} of {target_per_s} messages/s were confirmed in the steady phase, so there is nothing to "
        f"compare with; {why}" + (f"; {others}" if others else "")
    )


def _kept_ratio(
    facts: Facts, away: Sequence[Period], rate_per_s: Callable[[float, float], float], steady_per_s: float
) -> float | None:
    """Return the part of the steady rate that was kept while nodes were ``away``; None if that asks for nothing."""
    sent_per_s = [steady_per_s * target_share(facts, period, steady_per_s=steady_per_s) for period in away]
    asked = sum(rate * seconds(end - start) for rate, (start, end) in zip(sent_per_s, away, strict=True))
    kept = sum(rate_per_s(*period) * seconds(period[1] - period[0]) for period in away)
    return round(kept / asked, 3) if asked else None


def _node_away(facts: Facts, cluster: ClusterFacts, span_us: Period) -> list[Period]:
    """Return the times in which a step had taken a node away that was not yet seen to be back."""
    away = union(both.possibly for both in truth_of(facts, cluster).away.values())
    return list(periods(away & times([span_us])))


def _rate_in_words(asked_per_s: float, steady_per_s: float) -> str:
    """Return in words the rate with which a window is compared."""
    if asked_per_s == steady_per_s:
        return "the steady rate"
    return f"the {asked_per_s:.0f} messages/s that a lower target leaves of the steady rate"
