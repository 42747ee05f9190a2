"""Find the times in which a queue confirmed nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rabbitmq_resilience.checkers.columns import Array
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.spacing import Spacing
from rabbitmq_resilience.checkers.times import Period
from rabbitmq_resilience.checkers.traffic import TICK_US, Traffic
from rabbitmq_resilience.checkers.units import seconds

#: A queue that refuses messages for a smaller part of its stall also had another cause to stand still.
REFUSED_MIN = 0.75
#: If confirms come often, shorter silence says nothing.
STANDS_STILL_S = 1.0


@dataclass(frozen=True)
class Stall:
    """A stall of a queue. ``length_s`` excludes ``idle``, the time in which the load paused. ``ended``: a confirm ended
    it. ``refused``: the part of it in which refusals came one after another."""

    queue: str
    start_us: float
    end_us: float
    length_s: float
    ended: bool
    refused: float
    idle: Sequence[Period]

    def __lt__(self, other: Stall) -> bool:
        return self.length_s < other.length_s

    def describe(self, facts: Facts) -> str:
        text = (
            f"{self.length_s:g} s on {self.queue} from {facts.at(self.start_us)}, "
            f"phase {facts.phase_at(self.start_us)}, {facts.faults_during(self.start_us, self.end_us)}"
        )
        return text if self.refused < REFUSED_MIN else f"{text}; messages were refused for most of it"


@dataclass(frozen=True, eq=False)
class QueueConfirms:
    """The confirms of a queue. All moments are middles of ticks. ``span_us``: from the start of the steady phase to the
    end of publishing. If messages were under way then, it ends when the first was confirmed or the last given up.
    ``refused_us``: ticks with refused messages that went to no other queue; of other messages it is not known which
    queue refused. ``due_us``: ticks in which messages were due. ``spacing``: when they are due by the target, and
    ``mostly_us``: how far apart they mostly came. ``waiting``: for each tick, whether messages were under way after
    it."""

    moments: Array
    span_us: Period
    idle: Sequence[Period]
    refused_us: Array
    due_us: Array
    spacing: Spacing
    mostly_us: float
    waiting: Array

    @classmethod
    def of(
        cls, traffic: Traffic, queue: int, idle: Sequence[Period], *, alone: bool, spacing: Spacing
    ) -> QueueConfirms:
        flow, (start_us, end_us) = traffic.flows.get(queue), traffic.span_us
        none = np.zeros(0)
        late = [traffic.late_us[queue]] if queue in traffic.late_us else []

        def middles(ticks: Array) -> Array:
            return start_us + (np.flatnonzero(ticks) + 0.5) * TICK_US

        due_us = middles(none if flow is None else flow.due)
        return cls(
            np.concatenate((middles(none if flow is None else flow.confirms), late)),
            (start_us, traffic.waited_us.get(queue, end_us)),
            idle,
            middles(traffic.nacks.get(queue, none) if alone else none),
            due_us,
            spacing,
            spacing.mostly_us(due_us),
            np.zeros(1, np.bool_) if flow is None else np.cumsum(flow.under_way) > 0,
        )

    def within(self, period: Period) -> Array:
        return self.moments[(self.moments > period[0]) & (self.moments <= period[1])]

    def lasts_s(self, start_us: float, end_us: float) -> float:
        """Return the seconds without the pauses of the load. So a queue that is dead before and after a pause stands
        still all the time."""
        return seconds(end_us - start_us - sum(max(0, min(end_us, e) - max(start_us, s)) for s, e in self.idle))

    def stalls(self, queue: str, period: Period, *, over_s: float, usual_s: float) -> Iterator[Stall]:
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
            yield Stall(queue, start_us, end_us, length_s, ended, refused, self.idle)

    def stall(self, queue: str, period: Period) -> Stall:
        """Return the period as a stall of the queue."""
        ended = bool((self.moments >= period[1]).any())
        return Stall(queue, *period, self.lasts_s(*period), ended, 0.0, self.idle)

    def _paused(self, moments_us: Array) -> Array:
        """Return how long the load had paused in all before each of the moments, in microseconds."""
        return sum((np.clip(moments_us - start, 0, end - start) for start, end in self.idle), np.zeros(len(moments_us)))

    def _tried(self, edges: Array, ends: Array) -> Array:
        """Return when the queue was first tried after each edge: when the next message was due, or at the latest had to
        be. A queue that is used often is tried all the time."""
        at_last_us = self._due_us_at_last(edges)
        ticks = np.clip((edges - self.span_us[0]) // TICK_US, 0, len(self.waiting) - 1).astype(int)
        seldom = self._is_seldom(edges, at_last_us) & ~self.waiting[ticks]
        if not seldom.any():
            return edges
        first_us = np.append(self.due_us, np.inf)[np.searchsorted(self.due_us, edges, side="right")]
        return np.where(seldom, np.minimum(np.minimum(first_us, at_last_us), ends), edges)

    def _due_us_at_last(self, edges: Array) -> Array:
        """Return when the next message after each edge had to be due at the latest."""
        mostly_us = edges + self.mostly_us
        for _ in self.idle:  # while the load pauses no message becomes due
            mostly_us = edges + self.mostly_us + self._paused(mostly_us) - self._paused(edges)
        return np.maximum(self.spacing.next_due_us(edges), mostly_us)

    def _is_seldom(self, edges: Array, due_us: Array) -> Array:
        """Return whether the next message after each edge was due over a second later, without pauses of the load."""
        is_seldom: Array = due_us - edges - (self._paused(due_us) - self._paused(edges)) > STANDS_STILL_S * 1e6
        return is_seldom

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
        return self.lasts_s(float(self._tried(self._since_us(period), np.array([period[1]]))[0]), period[1])

    def silent_s(self, period: Period, usual_s: float) -> float:
        """Return how long a stall that is open at the end of the period may be before it counts as cut short, in
        seconds."""
        since_us = self._since_us(period)
        return STANDS_STILL_S if self._is_seldom(since_us, self._due_us_at_last(since_us))[0] else usual_s

    def _since_us(self, period: Period) -> Array:
        """Return the last confirm in the period, or its start, as one moment."""
        return np.array([max([period[0], *self.within(period)[-1:]])])

    def usual_s(self, steady_us: Period) -> float:
        """Return how long the queue may be silent without standing still: twice its longest silence in the steady
        phase. If it confirmed only once in that phase, its silence lasted until the next confirm."""
        moments = self.within(steady_us)
        if len(moments) == 1:
            moments = self.moments[self.moments >= moments[0]][:2]
        return max(STANDS_STILL_S, 2 * seconds(float(np.max(np.diff(moments)))) if len(moments) > 1 else 0.0)
