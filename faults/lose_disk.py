"""Brokers die at once and lose all that they stored, as with the disk of a machine; they join again with nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from faults.fault import Arena, Proof
from faults.processes import ProcessInjection, ProcessStep
from faults.targets import Resolver


class LoseDisk(ProcessStep):
    """SIGKILL, and all data of the node is removed. Healed it is started again; that peer discovery leads it back into
    its cluster, and its queues to it, is for the invariant ``recovery`` to tell."""

    fault: Literal["lose_disk"] = "lose_disk"

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> LoseDiskInjection:  # noqa: ARG002
        return LoseDiskInjection(arena, resolver.nodes(self.node), _killer(arena), arena.cluster.start, "gone")


@dataclass(frozen=True)
class LoseDiskInjection(ProcessInjection):
    def prove(self, *, timeout_s: float) -> Proof:
        left = [node for node in self.nodes if self.arena.cluster.stored_bytes(node)]
        if left:
            return Proof(False, f"{', '.join(left)} still has data")
        return Proof.of_all(super().prove(timeout_s=timeout_s), Proof(True, "nothing is stored there any more"))


def _killer(arena: Arena) -> Callable[[str], None]:
    def take(node: str) -> None:
        arena.cluster.kill(node)
        arena.cluster.lose_data(node)

    return take
