"""Compare what an application acknowledged with what it says that it committed."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rabbitmq_resilience.history.history import Outcome, now_us
from rabbitmq_resilience.workload.wire_messages import TappedDelivery, WireMessages
from rabbitmq_resilience.workload.work_lines import COMMITTED, WORKED_ON, WorkLine, WorkOfProcess

#: An acknowledgement counts as early if the tap saw it this long before the commit. A tap sees it late, never too soon.
#: So this allows only for programs that read the clock after the commit, or round its moment.
EARLY_US = 2_000
#: When a message was committed of which no moment is stated: it is not said to be late.
_SOME_TIME = -math.inf


def epoch_us() -> int:
    """Return the moment 0 of the epoch on the clock of records. It stays the same until the machine's clock is set."""
    return max(now_us() - time.time_ns() // 1000 for _ in range(5))


class CommittedWork:
    """What the processes of an application committed of the messages that they acknowledged.

    ``work``: by process what it wrote. A program is judged if one of its processes committed any message. Each message
    counts that it got by ``drained_us`` and acknowledged, and that has a message_id and was confirmed to its publisher.
    It is committed if any process says so, at any time. ``epoch_us``: the moment 0 of the programs' clock on that of
    the record; None if the machine's clock was set during the run, so that moments cannot be compared.
    """

    def __init__(
        self,
        messages: WireMessages,
        work: Mapping[str, WorkOfProcess],
        identity_of: Callable[[str], int],
        *,
        drained_us: int,
        epoch_us: int | None,
    ) -> None:
        self._work = work
        self._epoch_us = epoch_us
        self._committed_us: dict[int, float] = {}
        self._unmatched: Counter[str] = Counter()
        judged: set[str] = set()
        sent = {one.identity for one in messages.publishes if one.named and one.outcome is Outcome.CONFIRMED}
        came = {delivery.identity for delivery in messages.deliveries}
        for process, written in work.items():
            for line in written.lines:
                if line.event == COMMITTED:
                    identity = identity_of(line.message_id)
                    self._unmatched[process] += identity not in came
                    known_us = self._committed_us.get(identity, math.inf)
                    self._committed_us[identity] = min(self._moment_us(line), known_us)
                    judged.add(_program(process))
        self._acknowledged = [
            delivery
            for delivery in messages.deliveries
            if _program(delivery.process) in judged
            and delivery.identity in sent
            and delivery.settled
            and not delivery.rejected
            and delivery.received_us < drained_us
        ]

    def _moment_us(self, line: WorkLine) -> float:
        return _SOME_TIME if line.at_s is None or self._epoch_us is None else line.at_s * 1e6 + self._epoch_us

    def by_process(self) -> dict[str, dict[str, Any]]:
        """Return the numbers of each process of the programs that wrote anything; see
        ``history.application_events.ApplicationUseEvent``."""
        writing = {_program(process) for process, written in self._work.items() if not written.is_empty}
        acknowledged = Counter(delivery.process for delivery in self._acknowledged)
        lost = Counter(delivery.process for delivery in self._uncommitted())
        early: dict[str, list[float]] = {}
        for delivery in self._acknowledged:
            if not delivery.automatic and (by_us := self._early_us(delivery)) > EARLY_US:
                early.setdefault(delivery.process, []).append(by_us)
        events = {name: Counter(line.event for line in of.lines) for name, of in self._work.items()}
        return {
            process: {
                WORKED_ON: events[process][WORKED_ON],
                COMMITTED: events[process][COMMITTED],
                "acknowledged": acknowledged[process],
                "uncommitted": lost[process],
                "early": len(early.get(process, ())),
                "early_s_max": round(max(early.get(process, [0.0])) / 1e6, 3),
                "unmatched": self._unmatched[process],
                "unread": written.unread,
                "first_unread": written.first_unread,
            }
            for process, written in self._work.items()
            if _program(process) in writing
        }

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the fields of an event "uncommitted" for each message that was acknowledged and never committed."""
        for delivery in self._uncommitted():
            yield {"t_us": delivery.settled_us, "process": delivery.process, "queue": delivery.queue}

    def _uncommitted(self) -> list[TappedDelivery]:
        """Return the first acknowledged delivery of each message that no process committed."""
        lost: dict[int, TappedDelivery] = {}
        for delivery in self._acknowledged:
            if delivery.identity not in self._committed_us:
                lost.setdefault(delivery.identity, delivery)
        return list(lost.values())

    def _early_us(self, delivery: TappedDelivery) -> float:
        """Return how long before its commit a message was acknowledged; less than 0 if it was committed first."""
        assert delivery.settled_us is not None
        return self._committed_us.get(delivery.identity, _SOME_TIME) - delivery.settled_us


def _program(process: str) -> str:
    """Return the program that a process runs: ``worker`` for ``worker-0``."""
    return process.rpartition("-")[0]
