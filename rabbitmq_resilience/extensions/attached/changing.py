"""Change a broker by RabbitMQ's own tools, with a watchdog on its machine that changes it back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.foreign_broker import FIND, MachineProcess, RemoteBroker
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError, tool_script
from rabbitmq_resilience.model.broker_changes import BrokerChange

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

    def lacking(self, tools: Collection[str]) -> list[str]:
        """Return, in words, the RabbitMQ tools that the machine lacks."""
        return self.machine.run(_LACKS, *tools).splitlines()

    def _key(self, change: BrokerChange) -> str:
        return f"{self.key}-{change.name}"


def _while_it_is(process: MachineProcess) -> str:
    """Return the head of a script that goes on only if the node has this very process.

    A later process of the node does not have the change.
    """
    return f"{FIND}\nis_there {process.pid} {process.started} || exit 0\n"
