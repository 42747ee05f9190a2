"""Faults may cost some of the confirm rate, and not more."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from invariants.availability import Availability
from invariants.facts import ClusterFacts, Facts
from invariants.ledger import TICK_US, ledger_of
from invariants.liveness import demanded, least_share, merged, pauses, promises, target_share, unsettled
from invariants.situations import Period, possible_window, situations
from invariants.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Verdict, seconds

#: A steady phase that reaches less of its target was none.
STEADY_RATIO_MIN = 0.8


class Throughput(InvariantSpec):
    """In each window of ``window_s`` the cluster confirms at least ``ratio_min`` of its mean rate in this run's own
    steady phase; of less, in proportion, where the load's target sinks below that of the steady phase.

    Demanded from the end of the steady phase to the end of publishing, in windows that lie wholly where every
    queue has a majority, nothing changed for ``grace_s`` and nothing was lost for ``lost_grace_s`` (by default as long
    as a queue may stand still then, see ``Availability``), no step's alarm blocks publishers, and the load does not
    pause (``invariants.liveness``). If no window is left, or the steady phase did not come near its target, the
    finding is UNKNOWN.

    Told, not judged: ``kept_ratio``, the confirms of all the time in which a node was away, as a part of what the
    steady phase would have had at the target of then.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})

    ratio_min: Annotated[float, Field(gt=0, le=1)] = 0.5
    window_s: Annotated[float, Field(ge=0.1)] = 5
    grace_s: Annotated[float, Field(ge=0)] = 15
    lost_grace_s: Annotated[float, Field(ge=0)] | None = None

    def check(self, history: History) -> Finding:
        facts = Facts(history.events)
        span = facts.publishing_us
        if facts.cluster is None or span is None or "chaos" not in facts.phases:
            return Finding(Verdict.UNKNOWN, "the events do not tell the cluster and its steady phase")
        confirms = sum(ledger_of(history).confirms.values(), np.zeros(1, np.uint64))
        total = np.concatenate(([0], np.cumsum(np.broadcast_to(confirms, (span[1] - span[0]) // TICK_US + 1))))

        def rate_per_s(start_us: float, end_us: float) -> float:
            first, last = (round((t - span[0]) / TICK_US) for t in (start_us, end_us))
            return float(total[last] - total[first]) / (max(1, last - first) * TICK_US / 1e6)

        chaos_us = facts.phases["chaos"]
        steady_per_s = rate_per_s(span[0], chaos_us)
        windows = self._windows(facts, facts.cluster, span)
        if not steady_per_s or not windows:
            missing = "nothing was confirmed in the steady phase" if windows else "no window was settled long enough"
            return Finding(Verdict.UNKNOWN, missing, {"steady_per_s": round(steady_per_s, 1), "windows": len(windows)})

        target_per_s = facts.rate.plain
        if target_per_s and steady_per_s < STEADY_RATIO_MIN * target_per_s:
            reached = f"{steady_per_s:.0f} of {target_per_s} messages/s were confirmed in the steady phase"
            summary = f"{reached}: this machine does not hold the load, so there is nothing to compare with"
            return Finding(Verdict.UNKNOWN, summary, {"steady_per_s": round(steady_per_s, 1), "windows": len(windows)})

        def asked_per_s(window: Period) -> float:
            return steady_per_s * least_share(facts, window, steady_per_s=steady_per_s)

        ratios = sorted((rate_per_s(*window) / asked_per_s(window), window) for window in windows)
        told = [
            f"{ratio:.0%} of {_told_rate(asked_per_s((start, end)), steady_per_s)} from {facts.at(start)} to "
            f"{facts.at(end)}, phase {facts.phase_at(start)}, {facts.beside(start, end)}"
            for ratio, (start, end) in ratios[:EXAMPLES_MAX]
        ]
        short = sum(ratio < self.ratio_min for ratio, _ in ratios)
        away = _node_away(facts, facts.cluster, (chaos_us, span[1]))
        sent_per_s = [steady_per_s * target_share(facts, period, steady_per_s=steady_per_s) for period in away]
        asked = sum(rate * seconds(end - start) for rate, (start, end) in zip(sent_per_s, away, strict=True))
        kept = sum(rate_per_s(*period) * seconds(period[1] - period[0]) for period in away)
        return Finding(
            Verdict.INVALID if short else Verdict.VALID,
            f"the slowest of {len(windows)} windows had {told[0]}; demanded are {self.ratio_min:.0%} "
            f"of {steady_per_s:.0f} messages/s",
            {
                "steady_per_s": round(steady_per_s, 1),
                "ratio": round(ratios[0][0], 3),
                "kept_ratio": round(kept / asked, 3) if asked else None,
                "slowest_start_s": seconds(ratios[0][1][0] - facts.origin_us),
                "windows": len(windows),
                "windows_short": short,
            },
            tuple(told[:short]),
        )

    def _windows(self, facts: Facts, cluster: ClusterFacts, span_us: Period) -> list[Period]:
        lost_grace_s = (
            Availability().bound_s(cluster.net_ticktime_s) if self.lost_grace_s is None else self.lost_grace_s
        )
        exempt = unsettled(facts, cluster, span_us, grace_s=self.grace_s, lost_grace_s=lost_grace_s)
        exempt += pauses(facts, span_us)
        promised = promises(facts, cluster, span_us)
        for queue in facts.queues:
            exempt += promised.lacking(queue, grace_s=self.grace_s)
        window_us = self.window_s * 1e6
        return [
            (start + i * window_us, start + (i + 1) * window_us)
            for start, end in demanded((facts.phases["chaos"], span_us[1]), merged(exempt))
            for i in range(int((end - start) // window_us))
        ]


def _node_away(facts: Facts, cluster: ClusterFacts, span_us: Period) -> list[Period]:
    """The times in which a step had taken some node away that was not yet seen to be back."""
    periods = situations(cluster.nodes, facts.steps, possible_window(facts), span_us)
    return [(s.start_us, s.end_us) for s in periods if s.up != frozenset(cluster.nodes)]


def _told_rate(asked_per_s: float, steady_per_s: float) -> str:
    if asked_per_s == steady_per_s:
        return "the steady rate"
    return f"the {asked_per_s:.0f} messages/s that a lower target leaves of the steady rate"
