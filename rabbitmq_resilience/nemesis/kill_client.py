"""A client dies in the middle of its work, as by the out-of-memory killer, and is started again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import ClientProcess, FaultContext, Proof, left_over
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.processes import BACK_WITHIN_S
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import Resolver, TargetError, check_client
from rabbitmq_resilience.workload.load import worker_name
from rabbitmq_resilience.workload.worker import WorkloadError
from rabbitmq_resilience.workload.workload_base import WorkloadBase


class KillClient(ScheduledFault):
    """SIGKILL to a client. ``client`` is a publisher or a consumer by number, from 0: ``consumer:0``."""

    fault: Literal["kill_client"] = "kill_client"
    client: str

    acts_on: ClassVar[str] = "clients"
    example: ClassVar[str] = 'client: "publisher:0"'

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:  # noqa: ARG002 - one form for all
        try:
            check_client(self.client, workload)
        except TargetError as error:
            return {"client": str(error)}
        return {}

    def footprint(self, topology: Topology) -> Footprint:  # noqa: ARG002 - clients are outside
        return Footprint(processes=frozenset({self.client}), possible_processes=frozenset({self.client}))

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> KillClientInjection:  # noqa: ARG002 - one form for all
        return KillClientInjection(context.load.worker(worker_name(self.client)))


@dataclass
class KillClientInjection:
    worker: ClientProcess
    _pid: int | None = field(default=None, init=False)

    @property
    def effect(self) -> Effect:
        return Effect()

    def inject(self) -> None:
        self._pid = self.worker.pid
        if self._pid is None:
            raise WorkloadError(f"{self.worker.name} was not running before the fault began")
        self.worker.kill()

    def heal(self) -> None:
        if self._pid is not None:
            self.worker.start()

    def prove(self, *, timeout_s: float) -> Proof:
        return self._await(lambda: self.worker.ended, "gone", timeout_s)

    def prove_healed(self) -> Proof:
        """Return a proof that another process runs in place of the killed one."""
        return self._await(lambda: self.worker.pid not in (None, self._pid), "running again", BACK_WITHIN_S)

    def _await(self, holds: Callable[[], bool], state: str, timeout_s: float) -> Proof:
        name = self.worker.name
        still = left_over(lambda: [] if holds() else [name], timeout_s=timeout_s, what=f"{name} to be {state}")
        which = f"process {self._pid} of {name}" if state == "gone" else f"{name} (process {self.worker.pid})"
        return Proof(not still, f"{which} is {'not ' if still else ''}{state}")
