"""The steps of a schedule as they went."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rabbitmq_resilience.invariants.links import Pair, clients_cut, pairs, slow_s
from rabbitmq_resilience.record.events import Effect, FaultEvent

#: The time of what has not happened within the record.
NEVER_US = math.inf


@dataclass(frozen=True)
class Step:
    """One step of the schedule as it went. ``states`` gives the first moment of each state that was reached.

    Its effect lasts at least over ``sure_us`` and at most over ``possible_us``: injecting and healing take time, and
    an ``intermittent`` effect is never sure. A ``sudden`` cut closes connections, so that both ends know at once.
    """

    number: int
    fault: str
    states: Mapping[str, int]
    down: frozenset[str] = frozenset()
    cut: frozenset[Pair] = frozenset()
    sudden: bool = False
    intermittent: bool = False
    #: By how much messages between two nodes are later, there and back together, in seconds.
    slow_s: Mapping[Pair, float] = field(default_factory=dict)
    #: Nodes that lack CPU or memory.
    starved: frozenset[str] = frozenset()
    #: The alarm that it raises ("memory" or "disk"; empty if none), and on which nodes.
    alarm: str = ""
    alarmed: frozenset[str] = frozenset()
    #: Of clients (``publisher:0``) and load balancers what they are cut off from, one way at least.
    clients_cut: Mapping[str, frozenset[str]] = field(default_factory=dict)
    operation: bool = False
    #: A version, an image or a feature flag that the cluster has from then on.
    becomes: str = ""

    @property
    def blocks_publishers(self) -> bool:
        """An alarm on any node blocks them on all."""
        return bool(self.alarmed)

    @property
    def is_fault(self) -> bool:
        """What operators do takes nothing away, so that there is nothing to heal."""
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


def step_of(number: int, changes: Sequence[FaultEvent]) -> Step:
    states: dict[str, int] = {}
    for event in changes:
        states.setdefault(event.state, event.t_us)
    effect = next((event.effect for event in reversed(changes) if event.effect is not None), Effect())
    return Step(
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
