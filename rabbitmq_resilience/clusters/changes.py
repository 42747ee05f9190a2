"""What RabbitMQ's own command line tools change in a broker that runs, and put back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """``do`` and ``undo`` are tools with their arguments; the broker's process forgets it with its end. ``act`` is a
    word of ``attached.spec.ACTS``; ``name`` tells it from others at the same node; ``alarm`` is the resource (memory,
    disk) of which the broker raises one for it."""

    act: str
    name: str
    do: Sequence[str]
    undo: Sequence[str]
    alarm: str = ""


#: Clients and leaders go elsewhere, and come back. Source: rabbitmq-upgrade(8).
MAINTENANCE = Change("drain", "drain", ("rabbitmq-upgrade", "drain"), ("rabbitmq-upgrade", "revive"))
