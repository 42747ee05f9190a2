"""Define what can be asked of an orchestrator that keeps brokers running. All names are Erlang names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol


class Draining(Protocol):
    """Drain the machines of brokers. Raise MachineError if an action fails."""

    def drain(self, brokers: Collection[str], *, whole_zones: bool, for_s: float) -> None: ...

    def uncordon(self, brokers: Collection[str]) -> None: ...

    def uncordon_left(self, broker: str) -> None:
        """Let the machines accept pods again that an earlier process has drained for this broker."""
        ...

    def open(self, brokers: Collection[str]) -> Iterable[str]:
        """Return, in words, the machines drained for these brokers that accept new pods."""
        ...

    def misplaced(self, zones: Mapping[str, str]) -> Iterable[str]:
        """Return, in words, what runs outside its zone, or on a machine that accepts nothing new."""
        ...


class Rollout(Protocol):
    """Restarts all brokers, one after another. Raise MachineError if an action fails."""

    def begin(self) -> None: ...

    def left(self) -> Iterable[str]:
        """Return, in words, the brokers that are not restarted yet, or not ready."""
        ...


class Claims(Protocol):
    """The volume claims of one broker. Raise MachineError if an action fails."""

    def delete(self) -> None:
        """Delete the claims and the broker's pod, and return once they are gone."""
        ...

    def stored_bytes(self) -> int:
        """Return how many bytes the broker has now that are older than the deletion."""
        ...


@dataclass(frozen=True)
class Orchestrator:
    draining: Draining
    rollout: Rollout
    #: The claims of each broker.
    claims: Mapping[str, Claims]
