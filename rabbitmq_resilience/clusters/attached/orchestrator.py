"""What keeps brokers running that are not ours, as far as it can be told what to do. By Erlang names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol


class Draining(Protocol):
    """Of the machines of brokers. Raises MachineError."""

    def drain(self, brokers: Collection[str], *, whole_zones: bool, for_s: float) -> None: ...

    def uncordon(self, brokers: Collection[str]) -> None: ...

    def open(self, brokers: Collection[str]) -> Iterable[str]:
        """In words, the machines drained for these that take something new."""
        ...

    def misplaced(self, zones: Mapping[str, str]) -> Iterable[str]:
        """In words, what runs elsewhere than in its zone, or where nothing new is taken."""
        ...


class Rollout(Protocol):
    """Of all brokers, in turn. Raises MachineError."""

    def begin(self) -> None: ...

    def left(self) -> Iterable[str]:
        """In words, those that are not restarted, or not ready."""
        ...


class Claims(Protocol):
    """What one broker stores in. Raises MachineError."""

    def delete(self) -> None:
        """With its pod. Returns once they are gone."""
        ...

    def stored_bytes(self) -> int:
        """Of what the broker has now, what is older than that."""
        ...


@dataclass(frozen=True)
class Orchestrator:
    draining: Draining
    rollout: Rollout
    #: By broker.
    claims: Mapping[str, Claims]
