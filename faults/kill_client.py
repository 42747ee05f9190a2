"""A client dies in the middle of its work, as by the out-of-memory killer, and is started again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import StringConstraints

from faults.fault import Arena, Effect, Proof, left_over
from faults.processes import BACK_WITHIN_S
from faults.step import Step
from faults.targets import Resolver
from topologies.spec import Link, Topology
from workloads.run import Worker
from workloads.spec import Workload


class KillClient(Step):
    """``client`` is a publisher or a consumer by number, from 0: ``consumer:0``. SIGKILL."""

    fault: Literal["kill_client"] = "kill_client"
    client: Annotated[str, StringConstraints(pattern=r"^(publisher|consumer):\d{1,4}$")]

    acts_on: ClassVar[str] = "clients"

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:  # noqa: ARG002 - one form for all
        role, number = self.client.split(":")
        there = {"publisher": workload.publishers, "consumer": workload.consumers}[role]
        if int(number) >= there:
            return {"client": f"{self.client} is not there: the workload has {there} {role}s, from {role}:0 on"}
        return {}

    def touches_links(self, topology: Topology) -> frozenset[Link]:  # noqa: ARG002 - it touches none
        return frozenset()

    def touches_processes(self, topology: Topology) -> frozenset[str]:  # noqa: ARG002 - clients are outside
        return frozenset({self.client})

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> KillClientInjection:  # noqa: ARG002
        return KillClientInjection(arena.load.worker(self.client.replace(":", "-")))


@dataclass(frozen=True)
class KillClientInjection:
    worker: Worker

    @property
    def effect(self) -> Effect:
        return Effect()

    def inject(self) -> None:
        self.worker.kill()

    def heal(self) -> None:
        self.worker.start()

    def prove(self, *, timeout_s: float) -> Proof:
        return self._await(ended=True, timeout_s=timeout_s)

    def prove_healed(self) -> Proof:
        return self._await(ended=False, timeout_s=BACK_WITHIN_S)

    def _await(self, *, ended: bool, timeout_s: float) -> Proof:
        state = "gone" if ended else "running"
        name = self.worker.name
        still = left_over(lambda: [] if self.worker.ended == ended else [name], timeout_s=timeout_s, what=name)
        return Proof(not still, f"the process of {name} is {'not ' if still else ''}{state}")
