"""Check that rebalancing spreads the leaders of queues evenly over the nodes."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import gaps
from rabbitmq_resilience.checkers.listing import lists_all
from rabbitmq_resilience.checkers.observed_faults import ObservedFault
from rabbitmq_resilience.checkers.times import Period
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.history.events import SampleEvent

#: The longest gap that counts as seen. Samples are taken every second.
UNSEEN_S_MAX = 10.0
#: The kinds of queues that count; queues of other kinds have one copy.
REBALANCED = frozenset({"quorum", "mirrored", "stream"})


@dataclass(frozen=True)
class _Look:
    """The spread of leaders at a moment. ``excess``: how many queues the busiest node led above its even share.
    ``even``: whether that is allowed."""

    t_us: int
    excess: int
    even: bool
    text: str


class LeadersSpread(InvariantSpec):
    """From ``within_s`` after each rebalancing on, no running node leads more queues than its even share, rounded up,
    and ``excess_max``. RabbitMQ promises this (rabbit_amqqueue:rebalance/3): with four queues on three nodes, two nodes
    may lead two each. Only queues of the load count, and no classic ones that are not mirrored. A quorum queue with one
    member counts, as it does for RabbitMQ, and cannot be moved. A node may lead any number of queues, if no member of
    one of them leads at least two fewer.

    The time after the next rebalancing, or the next begin or end of a fault, is not judged: RabbitMQ moves no leader to
    a node that comes back. The verdict is UNKNOWN if leaders were not seen for 10 s when they had to be spread. If they
    were not seen at all between that moment and the next fault, they must have been spread at the last look, at most 10
    s before that fault."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})

    excess_max: Annotated[int, Field(ge=0)] = 0
    within_s: Annotated[float, Field(gt=0)] = 30

    def check(self, history: History) -> Finding:
        facts = history.facts
        rebalanced = [step.states["injected"] for step in facts.steps if _rebalances(step)]
        if not rebalanced:
            return Finding(Verdict.UNKNOWN, "no step rebalanced the leaders")
        unclear, uneven, reached_s, excesses = [], [], [], []
        for start_us in rebalanced:
            end_us, due_us = self._looked_until_us(facts, start_us, rebalanced), start_us + self.within_s * 1e6
            looks = list(_looks(facts, (start_us, end_us), self.excess_max))
            late = [look for look in looks if look.t_us >= due_us and not look.even]
            moment = f"the rebalancing at {facts.at(start_us)}"
            if late:
                uneven.append(f"{seconds(late[0].t_us - start_us):g} s after {moment}: {late[0].text}")
            elif unseen := _unseen(looks, (start_us, end_us), due_us):
                unclear.append(f"after {moment} the leaders were not seen to be spread from {facts.at(unseen[0])} on")
            else:
                reached_s.append(seconds(_even_from_us(looks) - start_us))
            excesses += [max(look.excess for look in late or looks[-1:])] if looks else []
        numbers = {
            "rebalanced": len(rebalanced),
            "excess": max(excesses, default=None),
            "spread_after_s": max(reached_s, default=None),
        }
        coverage = Coverage(len(rebalanced) - len(unclear), len(rebalanced), "rebalancings")
        if uneven:
            summary = f"some node leads more than its even share {uneven[0]}"
            return Finding(Verdict.INVALID, summary, numbers, tuple(uneven[:EXAMPLES_MAX]), coverage)
        if unclear:
            return Finding(Verdict.UNKNOWN, unclear[0], numbers, tuple(unclear[:EXAMPLES_MAX]), coverage)
        summary = f"leaders were spread evenly at most {max(reached_s):g} s after each rebalancing, and stayed so"
        return Finding(Verdict.VALID, summary, numbers, (), coverage)

    def _looked_until_us(self, facts: Facts, start_us: int, rebalanced: list[int]) -> float:
        """Return the moment of the next begin or end of a fault, of the next rebalancing, or of the end of the
        record."""
        faults = [t_us for step in facts.steps if step.is_fault for t_us in (step.possible_us[0], step.sure_us[1])]
        last_us = facts.events[-1].t_us
        moves: list[float] = [*faults, *rebalanced, facts.phases.get("end", last_us) + 1, last_us + 1]
        return min(t_us for t_us in moves if t_us > start_us)


def _rebalances(step: ObservedFault) -> bool:
    return step.fault == "rebalance" and "injected" in step.states


def _unseen(looks: Sequence[_Look], span_us: Period, due_us: float) -> Period | None:
    """Return the first period in which leaders had to be spread and may not have been; None if there is none."""
    early, late = ([look for look in looks if (look.t_us >= due_us) == is_late] for is_late in (False, True))
    if not looks:
        return span_us
    since_us = max([span_us[0], *(look.t_us for look in early)])
    if not late:
        is_even = bool(early) and early[-1].even and span_us[1] - since_us <= UNSEEN_S_MAX * 1e6
        return None if is_even else (since_us, span_us[1])
    return next(iter(gaps([look.t_us for look in late], (since_us, span_us[1]), longer_than_s=UNSEEN_S_MAX)), None)


def _even_from_us(looks: Sequence[_Look]) -> int:
    """Return when the last unbroken row of even looks began; the moment of the last look if that was not even."""
    row = list(itertools.takewhile(lambda look: look.even, reversed(looks)))
    return (row or looks)[-1].t_us


def _looks(facts: Facts, span_us: Period, excess_max: int) -> Iterator[_Look]:
    """Yield each look that lists all queues, if all have a leader, or if some node leads too many in any case."""
    moved = {queue.name for queue in facts.queues if queue.kind in REBALANCED}
    members = {queue.name: queue.members for queue in facts.queues}
    for event in facts.of_kind(SampleEvent):
        if not span_us[0] < event.t_us <= span_us[1] or not lists_all(facts, event):
            continue
        leaders = {name: row.get("leader") for name, row in event.queues.items() if name in moved}
        up = [node for node, state in (facts.states_at(event.t_us) or {}).items() if state == "up"]
        if not leaders or not up:
            continue
        led, share = Counter(leaders.values()), math.ceil(len(leaders) / len(up))
        can_move = {
            leader
            for name, leader in leaders.items()
            if any(led[node] + 1 < led[leader] for node in up if node in members[name])
        }
        excess = max([0, *(led[node] - share for node in up if node in can_move)])
        if excess > excess_max or None not in leaders.values():
            text = ", ".join(f"{node} leads {led[node]}" for node in up)
            yield _Look(event.t_us, excess, excess <= excess_max, text)
