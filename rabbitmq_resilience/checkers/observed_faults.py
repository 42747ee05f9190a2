"""Represent the steps of a schedule as they were observed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rabbitmq_resilience.checkers.cut_pairs import Pair, clients_cut, pairs, slow_s
from rabbitmq_resilience.history.events import Effect, FaultEvent

#: The time of an event that has not happened within the record.
NEVER_US = math.inf


@dataclass(frozen=True)
class ObservedFault:
    """A step of the schedule as it was observed. ``states`` has the first moment of each state that it reached.

    Its effect lasts at least during ``sure_us`` and at most during ``possible_us``, as injecting and healing take time.
    An ``intermittent`` effect is never sure. A ``sudden`` cut closes connections, so that both ends know of it at once.
    """

    number: int
    fault: str
    states: Mapping[str, int]
    down: frozenset[str] = frozenset()
    cut: frozenset[Pair] = frozenset()
    sudden: bool = False
    intermittent: bool = False
    #: The delay of messages between two nodes, in seconds, both directions together.
    slow_s: Mapping[Pair, float] = field(default_factory=dict)
    #: Nodes that lack CPU or memory.
    starved: frozenset[str] = frozenset()
    #: The alarm that the step raises ("memory" or "disk"; empty if none), and on which nodes.
    alarm: str = ""
    alarmed: frozenset[str] = frozenset()
    #: By client (``publisher:0``) or load balancer: what it is cut off from, in at least one direction.
    clients_cut: Mapping[str, frozenset[str]] = field(default_factory=dict)
    operation: bool = False
    #: A version, an image or a feature flag that the cluster has from then on.
    becomes: str = ""

    @property
    def blocks_publishers(self) -> bool:
        """Return whether the step blocks publishers: an alarm on any node blocks them on all nodes."""
        return bool(self.alarmed)

    @property
    def is_fault(self) -> bool:
        """Return whether the step is a fault, and not an operation, which takes nothing away and needs no healing."""
        return not self.operation

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
        if self.intermittent:
            return start, start
        return start, self.states.get("healing", self.states.get("healed", NEVER_US))

    def __str__(self) -> str:
        return f"step {self.number} ({self.fault})"


def step_of(number: int, changes: Sequence[FaultEvent]) -> ObservedFault:
    """Build the step with that number from its recorded events, of which there must be one at least."""
    states: dict[str, int] = {}
    for event in changes:
        states.setdefault(event.state, event.t_us)
    effect = next((event.effect for event in reversed(changes) if event.effect is not None), Effect())
    return ObservedFault(
        number=number,
        fault=changes[0].fault,
        states=states,
        down=frozenset(effect.nodes_down),
        cut=pairs(effect.links_cut),
        sudden=effect.sudden,
        intermittent=effect.intermittent,
        slow_s=slow_s(effect),
        starved=frozenset(effect.nodes_starved),
        alarm=effect.alarm,
        alarmed=frozenset(effect.nodes_alarmed),
        clients_cut=clients_cut(effect.links_cut),
        operation=effect.operation,
        becomes=effect.becomes,
    )
