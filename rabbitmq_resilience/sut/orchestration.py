"""Define what an orchestrator that keeps brokers running can be asked for. Node arguments are topology names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class MachineDraining(Protocol):
    """A cluster whose machines can be drained of their brokers."""

    def drain_machines(self, nodes: Collection[str], *, whole_zones: bool) -> None:
        """Cordon and drain the machines of ``nodes``, or all machines of their zones. Return once the orchestrator
        reports that the brokers on them are gone. Raise ClusterError if a broker may not be evicted now."""
        ...

    def undrain_machines(self, nodes: Collection[str]) -> None:
        """Uncordon the drained machines of ``nodes``. Return once the brokers run again."""
        ...

    def open_machines(self, nodes: Collection[str]) -> Sequence[str]:
        """Return a text for each machine that was drained of one of ``nodes`` and still accepts new pods."""
        ...

    def misplaced(self, nodes: Collection[str]) -> Sequence[str]:
        """Return a text for each of ``nodes`` that runs outside its zone or on a cordoned machine."""
        ...


@runtime_checkable
class RollingRestarts(Protocol):
    """A cluster whose brokers can be restarted one after another."""

    def restart_all(self) -> None:
        """Let the orchestrator restart all brokers in turn. Return at once."""
        ...

    def not_restarted(self) -> Sequence[str]:
        """Return a text for each node that was not restarted, or is not ready, since the last ``restart_all``."""
        ...
