"""Calls of a broker to its disk fail: its writes or flushes return an error, as from a broken or a full disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over, on_each
from rabbitmq_resilience.nemesis.preloading import Canaries, PreloadedFault, canaries_of, still_wrong
from rabbitmq_resilience.nemesis.processes import ProcessInjection, ProcessStep
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.sut.preload.preloaded_disk import Call

#: The most calls of which one fails: with more, hardly any would fail in the time of a step.
ONE_IN_MAX = 1_000_000
ALIVE_WITHIN_S = 30.0


class DiskErrors(PreloadedFault, ProcessStep):
    """One of ``one_in`` calls fails with ``errno``: writes, flushes (``calls``), or both, on files whose path below the
    broker's folder of data matches the pattern ``files`` (``*.wal``; ``*`` stands for slashes too). A call that fails
    does nothing. A broker may die of it. When the errors end, the broker is killed if it lives, and started again, as
    its operator would do; with ``restart: false`` it is started only if it has died."""

    fault: Literal["disk_errors"] = "disk_errors"
    errno: Literal["EIO", "ENOSPC"] = "EIO"
    calls: Call = "both"
    one_in: Annotated[int, Field(ge=1, le=ONE_IN_MAX)] = 1
    files: Annotated[str, Field(min_length=1)] = "*"
    restart: bool = True

    example: ClassVar[str] = 'node: "leader:q1", files: "*.wal"'
    take: ClassVar[str] = "kill"

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> DiskErrorsInjection:  # noqa: ARG002 - one form for all
        """Return the injection for the nodes that ``node`` means now."""
        nodes, cluster = resolver.nodes(self.node), context.cluster
        canaries = canaries_of(cluster, nodes)
        return DiskErrorsInjection(context, nodes, cluster.kill, cluster.start, "gone", self, canaries)


@dataclass
class DiskErrorsInjection(ProcessInjection):
    """Disks with errors. They are proven once each broker got at least one."""

    stated: DiskErrors
    canaries: Mapping[str, Canaries]
    _before: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def effect(self) -> Effect:
        """Return the nodes as down, or not: a broker may die of the errors, stand still, or go on."""
        return Effect(nodes_down=self.nodes, nodes_may_serve=True)

    def take_all(self) -> None:
        for node, canaries in self.canaries.items():
            disk, stated = canaries.disk, self.stated
            self._before[node] = disk.counters().errors
            disk.fail(stated.errno, on=stated.calls, one_in=stated.one_in, files=stated.files)

    def heal(self) -> None:
        """End the errors, and start the brokers again."""
        on_each(self.nodes, lambda node: self.canaries[node].disk.clear())
        if self.stated.restart:
            on_each([n for n in self.nodes if self.context.cluster.process(n) != "gone"], self.take)
        on_each([n for n in self.nodes if self.context.cluster.process(n) == "gone"], self.give)

    def prove(self, *, timeout_s: float) -> Proof:
        """Return a proof that calls of each broker failed, with their number."""

        def spared() -> list[str]:
            return [f"no call of {node} has failed" for node in self.nodes if not self._failed(node)]

        still = left_over(spared, timeout_s=timeout_s, what="calls to fail")
        failed = [f"{self._failed(node)} calls of {node} failed with {self.stated.errno}" for node in self.nodes]
        return Proof(not still, "; ".join(still or failed))

    def prove_healed(self) -> Proof:
        """Return a proof that each broker writes and flushes a file, and that no call fails any more."""

        def failing(node: str) -> str:
            canaries = self.canaries[node]
            before = canaries.disk.counters().errors
            canaries.write()
            more = canaries.disk.counters().errors - before
            return f"{more} more calls of {node} failed" if more else ""

        still = still_wrong(self.nodes, failing, timeout_s=ALIVE_WITHIN_S, what="brokers to write")
        return Proof(not still, "; ".join(still or [f"{', '.join(self.nodes)} writes and flushes without an error"]))

    def _failed(self, node: str) -> int:
        return self.canaries[node].disk.counters().errors - self._before[node]
