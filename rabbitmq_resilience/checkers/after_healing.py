"""The base of invariants that are due some time after the last fault was healed and all nodes were up again."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import UNWATCHED_S_MAX, gaps
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import Finding, History, InvariantSpec, Verdict


@dataclass(frozen=True)
class Deadline:
    """When something is due: ``within_us`` after ``up_us``, since when all nodes were up after the last healing. If
    that is not known, for the reason ``unknown``, ``up_us`` is that healing."""

    healed_us: int
    up_us: float
    within_us: float
    drain_us: float
    unknown: str = ""

    @property
    def sure_us(self) -> float:
        """Return until when what is there is surely in time."""
        return self.up_us + self.within_us

    @property
    def due_us(self) -> float:
        """Return when what is not there is late: after the drain's begin, if it is not known since when nodes were
        up."""
        return self.drain_us + self.within_us if self.unknown else self.sure_us

    def since(self, t_us: float) -> str:
        """Return in words how long after the healing, and after the nodes came up, a moment is."""
        text = f"{seconds(t_us - self.healed_us):g} s after the last fault was healed"
        if self.unknown:
            return f"{text}, and {self.unknown}"
        up = f"{seconds(t_us - self.up_us):g} s after all nodes were up"
        return text if self.up_us == self.healed_us else f"{text}, {up}"


class AfterHealing(InvariantSpec):
    """An invariant that must hold ``within_s`` of the last healing, or of the moment since which all nodes were up
    after it, as a broker that is still starting refuses clients. It holds if there was no fault, and is UNKNOWN if one
    was never healed."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "faults_begun", "watched"})

    within_s: Annotated[float, Field(gt=0)] = 60.0

    @property
    def settled_s(self) -> float:
        return self.within_s

    def check(self, history: History) -> Finding:
        facts = history.facts
        if not {"steady", "chaos", "drain"} <= facts.phases.keys():
            return Finding(Verdict.UNKNOWN, "the phases of the run were not recorded")
        if facts.unhealed:
            step = facts.unhealed[0]
            return Finding(Verdict.UNKNOWN, f"step {step.number} ({step.fault}) was never healed")
        if facts.last_healed_us is None:
            return Finding(Verdict.VALID, "there was no fault")
        return self.check_after(history, self._deadline(facts, facts.last_healed_us))

    def _deadline(self, facts: Facts, healed_us: int) -> Deadline:
        drain_us, within_us = facts.phases["drain"], self.within_s * 1e6
        nodes = facts.cluster.nodes if facts.cluster is not None else ()
        looks = [(t, states) for t, states in facts.node_states if healed_us <= t < drain_us]
        up = list(itertools.takewhile(lambda look: _all_up(look[1], nodes), reversed(looks)))
        up_us = up[-1][0] if up else None
        if len(up) == len(looks) and _all_up(facts.states_at(healed_us) or {}, nodes):
            up_us = healed_us
        until_us = drain_us if up_us is None else min(up_us + within_us, drain_us)
        unseen = gaps([t for t, _ in looks], (healed_us, until_us), longer_than_s=UNWATCHED_S_MAX)
        if up_us is not None and not unseen:
            return Deadline(healed_us, up_us, within_us, drain_us)
        unknown = "the nodes were not observed for a while" if unseen else "a node was not up"
        return Deadline(healed_us, healed_us, within_us, drain_us, unknown)

    @abstractmethod
    def check_after(self, history: History, deadline: Deadline) -> Finding:
        """Judge a run with all phases and a fault."""


def _all_up(states: Mapping[str, str], nodes: Sequence[str]) -> bool:
    return all(states.get(node) == "up" for node in nodes)
