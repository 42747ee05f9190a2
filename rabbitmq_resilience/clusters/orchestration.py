"""What clusters whose brokers are kept running by an orchestrator offer beside what all do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class OrchestratedActs(Protocol):
    """Nodes are named as in the topology. What is told in words is empty where all is as it should be."""

    def drain_machines(self, nodes: Collection[str], *, whole_zones: bool) -> None:
        """The machines of these nodes, or all machines of their zones, take nothing new and are cleared of what they
        have. Returns once the brokers that were there are told to be gone. Raises ClusterError where one of them may
        not go now."""
        ...

    def undrain_machines(self, nodes: Collection[str]) -> None:
        """They take what comes again. Returns once the brokers run again."""
        ...

    def open_machines(self, nodes: Collection[str]) -> Sequence[str]:
        """In words, the machines that were drained of these nodes, and take something new all the same."""
        ...

    def misplaced(self, nodes: Collection[str]) -> Sequence[str]:
        """In words, those of these that run outside their zone, or on a machine that takes nothing new."""
        ...

    def restart_all(self) -> None:
        """Brokers are restarted in turn from now on, by the orchestrator. Returns at once."""
        ...

    def not_restarted(self) -> Sequence[str]:
        """In words, the nodes that were not, and are not ready, since that was last asked for."""
        ...
