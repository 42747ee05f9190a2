"""The base of steps that act on single methods of AMQP between an application and its brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import Field

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, LateProof, Proof, left_over
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.tap.method_rules import MethodRule, Treatment
from rabbitmq_resilience.tap.tap import Tap
from rabbitmq_resilience.workload.application_model import ApplicationWorkload
from rabbitmq_resilience.workload.running_application import RunningApplication
from rabbitmq_resilience.workload.workload_base import WorkloadBase


class MethodStep(ScheduledFault):
    """``method`` is named as in the specification of AMQP 0-9-1 (``basic.consume-ok``); ``confirms`` are those of a
    broker, and ``acknowledgements`` those of a client. ``process`` is one of the application (``worker-0``) or all
    copies of a program (``worker``); without it, all. ``times``: for how many methods; null for each."""

    method: str
    process: str | None = None
    times: Annotated[int, Field(ge=1)] | None = 1

    acts_on: ClassVar[str] = "clients"
    treatment: ClassVar[Treatment]

    def rule(self, processes: tuple[str, ...] = ()) -> MethodRule:
        """Return what the tap shall do. Raise ValueError if it cannot."""
        return MethodRule(
            method=self.method, treatment=self.treatment, times=self.times, processes=processes, **self._own_fields()
        )

    def _own_fields(self) -> Mapping[str, Any]:
        return {}

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:  # noqa: ARG002 - one form for all
        if not isinstance(workload, ApplicationWorkload):
            text = "this acts on the user's own program: write workload: {kind: application, ...}"
            return {"fault": text}
        try:
            self.rule()
        except ValueError as error:
            return {"method": str(error)}
        if self.process is not None and not workload.meant(self.process):
            there = ", ".join(process.name for process in workload.processes)
            return {"process": f"the application has no process {self.process!r}; there are {there}"}
        return {}

    def footprint(self, topology: Topology) -> Footprint:  # noqa: ARG002 - brokers are not touched
        return Footprint()

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> MethodInjection:  # noqa: ARG002 - the rule lasts until it is healed
        load = context.load
        assert isinstance(load, RunningApplication)
        return MethodInjection(load.tap, self.rule(() if self.process is None else load.workload.meant(self.process)))


@dataclass
class MethodInjection:
    """A rule in effect. It is proven once it has met a method; this may take as long as the step lasts."""

    tap: Tap
    rule: MethodRule
    _number: int | None = field(default=None, init=False)
    _count: int = field(default=0, init=False)

    @property
    def effect(self) -> Effect:
        return Effect()

    def inject(self) -> None:
        self._number = self.tap.add_rule(self.rule)

    def heal(self) -> None:
        if self._number is not None:
            self._count = self.tap.end_rule(self._number)

    def prove(self, *, timeout_s: float) -> Proof | LateProof:
        """Return a proof that a method was met, or one for after the healing if none was yet."""
        number = self._number
        assert number is not None

        def none_met() -> list[str]:
            self._count = self.tap.met(number)
            return [] if self._count else [self.rule.method]

        left_over(none_met, timeout_s=timeout_s, what=f"a {self.rule.method} to be met")
        return self._proof() if self._count else self._proof

    def _proof(self) -> Proof:
        text = f"{self._count} x {self.rule.method}: {self.rule.treatment}"
        return Proof(self._count > 0, text if self._count else f"no {self.rule.method} was sent meanwhile")

    def prove_healed(self) -> Proof:
        """Return a proof that the rule is in effect no more."""
        return Proof(self._number is not None, "the rule has ended, and what it held went on")
