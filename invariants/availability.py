"""A queue whose majority is up goes on confirming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from invariants.columns import Array
from invariants.facts import Facts
from invariants.ledger import TICK_US, ledger_of
from invariants.liveness import Promises, demanded, pauses, promises
from invariants.situations import TICKS_MAX, Period
from invariants.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Number, Verdict, seconds

#: For clients to lose patience (``confirm_timeout_s`` is 10 s by default) and for leaders to be elected.
PATIENCE_S = 15.0


class Availability(InvariantSpec):
    """The longest time without any confirm from a queue, between the start of the steady phase and the end of
    publishing, is at most ``stall_s_max``: by default 1.25 times ``net_ticktime`` to notice a fault, and 15 s for
    clients to lose patience and for leaders to be elected. Messages that were under way at the end are waited for.

    Noticing a fault and electing a leader are part of the stall. Only while a queue has no majority, or a step's alarm
    blocks publishers, and ``grace_s`` from then on, may it stand still (``invariants.liveness``). Time in which the
    load pauses does not count; but for that, every queue is taken to have publishers. Stalls are known to some
    hundredths of a second.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})

    stall_s_max: Annotated[float, Field(gt=0)] | None = None
    grace_s: Annotated[float, Field(ge=0)] = 15

    def bound_s(self, net_ticktime_s: float) -> float:
        return TICKS_MAX * net_ticktime_s + PATIENCE_S if self.stall_s_max is None else self.stall_s_max

    def check(self, history: History) -> Finding:
        facts = Facts(history.events)
        if facts.cluster is None or facts.publishing_us is None or not facts.queues:
            return Finding(Verdict.UNKNOWN, "the events do not tell the cluster, its queues and when they were used")
        bound_s, ledger = self.bound_s(facts.cluster.net_ticktime_s), ledger_of(history)
        start_us, end_us = facts.publishing_us
        none, idle = np.zeros(0, np.uint32), pauses(facts, (start_us, end_us))
        worst: list[_Stall] = []
        promised: dict[Period, Promises] = {}
        for index, queue in enumerate(facts.queues):
            span_us = start_us, ledger.waited_us.get(index, end_us)
            if span_us not in promised:
                promised[span_us] = promises(facts, facts.cluster, span_us)
            periods = demanded(span_us, promised[span_us].lacking(queue, grace_s=self.grace_s))
            moments = _moments(ledger.confirms.get(index, none), start_us)
            stalls = [_longest_stall(queue.name, moments, period, idle) for period in periods]
            worst += [max(stalls)] if stalls else []
        worst.sort(reverse=True)
        if not worst:
            return Finding(Verdict.UNKNOWN, "no queue had a majority for long enough to be judged")
        longest = worst[0]
        numbers: dict[str, Number] = {"stall_s": longest.length_s, "queue": longest.queue, "queues_judged": len(worst)}
        too_long = [stall for stall in worst if stall.length_s > bound_s]
        return Finding(
            Verdict.INVALID if too_long else Verdict.VALID,
            f"the longest stall with a majority up was {longest.told(facts)}; allowed are {bound_s:g} s",
            numbers,
            tuple(stall.told(facts) for stall in too_long[:EXAMPLES_MAX]),
        )


@dataclass(frozen=True)
class _Stall:
    """``length_s`` is without the time in which the load paused."""

    queue: str
    start_us: float
    end_us: float
    length_s: float

    def __lt__(self, other: _Stall) -> bool:
        return self.length_s < other.length_s

    def told(self, facts: Facts) -> str:
        return (
            f"{self.length_s:g} s on {self.queue} from {facts.at(self.start_us)}, "
            f"phase {facts.phase_at(self.start_us)}, {facts.beside(self.start_us, self.end_us)}"
        )


def _moments(confirms: npt.NDArray[np.uint32], origin_us: int) -> Array:
    """When the queue confirmed something, as the middles of ticks."""
    return origin_us + (np.flatnonzero(confirms) + 0.5) * TICK_US


def _longest_stall(queue: str, moments: Array, period: Period, idle: Sequence[Period]) -> _Stall:
    """The longest time between neighbours of: the period's ends, and the confirms within it. A clock that stands still
    while the load pauses measures it: a queue that is dead before a pause and after it stands still all the while."""
    inside = moments[(moments > period[0]) & (moments < period[1])]
    edges = np.concatenate(([period[0]], inside, [period[1]]))
    paused = sum((np.clip(edges - start, 0, end - start) for start, end in idle), np.zeros(len(edges)))
    lengths = np.diff(edges - paused)
    longest = int(np.argmax(lengths))
    return _Stall(queue, float(edges[longest]), float(edges[longest + 1]), seconds(float(lengths[longest])))
