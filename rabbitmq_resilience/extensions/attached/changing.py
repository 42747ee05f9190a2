"""Change a broker by RabbitMQ's own tools, with a watchdog on its machine that changes it back."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.foreign_broker import FIND, MachineProcess, RemoteBroker
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError, tool_script
from rabbitmq_resilience.model.broker_changes import MAINTENANCE, BrokerChange
from rabbitmq_resilience.nemesis.alarm import LIMITS

#: Whether the broker is in maintenance mode. The management API of 3.10.8 does not say.
IS_DRAINED = "rabbit_maintenance:is_being_drained_local_read(node())."
#: The limits of memory and of free disk space, in bytes. The management API reports them up to five seconds late.
LIMITS_NOW = "{vm_memory_monitor:get_memory_limit(), rabbit_disk_monitor:get_disk_free_limit()}."
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

    def left(self, act: str) -> str:
        """Return, in words, what the broker still has of a change, and what undoes it; empty if it has nothing of it.

        ``act``: the change's verb. Raise MachineError if the machine cannot be asked.
        """
        asked = IS_DRAINED if act == MAINTENANCE.act else LIMITS_NOW
        script = tool_script(self.node, "rabbitmqctl", "eval", asked)
        answer = self.machine.run(script, timeout_s=watchdog.HEALED_WITHIN_S).strip()
        if act != MAINTENANCE.act:
            return limits_left(answer)
        if answer == "true":
            return f"it is in maintenance mode still; end that by {' '.join(MAINTENANCE.undo)}"
        return "" if answer == "false" else f"it does not say whether it is in maintenance mode: {answer[:200]}"

    def lacking(self, tools: Collection[str]) -> list[str]:
        """Return, in words, the RabbitMQ tools that the machine lacks."""
        return self.machine.run(_LACKS, *tools).splitlines()

    def _key(self, change: BrokerChange) -> str:
        return f"{self.key}:{change.name}"


def limits_left(answer: str) -> str:
    """Return, in words, which limit of an alarm a broker still has, and what sets it back; empty if it has none.

    ``answer``: what the broker has printed for ``LIMITS_NOW``.
    """
    found = re.fullmatch(r"\{(\d+),(\d+)\}", answer)
    if found is None:
        return f"it does not say which limits it has: {answer[:200]}"
    for limit, now in zip((LIMITS["memory"], LIMITS["disk"]), found.groups(), strict=True):
        if int(now) == limit.impossible_bytes:
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
