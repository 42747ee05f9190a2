"""The base of invariants that are due some time after the last fault was healed and all nodes were up again."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import Finding, History, InvariantSpec, Verdict


@dataclass(frozen=True)
class Deadline:
    """When something is due: ``healed_us`` is the last healing, ``up_us`` when all nodes were first seen up from then
    on, None if they never were."""

    healed_us: int
    up_us: int | None
    due_us: float

    def since(self, t_us: float) -> str:
        """Return in words how long after the healing, and after the nodes came up, a moment is."""
        text = f"{seconds(t_us - self.healed_us):g} s after the last fault was healed"
        if self.up_us is None:
            return f"{text}, and a node was not up"
        up = f"{seconds(t_us - self.up_us):g} s after all nodes were up"
        return text if self.up_us == self.healed_us else f"{text}, {up}"


class AfterHealing(InvariantSpec):
    """An invariant that must hold ``within_s`` of the last healing, or of the moment at which all nodes were seen up
    after it, as a broker that is still starting refuses clients. It holds if there was no fault."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "faults_begun", "watched"})

    within_s: Annotated[float, Field(gt=0)] = 60.0

    @property
    def settled_s(self) -> float:
        return self.within_s

    def check(self, history: History) -> Finding:
        facts = history.facts
        if not {"steady", "chaos", "drain"} <= facts.phases.keys():
            return Finding(Verdict.UNKNOWN, "the phases of the run were not recorded")
        if facts.last_healed_us is None:
            return Finding(Verdict.VALID, "there was no fault")
        return self.check_after(history, self._deadline(facts, facts.last_healed_us))

    def _deadline(self, facts: Facts, healed_us: int) -> Deadline:
        nodes = facts.cluster.nodes if facts.cluster is not None else ()
        looks = ((t, states) for t, states in facts.node_states if healed_us <= t < facts.phases["drain"])
        up_us = next((t for t, states in looks if all(states.get(node) == "up" for node in nodes)), None)
        from_us = facts.phases["drain"] if up_us is None else up_us
        return Deadline(healed_us, up_us, from_us + self.within_s * 1e6)

    @abstractmethod
    def check_after(self, history: History, deadline: Deadline) -> Finding:
        """Judge a run with all phases and a fault."""
