"""What RabbitMQ's own tools change in the broker of a machine, with its end on that machine."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from rabbitmq_resilience.clusters.attached import watchdog
from rabbitmq_resilience.clusters.attached.broker import FIND, Process, RemoteBroker
from rabbitmq_resilience.clusters.attached.machine import Machine, MachineError, tool_script
from rabbitmq_resilience.clusters.changes import Change


@dataclass(frozen=True)
class ChangedBroker:
    """``node`` is the Erlang name, ``key`` names it in watchdogs. Raises MachineError."""

    machine: Machine
    broker: RemoteBroker
    node: str
    key: str

    def change(self, change: Change, *, for_s: float) -> None:
        found = self.broker.process()
        if found is None:
            raise MachineError(f"{self.node} has no process on its machine")
        undo = self._while_it_is(found) + tool_script(self.node, *change.undo)
        with watchdog.doing(self.machine, self._key(change), heal=undo, for_s=for_s):
            self.machine.run(tool_script(self.node, *change.do), timeout_s=watchdog.DONE_WITHIN_S)

    def change_back(self, change: Change) -> None:
        watchdog.heal(self.machine, self._key(change))

    def _while_it_is(self, process: Process) -> str:
        """A script that goes on only where the node has this very process: another one knows nothing of the change."""
        return (
            f"found=$(set -- {shlex.quote(self.node)}\n{FIND})\n"
            f'case "$found" in "{process.pid} {process.started} "*) ;; *) exit 0 ;; esac\n'
        )

    def _key(self, change: Change) -> str:
        return f"{self.key}-{change.name}"
