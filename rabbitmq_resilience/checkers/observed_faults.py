"""Represent the steps of a schedule as they were observed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rabbitmq_resilience.checkers.cut_pairs import Pair, clients_cut, pairs, slow_s
from rabbitmq_resilience.history.events import Effect, FaultEvent
from rabbitmq_resilience.model.links import Link

#: The time of an event that has not happened within the record.
NEVER_US = math.inf


@dataclass(frozen=True)
class ObservedFault:
    """A step of the schedule as it was observed. ``states`` has the first moment of each state that it reached.
    ``effect`` is what was recorded; properties convert it for checkers.

    The effect lasts at least during ``sure_us`` and at most during ``possible_us``, as injecting and healing take time.
    An ``intermittent`` effect is never sure. A ``sudden`` cut closes connections, so that both ends know of it at once.
    """

    number: int
    fault: str
    states: Mapping[str, int]
    effect: Effect

    @cached_property
    def down(self) -> frozenset[str]:
        return frozenset(self.effect.nodes_down)

    @cached_property
    def starved(self) -> frozenset[str]:
        return frozenset(self.effect.nodes_starved)

    @cached_property
    def alarmed(self) -> frozenset[str]:
        return frozenset(self.effect.nodes_alarmed)

    @cached_property
    def damaged(self) -> frozenset[str]:
        """Return the nodes of which a stored file was damaged."""
        return frozenset(self.effect.nodes_damaged)

    @cached_property
    def emptied(self) -> frozenset[str]:
        """Return the nodes that lost all that they had stored."""
        return frozenset(self.effect.nodes_emptied)

    def damages(self, queue_type: str) -> bool:
        """Return whether a damaged file may be of a queue of that type."""
        of_type = "quorum" if queue_type == "quorum" else "classic"
        return bool(self.damaged) and self.effect.type_damaged in ("", of_type)

    @cached_property
    def cut(self) -> frozenset[Pair]:
        return pairs(self.effect.links_cut)

    @cached_property
    def slow_s(self) -> Mapping[Pair, float]:
        """Return the delay of messages between two nodes, in seconds, both directions together."""
        return slow_s(self.effect)

    @cached_property
    def clients_cut(self) -> Mapping[str, frozenset[str]]:
        """Return what each client (``publisher:0``) or load balancer is cut off from, in at least one direction."""
        return clients_cut(self.effect.links_cut)

    @property
    def blocks_publishers(self) -> bool:
        """Return whether the step blocks publishers: an alarm on any node blocks them on all nodes."""
        return bool(self.alarmed)

    @property
    def is_fault(self) -> bool:
        """Return whether the step is a fault, and not an operation, which takes nothing away and needs no healing."""
        return not self.effect.operation

    @property
    def injected(self) -> bool:
        return "injecting" in self.states or "injected" in self.states

    @property
    def possible_us(self) -> tuple[float, float]:
        start = self.states.get("injecting", self.states.get("injected", NEVER_US))
        return start, self.states.get("healed", NEVER_US)

    @property
    def sure_us(self) -> tuple[float, float]:
        start = self.states.get("injected", self.states.get("injecting", NEVER_US))
        if self.effect.intermittent:
            return start, start
        return start, self.states.get("healing", self.states.get("healed", NEVER_US))

    def with_cut(self, more: Iterable[Pair], **changes: Any) -> ObservedFault:
        """Return the step with these pairs of brokers cut, too, and with other changes of its effect."""
        links = self.effect.links_cut | {Link(*sorted(pair)) for pair in more}
        return replace(self, effect=replace(self.effect, links_cut=links, **changes))

    def __str__(self) -> str:
        return f"step {self.number} ({self.fault})"


def step_of(number: int, changes: Sequence[FaultEvent]) -> ObservedFault:
    """Build the step with that number from its recorded events, of which there must be one at least."""
    states: dict[str, int] = {}
    for event in changes:
        states.setdefault(event.state, event.t_us)
    effect = next((event.effect for event in reversed(changes) if event.effect is not None), Effect())
    return ObservedFault(number, changes[0].fault, states, effect)
