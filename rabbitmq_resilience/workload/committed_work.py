"""Compare what an application acknowledged with what it says that it committed."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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


class _Acknowledged(NamedTuple):
    """An acknowledged delivery. ``commits``: how many lines may be its commit; ``committed_us``: the first of them, inf
    if there is none. ``number``: its place among the bodies that its program acknowledged under one message_id."""

    delivery: TappedDelivery
    commits: int
    committed_us: float
    number: int

    @property
    def early_us(self) -> float:
        """Return how long before its commit it was acknowledged; less than 0 if it was committed first."""
        assert self.delivery.settled_us is not None
        return self.committed_us - self.delivery.settled_us


class CommittedWork:
    """What the processes of an application committed of the messages that they acknowledged.

    ``work``: by process what it wrote. A program is judged if one of its processes committed any message. Each message
    counts that it got by ``drained_us`` and acknowledged, and that has a message_id and was confirmed to its publisher.
    It is committed if a process of a program that got it from the same queue says so, at any time, or of one that never
    got it from a broker. Messages that share a message_id and have different bodies need a commit each. A message that
    its program published again before it committed it need not be committed; its next delivery has to be.
    ``epoch_us``: the moment 0 of the programs' clock on that of the record; None if the machine's clock was set during
    the run, so that moments cannot be compared.
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
        self._unmatched: Counter[str] = Counter()
        #: By message_id: the programs that said that they committed it, and when.
        self._commits: defaultdict[int, list[tuple[str, float]]] = defaultdict(list)
        #: By message_id: the programs that got it, and from which queue.
        self._readers: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
        for delivery in messages.deliveries:
            self._readers[delivery.identity].add((_program(delivery.process), delivery.queue))
        for process, written in work.items():
            for line in written.lines:
                if line.event == COMMITTED:
                    identity = identity_of(line.message_id)
                    self._unmatched[process] += identity not in self._readers
                    self._commits[identity].append((_program(process), self._moment_us(line)))
        self._acknowledged = list(self._judged(messages, drained_us))

    def _judged(self, messages: WireMessages, drained_us: int) -> Iterator[_Acknowledged]:
        """Yield the acknowledged deliveries that have to be committed."""
        judged = {program for commits in self._commits.values() for program, _ in commits}
        sent = [one for one in messages.publishes if one.named and one.outcome is Outcome.CONFIRMED]
        confirmed = {(one.identity, one.body) for one in sent}
        published_us = {(_program(one.process), one.identity, one.body): one.sent_us for one in sent}  # the last time
        bodies: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for delivery in messages.deliveries:
            program, identity, body = _program(delivery.process), delivery.identity, delivery.body
            counts = program in judged and (identity, body) in confirmed and delivery.received_us < drained_us
            if not counts or not delivery.settled or delivery.rejected:
                continue
            commits = self._commits_of(delivery)
            one = _Acknowledged(delivery, len(commits), min(commits, default=math.inf), 0)
            handed_on = published_us.get((program, identity, body), -1) >= delivery.received_us
            if handed_on and one.early_us > EARLY_US:
                continue
            if body not in (known := bodies[program, identity]):
                known.append(body)
            yield one._replace(number=known.index(body))

    def _commits_of(self, delivery: TappedDelivery) -> Sequence[float]:
        """Return the moments of all lines that may be the commit of a delivery."""
        readers = self._readers[delivery.identity]
        elsewhere = {program for program, _ in readers} - {name for name, queue in readers if queue == delivery.queue}
        return [at_us for program, at_us in self._commits.get(delivery.identity, ()) if program not in elsewhere]

    def _moment_us(self, line: WorkLine) -> float:
        return _SOME_TIME if line.at_s is None or self._epoch_us is None else line.at_s * 1e6 + self._epoch_us

    def by_process(self) -> dict[str, dict[str, Any]]:
        """Return the numbers of each process of the programs that wrote anything; see
        ``history.application_events.ApplicationUseEvent``."""
        writing = {_program(process) for process, written in self._work.items() if not written.is_empty}
        acknowledged = Counter(one.delivery.process for one in self._acknowledged)
        lost = Counter(delivery.process for delivery in self._uncommitted())
        early: dict[str, list[float]] = {}
        for one in self._acknowledged:
            if one.commits and not one.delivery.automatic and one.early_us > EARLY_US:
                early.setdefault(one.delivery.process, []).append(one.early_us)
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
        """Return the first acknowledged delivery of each message that was not committed."""
        lost: dict[tuple[str, int, int], TappedDelivery] = {}
        for delivery, commits, _, number in self._acknowledged:
            if commits <= number:
                lost.setdefault((_program(delivery.process), delivery.identity, delivery.body), delivery)
        return list(lost.values())


def _program(process: str) -> str:
    """Return the program that a process runs: ``worker`` for ``worker-0``."""
    return process.rpartition("-")[0]
