"""Check that followers of queues catch up with their leaders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts, QueueFacts
from rabbitmq_resilience.checkers.lateness import of_this_machine
from rabbitmq_resilience.checkers.measured import Curve, Curves, curves
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import (
    EXAMPLES_MAX,
    Coverage,
    Finding,
    History,
    InvariantSpec,
    Number,
    Verdict,
)
from rabbitmq_resilience.history.events import SampleEvent

#: Members report their logs every 5 s, each at its own time: the reports of two members may be this far apart.
REPORTED_LATE_S = 10.0
#: The state of a member that reported nothing for longer than this before the end is not known.
SILENT_S_MAX = 15.0
#: Nodes are scraped, and queues sampled, about every second. Looks that are no further apart leave no gap.
LOOKED_EVERY_S = 2.0
NO_REPORTS = Curve(np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True)
class Follower:
    """A member of a queue after the last healing. Moments are None if nothing was seen. ``nodes``: the nodes that may
    have the member."""

    name: str
    last_behind_us: int | None
    caught_up_us: int | None
    entries_behind: int = 0
    nodes: frozenset[str] = frozenset()

    @property
    def is_silent(self) -> bool:
        """Return whether nothing is known about the member after the last healing."""
        return self.last_behind_us is None and self.caught_up_us is None

    def is_hidden(self, due_us: float) -> bool:
        """Return whether no report shows the member just before it had to have caught up."""
        if self.caught_up_us is None or (self.last_behind_us or 0) > due_us:
            return False
        return due_us < self.caught_up_us - LOOKED_EVERY_S * 1e6


class Followers(InvariantSpec):
    """From ``within_s`` after the last fault was healed until the end, no member of a queue is behind.

    A member of a quorum queue is behind if its written log does not reach the entry that any member had committed 10 s
    before. This is known while more than half of the members report their committed entries, each at most 15 s before.
    A queue that a step deleted has another log afterwards. A mirror of a mirrored queue is behind if it is not
    synchronised, or missing. The verdict is UNKNOWN if the state of a member is not known, if the record ends too
    early, or if a fault was never healed. It is also UNKNOWN, as with ``recovery``, if this machine may have made a
    member late.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})
    needs_metrics: ClassVar[bool] = True

    within_s: Annotated[float, Field(gt=0)] = 60

    def check(self, history: History) -> Finding:
        facts = history.facts
        kinds = {queue.kind for queue in facts.queues} & {"quorum", "mirrored"}
        if not kinds or "recovery" not in facts.phases:
            return Finding(Verdict.UNKNOWN, "no queue has followers, or the run has no recovery phase")
        if facts.unhealed:
            step = facts.unhealed[0]
            return Finding(Verdict.UNKNOWN, f"step {step.number} ({step.fault}) was never healed")
        start_us = facts.phases["recovery"] if facts.last_healed_us is None else facts.last_healed_us
        end_us = facts.phases.get("end", facts.events[-1].t_us)
        span_us, due_us = (start_us, end_us), start_us + self.within_s * 1e6
        followers = [*_members(history, facts, span_us, due_us), *_mirrors(facts, span_us, due_us)]
        return self._finding(facts, followers, start_us, end_us)

    def _finding(self, facts: Facts, followers: list[Follower], start_us: int, end_us: int) -> Finding:
        due_us = start_us + self.within_s * 1e6
        since = "the recovery phase began" if facts.last_healed_us is None else "the last healing"
        silent = [f for f in followers if f.is_silent or f.is_hidden(due_us)]
        late = [f for f in followers if f.last_behind_us is not None and f.last_behind_us > due_us]
        lost = [f for f in followers if f.last_behind_us is not None and f.caught_up_us is None and f not in late]
        caught_us = [f.caught_up_us for f in followers if f.caught_up_us is not None]
        numbers: dict[str, Number] = {
            "followers": len(followers),
            "caught_up_after_s": None if late or lost or not caught_us else seconds(max(caught_us) - start_us),
            "entries_behind_max": max((f.entries_behind for f in followers), default=0),
        }
        coverage = Coverage(len(followers) - len({*silent, *lost}), len(followers), "followers")
        if late:
            texts = tuple(f"{f.name} was behind at {facts.at(f.last_behind_us or 0)}" for f in late)
            summary = f"{texts[0]}, {seconds((late[0].last_behind_us or 0) - start_us):g} s after {since}"
            excuses = [self._excuse(facts, f, start_us) for f in late]
            if all(excuses):
                return Finding(Verdict.UNKNOWN, f"{summary}; {excuses[0]}", numbers, texts[:EXAMPLES_MAX], coverage)
            return Finding(Verdict.INVALID, summary, numbers, texts[:EXAMPLES_MAX], coverage)
        if lost:
            summary = f"{lost[0].name} was still behind when the record ended, {seconds(end_us - start_us):g} s after"
            return Finding(Verdict.UNKNOWN, f"{summary} {since}", numbers, (), coverage)
        if silent or not followers:
            names = ", ".join(f.name for f in silent[:5])
            summary = f"it is not known whether all followers caught up: {names or 'none was seen'}"
            return Finding(Verdict.UNKNOWN, summary, numbers, (), coverage)
        summary = f"every follower had caught up {numbers['caught_up_after_s']:g} s after {since}"
        return Finding(Verdict.VALID, summary, numbers, (), coverage)

    def _excuse(self, facts: Facts, late: Follower, start_us: int) -> str:
        came, until_us = late.caught_up_us is not None, late.last_behind_us or start_us
        return of_this_machine(facts, late.nodes, start_us, until_us, allowed_s=self.within_s, came=came)


def _members(history: History, facts: Facts, span_us: tuple[int, int], due_us: float) -> Iterator[Follower]:
    """Yield all members of the quorum queues, also their leaders, which are never behind.

    If a member falls silent before the end, only reports that it was behind after ``due_us`` count.
    """
    start_us, end_us = span_us
    quorum = [queue for queue in facts.queues if queue.kind == "quorum"]
    if quorum:
        written = curves(history.metrics, "raft_written_index")
        committed = curves(history.metrics, "raft_commit_index")
        for queue in quorum:
            for node in sorted(queue.members):
                name = f"{queue.name} on {node}"
                mine = written.get((node, queue.name), NO_REPORTS).within(start_us, end_us)
                lacking = _lacking(mine, queue, committed, since_us=_declared_us(facts, queue.name))
                # a member that only reported its state at the healing counts as silent
                last_us = int(lacking.t_us[-1]) if len(lacking) else 0
                reported = last_us >= max(end_us - SILENT_S_MAX * 1e6, start_us + REPORTED_LATE_S * 1e6)
                seen = replace(_member(name, lacking), nodes=frozenset([node])) if len(lacking) else None
                is_late = seen is not None and (seen.last_behind_us or 0) > due_us
                yield seen if seen is not None and (reported or is_late) else Follower(name, None, None)


def _declared_us(facts: Facts, queue: str) -> float:
    """Return since when a queue has its log: it may have been deleted until then."""
    return max((step.possible_us[1] for step in facts.steps if step.effect.queue_deleted == queue), default=0)


def _lacking(mine: Curve, queue: QueueFacts, committed: Curves, *, since_us: float) -> Curve:
    """Return how many entries the member lacks of those that any member had committed ``REPORTED_LATE_S`` before.

    A moment counts only if more than half of the members reported shortly before it: fewer may have been cut off
    together with the member that lags. Nothing counts that was committed before ``since_us``.
    """
    before_us = mine.t_us - round(REPORTED_LATE_S * 1e6)
    reports = (committed.get((node, queue.name), NO_REPORTS) for node in sorted(queue.members))
    curves_of = [curve.within(since_us, NEVER_US) for curve in reports]
    said = np.array([curve.at(before_us, age_us_max=SILENT_S_MAX * 1e6) for curve in curves_of])
    known = np.count_nonzero(~np.isnan(said), axis=0) * 2 > len(curves_of)
    most = np.max(np.nan_to_num(said, nan=0.0), axis=0)
    return Curve(mine.t_us[known], np.maximum(most - mine.values, 0)[known])


def _member(name: str, lacking: Curve) -> Follower:
    behind = np.flatnonzero(lacking.values > 0)
    last = int(behind[-1]) if len(behind) else None
    after = 0 if last is None else last + 1
    return Follower(
        name,
        last_behind_us=None if last is None else int(lacking.t_us[last]),
        caught_up_us=int(lacking.t_us[after]) if after < len(lacking) else None,
        entries_behind=int(lacking.values.max()),
    )


def _mirrors(facts: Facts, span_us: tuple[int, int], due_us: float) -> Iterator[Follower]:
    start_us, end_us = span_us
    samples = [e for e in facts.of_kind(SampleEvent) if start_us <= e.t_us < end_us]
    for queue in (queue for queue in facts.queues if queue.kind == "mirrored"):
        rows = [(e.t_us, e.queues[queue.name]) for e in samples if queue.name in e.queues]
        seen = [
            (t_us, row.get("behind", 0) or row.get("online", len(queue.members)) < len(queue.members))
            for t_us, row in rows
        ]
        behind = [i for i, (_, mirrors) in enumerate(seen) if mirrors]
        after = behind[-1] + 1 if behind else 0
        is_late = bool(behind) and seen[behind[-1]][0] > due_us
        reported = bool(seen) and (is_late or seen[-1][0] >= end_us - SILENT_S_MAX * 1e6)
        yield Follower(
            f"a mirror of {queue.name}",
            last_behind_us=seen[behind[-1]][0] if behind and reported else None,
            caught_up_us=seen[after][0] if after < len(seen) and reported else None,
            nodes=queue.holders,
        )
