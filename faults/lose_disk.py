"""Brokers die at once and lose all that they stored, as with the disk of a machine; they join again with nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from faults.fault import Arena, Proof, left_over
from faults.processes import ProcessInjection, ProcessStep
from faults.targets import Resolver
from topologies.management import ApiError, ApiUnreachable

#: To boot with nothing, to be let into the cluster again, and to be told of all that is in it.
JOINS_WITHIN_S = 60.0


class LoseDisk(ProcessStep):
    """SIGKILL, and all data of the node is removed. Peer discovery leads it back into its cluster when it starts."""

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

    def prove_healed(self) -> Proof:
        still = left_over(self._outside, timeout_s=JOINS_WITHIN_S, what="nodes to join again")
        if still:
            return Proof(False, f"not joined again: {'; '.join(still)}")
        return Proof(True, f"{', '.join(self.nodes)} joined again")

    def _outside(self) -> list[str]:
        """Which of the nodes are not up, or not seen by another, or see nobody else."""
        cluster = self.arena.cluster
        found = []
        for node in self.nodes:
            others = [name for name in cluster.topology.node_names if name not in self.nodes and self._is_up(name)]
            try:
                if not self._is_up(node):
                    found.append(f"{node} is {cluster.state(node)}")
                elif others and cluster.broker_name(node) not in cluster.api(others[0]).running_nodes():
                    found.append(f"{others[0]} does not see {node} running")
                elif others and cluster.broker_name(others[0]) not in cluster.api(node).running_nodes():
                    found.append(f"{node} does not see {others[0]} running")
            except (ApiError, ApiUnreachable) as error:
                found.append(str(error))
        return found

    def _is_up(self, node: str) -> bool:
        return self.arena.cluster.state(node) == "up"


def _killer(arena: Arena) -> Callable[[str], None]:
    def take(node: str) -> None:
        arena.cluster.kill(node)
        arena.cluster.lose_data(node)

    return take
