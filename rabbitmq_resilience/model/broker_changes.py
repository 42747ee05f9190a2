"""Describe changes that RabbitMQ's command line tools make to a running broker, and undo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class BrokerChange:
    """A change of a running broker. ``do`` and ``undo`` are tools with their arguments. The change ends with the
    broker's process. ``act`` is a verb of ``actions.ACTIONS``. ``name`` distinguishes it from other changes of the
    same node. ``alarm`` is the resource (memory, disk) for which the broker then raises an alarm."""

    act: str
    name: str
    do: Sequence[str]
    undo: Sequence[str]
    alarm: str = ""


#: Maintenance mode: clients and leaders move to other nodes, and come back. Source: rabbitmq-upgrade(8).
MAINTENANCE = BrokerChange("drain", "drain", ("rabbitmq-upgrade", "drain"), ("rabbitmq-upgrade", "revive"))
