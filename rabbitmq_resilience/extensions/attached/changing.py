"""Change a broker by RabbitMQ's own tools, with a watchdog on its machine that changes it back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.foreign_broker import FIND, MachineProcess, RemoteBroker
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError, tool_script
from rabbitmq_resilience.extensions.attached.vhosts import on_any
from rabbitmq_resilience.model.broker_changes import MAINTENANCE, BrokerChange
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.nemesis.alarm import LIMITS
from rabbitmq_resilience.sut.broker.management import ManagementApi

#: Whether the broker is in maintenance mode. The management API of 3.10.8 does not say.
IS_DRAINED = "rabbit_maintenance:is_being_drained_local_read(node())."
_LACKS = 'for tool in "$@"; do command -v "$tool" > /dev/null || echo "there is no $tool"; done'


@dataclass(frozen=True)
class ChangedBroker:
    """Changes to the broker of one machine. Raise MachineError if one fails.

    ``node`` is the Erlang name; ``key`` identifies the node in watchdogs.
    """

    machine: Machine
    broker: RemoteBroker
    node: str
    key: str
    #: The script that undoes each change, in case no watchdog on the machine does.
    _undo: dict[str, str] = field(default_factory=dict, init=False)

    def change(self, change: BrokerChange, *, for_s: float) -> None:
        found = self.broker.process()
        if found is None:
            raise MachineError(f"{self.node} has no process on its machine")
        undo = self._undo[change.name] = _while_it_is(found) + tool_script(self.node, *change.undo)
        with watchdog.doing(self.machine, self._key(change), heal=undo, for_s=for_s) as do:
            do(tool_script(self.node, *change.do))

    def change_back(self, change: BrokerChange) -> None:
        undo = self._undo.get(change.name)
        if not watchdog.heal(self.machine, self._key(change)) and undo is not None:
            self.machine.run(undo, timeout_s=watchdog.HEALED_WITHIN_S)
        self._undo.pop(change.name, None)

    def left(self, act: str, apis: Sequence[ManagementApi]) -> str:
        """Return, in words, what the broker still has of a change, and what undoes it; empty if it has nothing of it.

        ``act``: the change's verb. ``apis``: those of the cluster. Raise MachineError if the machine cannot be asked.
        """
        if act != MAINTENANCE.act:
            return limits_left(self.node, apis)
        script = tool_script(self.node, "rabbitmqctl", "eval", IS_DRAINED)
        answer = self.machine.run(script, timeout_s=watchdog.HEALED_WITHIN_S).strip()
        if answer == "true":
            return f"it is in maintenance mode still; end that by {' '.join(MAINTENANCE.undo)}"
        return "" if answer == "false" else f"it does not say whether it is in maintenance mode: {answer[:200]}"

    def lacking(self, tools: Collection[str]) -> list[str]:
        """Return, in words, the RabbitMQ tools that the machine lacks."""
        return self.machine.run(_LACKS, *tools).splitlines()

    def _key(self, change: BrokerChange) -> str:
        return f"{self.key}:{change.name}"


def limits_left(node: str, apis: Sequence[ManagementApi]) -> str:
    """Return, in words, which limit of an alarm the node still has, and what sets it back; empty if it has none.

    ``node``: the Erlang name. ``apis``: those of the cluster, of which one is asked.
    """
    try:
        rows = on_any(apis, ManagementApi.nodes)
    except ClusterError as error:
        return f"no management API reports its limits ({str(error) or 'none was reached'})"
    row: Mapping[str, Any] = next((row for row in rows if row["name"] == node), {})
    for limit in LIMITS.values():
        if limit.shown not in row:
            return f"it does not report its {limit.shown}"
        if row[limit.shown] == limit.impossible_bytes:
            return (
                f"its {limit.shown} is {limit.impossible_bytes:,} bytes still, as a run sets it; set your own by "
                f"rabbitmqctl {limit.command}"
            )
    return ""


def _while_it_is(process: MachineProcess) -> str:
    """Return the head of a script that goes on only if the node has this very process.

    A later process of the node does not have the change.
    """
    return f"{FIND}\nis_there {process.pid} {process.started} || exit 0\n"
