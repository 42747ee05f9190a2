"""A client dies in the middle of its work, as by the out-of-memory killer, and is started again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from faults.fault import Arena, Effect, Proof, left_over
from faults.processes import BACK_WITHIN_S
from faults.step import Step
from faults.targets import Resolver, TargetError, check_client
from topologies.spec import Link, Topology
from workloads.load import worker_name
from workloads.run import Worker
from workloads.spec import Workload


class KillClient(Step):
    """``client`` is a publisher or a consumer by number, from 0: ``consumer:0``. SIGKILL."""

    fault: Literal["kill_client"] = "kill_client"
    client: str

    acts_on: ClassVar[str] = "clients"

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:  # noqa: ARG002 - one form for all
        try:
            check_client(self.client, workload)
        except TargetError as error:
            return {"client": str(error)}
        return {}

    def touches_links(self, topology: Topology) -> frozenset[Link]:  # noqa: ARG002 - it touches none
        return frozenset()

    def touches_processes(self, topology: Topology) -> frozenset[str]:  # noqa: ARG002 - clients are outside
        return frozenset({self.client})

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> KillClientInjection:  # noqa: ARG002
        return KillClientInjection(arena.load.worker(worker_name(self.client)))


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
