"""Count in ticks of time when each queue was tried, confirmed and delivered.

The pass that fills the ledger also fills these counts. They take ten bytes for each queue and tick, whatever the number
of messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.columns import Array, grouped
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.history.history import Outcome

#: The resolution at which moments are kept.
TICK_US = 20_000

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Flow:
    """The ticks of one queue, or of several queues together: the number of ``confirms``; the change in the number of
    messages ``under_way`` (due, and not answered in any way); whether any message was ``due``; and whether any was
    ``delivered``."""

    confirms: npt.NDArray[np.uint32]
    under_way: npt.NDArray[np.int32]
    due: Flags
    delivered: Flags

    @classmethod
    def of_ticks(cls, ticks: int) -> Flow:
        """Return an empty flow of that length."""
        flags = np.zeros(ticks, np.bool_), np.zeros(ticks, np.bool_)
        return cls(np.zeros(ticks, np.uint32), np.zeros(ticks, np.int32), *flags)


@dataclass
class Traffic:
    """The flows of all queues, by index, from ``span_us[0]`` (the start of the steady phase) to ``span_us[1]`` (the end
    of publishing).

    ``nacks`` has the queues that sent any. ``late_us`` is, for queues with messages under way at the end, when the
    first of these was confirmed. ``given_up_us`` is when the last of the unconfirmed ones was answered. ``repeated``
    are the confirms that are counted for a second or a further queue of their messages.
    """

    span_us: tuple[int, int]
    flows: dict[int, Flow] = field(default_factory=dict)
    nacks: dict[int, npt.NDArray[np.uint32]] = field(default_factory=dict)
    late_us: dict[int, int] = field(default_factory=dict)
    given_up_us: dict[int, int] = field(default_factory=dict)
    repeated: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))

    @property
    def span_s(self) -> float:
        return seconds(self.span_us[1] - self.span_us[0])

    @property
    def ticks(self) -> int:
        return (self.span_us[1] - self.span_us[0]) // TICK_US + 1

    @property
    def confirms(self) -> Mapping[int, npt.NDArray[np.uint32]]:
        """Return the confirms of each queue that confirmed anything, by tick."""
        return {queue: flow.confirms for queue, flow in self.flows.items() if flow.confirms.any()}

    @property
    def messages(self) -> npt.NDArray[np.uint64]:
        """Return the number of messages confirmed in each tick; a message counts once, not for each of its queues."""
        total = np.zeros(self.ticks, np.uint64)
        for confirms in self.confirms.values():
            total += confirms
        if len(self.repeated):
            total -= self.repeated
        return total

    def enter_repeated(self, outcome_us: Array) -> None:
        """Count confirms that are counted for another queue of their messages already."""
        within = (outcome_us >= self.span_us[0]) & (outcome_us < self.span_us[1])
        if not len(self.repeated):
            self.repeated = np.zeros(self.ticks, np.uint32)
        _count(self.repeated, self._tick(outcome_us[within]))

    @property
    def waited_us(self) -> Mapping[int, int]:
        """Return, for each queue with messages under way at the end, when the first of these was confirmed, or the last
        one given up if none was confirmed."""
        return {**self.given_up_us, **self.late_us}

    def enter_publishes(self, queue: Array, due_us: Array, outcome: Array, outcome_us: Array) -> None:
        """Enter rows of published messages; messages that were never sent are left out."""
        sent = outcome != Outcome.NEVER_SENT
        columns = [queue, due_us, outcome, outcome_us]
        for (name,), rows in grouped(queue) if sent.all() else ():
            self._publish(name, due_us[rows], outcome[rows], outcome_us[rows])
        if not sent.all() and sent.any():
            self.enter_publishes(*(column[sent] for column in columns))

    def _publish(self, name: int, due_us: Array, outcome: Array, outcome_us: Array) -> None:
        flow = self._flow(name)
        self._wait(name, outcome, outcome_us)
        due, answered = self._tick(due_us), self._tick(outcome_us)
        concerns = (due_us < self.span_us[1]) & (answered >= 0)
        confirmed = (outcome == Outcome.CONFIRMED) & (outcome_us >= self.span_us[0]) & (outcome_us < self.span_us[1])
        _count(flow.confirms, answered[confirmed])
        nacked = (outcome == Outcome.NACKED) & (answered >= 0) & (answered < self.ticks)
        if nacked.any():
            _count(self.nacks.setdefault(name, np.zeros(self.ticks, np.uint32)), answered[nacked])
        if not concerns.all():
            due, answered = due[concerns], answered[concerns]
        due = np.maximum(due, 0)
        flow.due[due] = True
        _count(flow.under_way, due)
        _count(flow.under_way, answered[answered < self.ticks], by=-1)

    def _wait(self, name: int, outcome: Array, outcome_us: Array) -> None:
        after = outcome_us >= self.span_us[1]
        if after.any():
            late_us, kept = outcome_us[after], outcome[after] == Outcome.CONFIRMED
            if kept.any():
                first_us = int(late_us[kept].min())
                self.late_us[name] = min(self.late_us.get(name, first_us), first_us)
            if not kept.all():
                last_us = int(late_us[~kept].max())
                self.given_up_us[name] = max(self.given_up_us.get(name, last_us), last_us)

    def enter_deliveries(self, queue: Array, received_us: Array) -> None:
        """Enter rows of deliveries."""
        received = self._tick(received_us)
        within = (received >= 0) & (received < self.ticks)
        if not within.all():
            queue, received = queue[within], received[within]
        for (name,), rows in grouped(queue) if len(queue) else ():
            self._flow(name).delivered[received[rows]] = True

    def all_queues(self) -> Flow:
        """Return the flow of all queues as if they were one."""
        whole = Flow.of_ticks(self.ticks)
        for flow in self.flows.values():
            for name in ("confirms", "under_way", "due", "delivered"):
                total = getattr(whole, name)
                np.add(total, getattr(flow, name), out=total)
        return whole

    def _flow(self, name: int) -> Flow:
        if name not in self.flows:
            self.flows[name] = Flow.of_ticks(self.ticks)
        return self.flows[name]

    def _tick(self, moments_us: Array) -> Array:
        return (moments_us - self.span_us[0]) // TICK_US


def _count(total: Array, ticks: Array, *, by: int = 1) -> None:
    if len(ticks):
        first = int(ticks.min())
        counts = np.bincount(ticks - first)
        total[first : first + len(counts)] += (by * counts).astype(total.dtype)
