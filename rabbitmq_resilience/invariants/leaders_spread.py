"""Rebalancing spreads the leaders of queues evenly over the nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.invariants.gaps import gaps
from rabbitmq_resilience.invariants.listing import lists_all
from rabbitmq_resilience.invariants.steps import Step
from rabbitmq_resilience.invariants.units import seconds
from rabbitmq_resilience.invariants.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.record.events import SampleEvent

#: Samples are asked for every second.
UNSEEN_S_MAX = 10.0
#: Queues of the other kinds have one copy, and stay where that is.
REBALANCED = frozenset({"quorum", "mirrored", "stream"})


class LeadersSpread(InvariantSpec):
    """At most ``within_s`` after each rebalancing, and from then on, no running node leads more queues than its even
    share, rounded up, and ``excess_max``. That is what RabbitMQ promises (rabbit_amqqueue:rebalance/3): of four queues
    on three nodes, two nodes may lead two each. Queues with one copy are not moved, and do not count. What comes after
    the next fault or rebalancing is not looked at. A rebalancing after which the leaders were not seen when they had to
    be spread, or for 10 s from then on, leaves it UNKNOWN."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete"})

    excess_max: Annotated[int, Field(ge=0)] = 0
    within_s: Annotated[float, Field(gt=0)] = 30

    def check(self, history: History) -> Finding:
        facts = history.facts
        rebalanced = [step.states["injected"] for step in facts.steps if _rebalances(step)]
        if not rebalanced:
            return Finding(Verdict.UNKNOWN, "nothing was rebalanced")
        untold, uneven, reached_s, excesses = [], [], [], []
        for start_us in rebalanced:
            end_us, due_us = self._looked_until_us(facts, start_us, rebalanced), start_us + self.within_s * 1e6
            seen = list(_spreads(facts, start_us, end_us))
            even = _even_from_us(seen, self.excess_max)
            late = [look for look in seen if look[0] >= due_us and look[1] > self.excess_max]
            moment = f"the rebalancing at {facts.at(start_us)}"
            unseen = gaps([t for t, *_ in seen], (even, end_us), longer_than_s=UNSEEN_S_MAX) if even is not None else []
            if unseen:
                untold.append(f"{moment} spread them evenly, and from {facts.at(unseen[0][0])} on they were not seen")
            elif even is not None and even <= due_us:
                reached_s.append(seconds(even - start_us))
            elif not late:
                untold.append(f"after {moment} the leaders were not seen for {self.within_s:g} s")
            else:
                uneven.append(f"{seconds(late[0][0] - start_us):g} s after {moment}: {late[0][2]}")
            excesses += [max(excess for _, excess, _ in late or seen[-1:])] if seen else []
        numbers = {
            "rebalanced": len(rebalanced),
            "excess": max(excesses, default=None),
            "spread_after_s": max(reached_s, default=None),
        }
        coverage = Coverage(len(rebalanced) - len(untold), len(rebalanced), "rebalancings")
        if uneven:
            summary = f"some node leads more than its even share {uneven[0]}"
            return Finding(Verdict.INVALID, summary, numbers, tuple(uneven[:EXAMPLES_MAX]), coverage)
        if untold:
            return Finding(Verdict.UNKNOWN, untold[0], numbers, tuple(untold[:EXAMPLES_MAX]), coverage)
        summary = f"leaders were spread evenly at most {max(reached_s):g} s after each rebalancing, and stayed so"
        return Finding(Verdict.VALID, summary, numbers, (), coverage)

    def _looked_until_us(self, facts: Facts, start_us: int, rebalanced: list[int]) -> float:
        """What moves leaders next: a fault, another rebalancing or the end of the record."""
        faults = [step.possible_us[0] for step in facts.steps if not _rebalances(step)]
        last_us = facts.events[-1].t_us
        moves: list[float] = [*faults, *rebalanced, facts.phases.get("end", last_us) + 1, last_us + 1]
        return min(t_us for t_us in moves if t_us > start_us)


def _rebalances(step: Step) -> bool:
    return not step.is_fault and "injected" in step.states


def _even_from_us(seen: Sequence[tuple[int, int, str]], excess_max: int) -> int | None:
    """The first moment of the last unbroken row in which leaders were spread evenly; None if it ends unevenly."""
    even_us = None
    for t_us, excess, _ in seen:
        even_us = None if excess > excess_max else t_us if even_us is None else even_us
    return even_us


def _spreads(facts: Facts, start_us: float, end_us: float) -> Iterator[tuple[int, int, str]]:
    """Yield each moment at which every queue was listed with its leader, how many more than its even share the node
    that leads most had (0 if none had), and which node led how many."""
    fixed = {queue.name for queue in facts.queues if queue.kind not in REBALANCED}
    for event in facts.of_kind(SampleEvent):
        if not start_us < event.t_us <= end_us:
            continue
        leaders = [row.get("leader") for name, row in event.queues.items() if name not in fixed]
        if not leaders or None in leaders or not lists_all(facts, event):
            continue
        up = [node for node, state in (facts.states_at(event.t_us) or {}).items() if state == "up"]
        led = Counter(leaders)
        counts = {node: led[node] for node in up}
        if counts:
            text = ", ".join(f"{node} leads {count}" for node, count in counts.items())
            yield event.t_us, max(0, max(counts.values()) - math.ceil(len(leaders) / len(up))), text
