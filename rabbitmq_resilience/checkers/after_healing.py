"""The base of invariants that are due some time after the last fault was healed."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.verdict import Finding, History, InvariantSpec, Verdict


class AfterHealing(InvariantSpec):
    """An invariant that must hold ``within_s`` of the last healing. It holds if there was no fault."""

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
        return self.check_after(history, healed_us=facts.last_healed_us)

    @abstractmethod
    def check_after(self, history: History, *, healed_us: int) -> Finding:
        """Judge a run with all phases whose last fault was healed at that time."""
