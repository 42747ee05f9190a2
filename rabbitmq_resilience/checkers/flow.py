"""Check that the cluster stays steady under more load than it can hold.

Under overload a cluster may do one of four things: take all and collapse; swing between high and low; slow its
publishers down, and stay steady with low latency; take more than it delivers, so that latency grows. The last two are
acceptable.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import lasting_s
from rabbitmq_resilience.checkers.machine_load import describe_others
from rabbitmq_resilience.checkers.times import Period, left, times
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import Coverage, Finding, History, InvariantSpec, Number, Verdict
from rabbitmq_resilience.checkers.waits import NEVER, Moments, first_received, kept_us, sent_rows
from rabbitmq_resilience.history.events import LoadEvent
from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.history.variation import Variation

#: The least number of windows: five in each third of the time.
WINDOWS_MIN = 15
#: The least messages of a window, at the best of times. By chance (Poisson) 30 fall to a third once in 10,000 times.
MESSAGES_MIN = 30
#: This part of the target, or of the messages taken, counts as all.
ALL_RATIO = 0.95
#: Parts of the rate that one window in ten reaches. A swing goes from over HIGH to under LOW and back. A pause of a
#: broker, or of this machine, is one swing; two may be chance.
LOW, HIGH = 1 / 3, 2 / 3
SWINGS_MIN = 3
#: The cluster collapsed below this part of the best rate delivered before.
COLLAPSED_RATIO = 0.5
#: Latency has grown if it is this many times as high, and this much higher.
GROWN_TIMES, GROWN_MS = 2.0, 100.0
#: With less than this part of their messages in flight, publishers do not wait for the cluster, but for themselves.
WAITING_RATIO = 0.5

Rates = npt.NDArray[np.float64]


class Answer(StrEnum):
    """The reaction of a cluster to a load."""

    HOLDS = "holds all of it"
    COLLAPSES = "takes all and collapses"
    SWINGS = "swings between high and low"
    SLOWS = "slows publishers and stays steady"
    GROWS = "takes more than it delivers, so that latency grows"

    @property
    def acceptable(self) -> bool:
        return self not in (Answer.COLLAPSES, Answer.SWINGS)


@dataclass(frozen=True, eq=False)
class Windows:
    """A period in windows of equal length. Rates in messages/s: ``taken`` (confirmed), ``owed`` (confirmed, once for
    each queue that took the message) and ``delivered``. ``latency_ms``: the median from sending to receipt of messages
    delivered in the window, NaN without any. ``target_per_s`` is None without a limit."""

    taken: Rates
    owed: Rates
    delivered: Rates
    latency_ms: Rates
    target_per_s: float | None

    @property
    def third(self) -> int:
        return len(self.taken) // 3

    @property
    def swings(self) -> int:
        """Return how often the rate taken, or the rate delivered, swung: the larger number."""
        return max(swings(self.taken), swings(self.delivered))

    @property
    def grown(self) -> bool:
        """Return whether latency grew: by factor and difference, and so that most last windows exceed most first
        ones."""
        first, last = (part[~np.isnan(part)] for part in self.ends)
        if not len(first) or not len(last):
            return False
        before, after = float(np.median(first)), float(np.median(last))
        apart = _nth(last, 0.25) > _nth(first, 0.75)
        return apart and after >= GROWN_TIMES * before and after - before >= GROWN_MS

    @property
    def collapsed(self) -> bool:
        """Return whether the rate collapsed, compared with the best rate delivered before.

        More may be taken at first only because buffers were empty.
        """
        before = self.delivered[: -self.third]
        best = max(before[: self.third].mean(), before[self.third :].mean())
        return bool(min(rates[-self.third :].mean() for rates in (self.owed, self.delivered)) < COLLAPSED_RATIO * best)

    @property
    def made(self) -> bool:
        """Return whether the load reached its target."""
        return self.target_per_s is not None and bool(self.taken.mean() >= ALL_RATIO * self.target_per_s)

    @property
    def answer(self) -> Answer:
        """Return the reaction of the cluster in these windows."""
        if self.swings >= SWINGS_MIN:
            return Answer.SWINGS
        if self.collapsed:
            return Answer.COLLAPSES
        if self.grown or self.delivered.mean() < ALL_RATIO * self.owed.mean():
            return Answer.GROWS
        return Answer.HOLDS if self.made else Answer.SLOWS

    @property
    def ends(self) -> tuple[Rates, Rates]:
        """Return the latencies of the first third and of the last third."""
        return self.latency_ms[: self.third], self.latency_ms[-self.third :]


def swings(rates: Rates) -> int:
    """Return how often the rates fell from high to low and came back."""
    most = _nth(rates, 0.9)
    back, was_high, fell = 0, False, False
    for rate in rates.tolist():
        if rate > HIGH * most:
            back += was_high and fell
            was_high, fell = True, False
        elif rate < LOW * most:
            fell = was_high
    return back


def _nth(values: Rates, part: float) -> float:
    """Return the lowest value that at least this part of the values does not exceed."""
    return float(np.sort(values)[max(1, math.ceil(part * len(values))) - 1])


@dataclass(frozen=True, eq=False)
class Passages:
    """The moments of all messages: when each was confirmed, and the same once for each queue that took it
    (``owed_us``); when each was sent, and answered in any way, and by which publisher; when each was first received
    from each queue, and how long that took from its sending (``took_us``)."""

    confirmed_us: Moments
    owed_us: Moments
    sent_us: Moments
    answered_us: Moments
    publisher: npt.NDArray[np.int64]
    received_us: Moments
    took_us: Moments

    @classmethod
    def of(cls, history: History) -> Passages:
        sent = sent_rows(history)
        nothing = np.zeros(0, np.int64)
        parts: dict[str, list[Moments]] = {name: [nothing] for name in cls.__dataclass_fields__}
        for publisher, received_us in first_received(history, sent).items():
            rows = sent[publisher]
            message, there = rows["lane"] == 0, received_us != NEVER
            confirmed = rows["outcome"] == Outcome.CONFIRMED
            parts["confirmed_us"].append(rows["outcome_us"][message & confirmed])
            parts["owed_us"].append(rows["outcome_us"][confirmed])
            parts["sent_us"].append(rows["sent_us"][message])
            parts["answered_us"].append(rows["outcome_us"][message])
            parts["publisher"].append(np.full(int(message.sum()), publisher, np.int64))
            parts["received_us"].append(received_us[there])
            parts["took_us"].append(received_us[there] - rows["sent_us"][there])
        return cls(**{name: np.concatenate(part) for name, part in parts.items()})

    def windows(self, period_us: Period, window_us: float, target_per_s: float | None) -> Windows:
        """Return the rates and latencies of the whole windows in that period."""
        count = int((period_us[1] - period_us[0]) // window_us)

        def places(moments_us: Moments) -> Moments:
            which: Moments = np.floor((moments_us - period_us[0]) / window_us).astype(np.int64)
            return which

        def rates(moments_us: Moments) -> Rates:
            which = places(moments_us)
            return np.bincount(which[(which >= 0) & (which < count)], minlength=count) / (window_us / 1e6)

        which = places(self.received_us)
        order = np.argsort(which, kind="stable")
        edges = np.searchsorted(which[order], np.arange(count + 1))
        took_ms = self.took_us[order] / 1000
        latency = [np.median(took_ms[a:b]) if a < b else np.nan for a, b in itertools.pairwise(edges.tolist())]
        taken, owed, delivered = (rates(moments) for moments in (self.confirmed_us, self.owed_us, self.received_us))
        return Windows(taken, owed, delivered, np.array(latency), target_per_s)

    def waiting_ratio(self, period_us: Period, facts: Facts, load: LoadEvent | None) -> float | None:
        """Return the part of their limit that publishers had in flight on average, while connected and not blocked.

        None if nothing limits it, or the limit is not known.
        """
        if load is None or load.in_flight is None or not load.publishers:
            return None
        start, end = period_us
        under_way = np.minimum(self.answered_us, end) - np.maximum(self.sent_us, start)
        had = float(np.maximum(under_way, 0).sum())
        free_us = sum(
            lasting_s(left(period_us, times(kept_us(facts, f"publisher-{publisher}")))) * 1e6
            for publisher in range(load.publishers)
        )
        return had / (free_us * load.in_flight) if free_us else 1.0


class SteadyFlow(InvariantSpec):
    """The cluster stays steady while publishing lasts, except during faults and ``grace_s`` after each. Judged are
    stretches of ``15 * window_s`` and more in which neither the target rate nor the processing time changes. In each
    stretch the cluster does one of these:

    1. takes all and collapses: in the last third the rate taken or delivered is less than half of the best rate
       delivered in an earlier third;
    2. swings between high and low: three times or more the rate taken or delivered falls, from window to window, from
       over two thirds to under one third of the rate that one window in ten reaches, and comes back;
    3. slows publishers and stays steady;
    4. takes more than it delivers: 5 % or more; or the median latency from sending to receipt is twice as high in the
       last third as in the first, and 100 ms higher;
    5. holds all of it: 95 % of the target, so that the load was not too much.

    1 and 2 are INVALID. The verdict is UNKNOWN without such a stretch, without one after the last healing, or with less
    than 30 messages in a window. It is UNKNOWN if less than the target was taken while publishers had less than half of
    ``in_flight`` under way on average, or nothing limits that: the publishers may have been too slow. It is also
    UNKNOWN if 1 or 2 happened while other programs took much of this machine.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})

    window_s: Annotated[float, Field(ge=0.1, le=3600)] = 1
    grace_s: Annotated[float, Field(ge=0)] = 15

    @property
    def settled_s(self) -> float:
        return self.grace_s + WINDOWS_MIN * self.window_s + 1

    def check(self, history: History) -> Finding:
        facts = history.facts
        span = facts.publishing_us
        load = next(facts.of_kind(LoadEvent), None)
        if span is None:
            return Finding(Verdict.UNKNOWN, "the events do not state when the load began and ended")
        stretches = list(self._stretches(facts, load, span))
        if not stretches:
            needed_s = WINDOWS_MIN * self.window_s
            text = f"no {needed_s:g} s with the same load lie {self.grace_s:g} s after all faults: make phases longer"
            return Finding(Verdict.UNKNOWN, text, coverage=Coverage(0, seconds(span[1] - span[0])))
        passages = Passages.of(history)
        looked = [self._look(passages, stretch, facts, load) for stretch in stretches]
        order = (Verdict.INVALID, Verdict.UNKNOWN, Verdict.VALID)
        worst = min(looked, key=lambda finding: order.index(finding.verdict))
        texts = tuple(each.summary for each in looked if each.verdict is worst.verdict)
        judged = Coverage(round(lasting_s(stretches), 3), seconds(span[1] - span[0]))
        examples = texts if worst.verdict is Verdict.INVALID else ()
        verdict, summary, numbers = worst.verdict, worst.summary, {**worst.numbers, "stretches": len(looked)}
        if verdict is Verdict.VALID and stretches[-1][0] < (facts.last_healed_us or 0):
            needed = (
                f"no {WINDOWS_MIN * self.window_s:g} s with the same load lie {self.grace_s:g} s after the last healing"
            )
            summary = f"{needed}: let the load go on for longer (phases.settled_s); in the observed time, {summary}"
            verdict = Verdict.UNKNOWN
        return Finding(verdict, summary, numbers, examples[:10], judged)

    def _stretches(self, facts: Facts, load: LoadEvent | None, span_us: Period) -> Iterator[Period]:
        steps = [step for step in facts.steps if step.injected]
        faults = times((step.possible_us[0], step.possible_us[1] + self.grace_s * 1e6) for step in steps)
        varying = [facts.rate, *(() if load is None else _processing(load))]
        for stretch in left(span_us, faults):
            edges = sorted({edge for each in varying for piece in each.pieces(*stretch) for edge in piece[:2]})
            pieces = [
                ((start, end), tuple(each.at(start) for each in varying)) for start, end in itertools.pairwise(edges)
            ]
            for (per_s, *_), same in itertools.groupby(pieces, key=lambda piece: piece[1]):
                spans = [span for span, _ in same]
                if per_s != 0 and spans[-1][1] - spans[0][0] >= WINDOWS_MIN * self.window_s * 1e6:
                    yield spans[0][0], spans[-1][1]

    def _look(self, passages: Passages, stretch: Period, facts: Facts, load: LoadEvent | None) -> Finding:
        seen = passages.windows(stretch, self.window_s * 1e6, facts.rate.at(stretch[0]))
        best = max(part.mean() for part in np.array_split(seen.taken, 3)) * self.window_s
        waiting = passages.waiting_ratio(stretch, facts, load)
        first, last = (np.nanmedian(part) if not np.isnan(part).all() else math.nan for part in seen.ends)
        numbers: dict[str, Number] = {
            "answer": seen.answer.value,
            "target_per_s": seen.target_per_s,
            "taken_per_s": round(float(seen.taken.mean()), 1),
            "delivered_per_s": round(float(seen.delivered.mean()), 1),
            "latency_first_ms": _number(first),
            "latency_last_ms": _number(last),
            "swings": seen.swings,
            "waiting_ratio": None if waiting is None else round(waiting, 3),
        }
        target = "as much as it takes" if seen.target_per_s is None else f"{seen.target_per_s:g}/s"
        summary = (
            f"sent {target} from {facts.at(stretch[0])} to {facts.at(stretch[1])}, the cluster {seen.answer}: it took "
            f"{numbers['taken_per_s']:g}/s and delivered {numbers['delivered_per_s']:g}/s, with a latency of "
            f"{first:.3g} ms at first and {last:.3g} ms at last"
        )
        if best < MESSAGES_MIN:
            text = f"{best:.0f} messages in a window are too few to judge; make window_s longer"
            return Finding(Verdict.UNKNOWN, f"{text}; {summary}", numbers)
        if doubt := self._doubt(seen, waiting, describe_others(facts, *stretch)):
            return Finding(Verdict.UNKNOWN, f"{summary}; {doubt}", numbers)
        return Finding(Verdict.VALID if seen.answer.acceptable else Verdict.INVALID, summary, numbers)

    @staticmethod
    def _doubt(seen: Windows, waiting: float | None, others: str) -> str:
        if not seen.made and waiting is None:
            return "nothing limits what publishers have in flight, so they may have been too slow for the load"
        if not seen.made and waiting is not None and waiting < WAITING_RATIO:
            text = f"publishers had {waiting:.0%} of what they may have in flight"
            return f"{text}: the publishers were too slow for the load, and not the cluster"
        return "" if seen.answer.acceptable else others


def _processing(load: LoadEvent) -> Iterator[Variation]:
    """Yield how long consumers take for a message, for those of the load and of each of its services."""
    for of in (vars(load), *load.services):
        yield Variation.of(of, "processing_ms", "variable_processing", begins_us=load.begins_us)


def _number(ms: float) -> float | None:
    return None if math.isnan(ms) else round(ms, 3)
