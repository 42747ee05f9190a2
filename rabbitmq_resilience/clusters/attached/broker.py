"""The broker of a machine: its process, and how it is taken away and brought back."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Protocol

from rabbitmq_resilience.clusters.attached import watchdog
from rabbitmq_resilience.clusters.attached.machine import Machine, MachineError, tool_script
from rabbitmq_resilience.clusters.attached.offers import Service
from rabbitmq_resilience.clusters.protocol import ProcessState
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: Prints the process of the node, when that was started (ticks since the boot of the machine), and its state (proc(5)).
#: A broker is an Erlang machine that was told to boot it (``-s rabbit boot``, scripts/rabbitmq-server of all versions).
#: Where a machine has several, the node's name must be in its arguments or its environment.
FIND = """
found=
for file in $(grep -lazxF -e rabbit /proc/[0-9]*/cmdline 2> /dev/null); do
    pid=${file#/proc/}; pid=${pid%/cmdline}
    tr '\\0' ' ' 2> /dev/null < "$file" | grep -qF -e ' -s rabbit boot ' && found="$found $pid"
done
count=0; for pid in $found; do count=$(( count + 1 )); done
for pid in $found; do
    if [ "$count" -gt 1 ]; then
        cat "/proc/$pid/cmdline" "/proc/$pid/environ" 2> /dev/null | tr '\\0' '\\n' \\
            | grep -qxF -e "$1" -e "RABBITMQ_NODENAME=$1" || continue
    fi
    set -- "$1" $(sed 's/.*) //' "/proc/$pid/stat" 2> /dev/null)
    [ -n "${2:-}" ] && echo "$pid ${21} $2"
done
exit 0
"""

_ENDED_WITHIN_S = 20.0


@dataclass(frozen=True)
class Process:
    """``pid`` and ``started`` together name it; ``state`` is a letter of proc(5)."""

    pid: int
    started: int
    state: str

    @property
    def name(self) -> str:
        return f"process {self.pid} (started at {self.started})"


class Named(Protocol):
    @property
    def name(self) -> str:
        """Of a process, for people too; after the next start it is another one."""
        ...


class Broker(Protocol):
    """The broker of a node that is not ours. Raises MachineError."""

    def process(self) -> Named | None:
        """None while there is none."""
        ...

    def state(self) -> ProcessState: ...

    def kill(self, *, for_s: float) -> None: ...

    def stop(self, *, for_s: float) -> None: ...

    def pause(self, *, for_s: float) -> None: ...

    def give_back(self) -> None:
        """What was taken: it is started, or goes on."""
        ...


class RemoteBroker:
    """``node`` is the Erlang name, ``key`` names it in watchdogs. Raises MachineError."""

    def __init__(self, machine: Machine, service: Service, *, node: str, key: str) -> None:
        self._machine = machine
        self._service = service
        self._node = node
        self._key = f"{key}-broker"

    def process(self) -> Process | None:
        """None while there is none. Raises MachineError where there are two."""
        rows = [row.split() for row in self._machine.run(FIND, self._node).splitlines()]
        found = [Process(int(pid), int(started), state) for pid, started, state in rows if state not in "ZX"]
        if len(found) > 1:
            named = ", ".join(str(one.pid) for one in found)
            raise MachineError(f"{self._node} has several processes on its machine: {named}")
        return found[0] if found else None

    def state(self) -> ProcessState:
        found = self.process()
        if found is None:
            return "gone"
        return "suspended" if found.state in "Tt" else "running"

    def kill(self, *, for_s: float) -> None:
        """A service that systemd would start again by itself is stopped as soon as its process is dead."""
        self._arm(self.start_command, for_s)
        stop = "" if self._service.unit is None else f"\nsystemctl stop {shlex.quote(self._service.unit)}"
        self._machine.run(f'kill -KILL "$1"{stop}', str(self._there().pid), timeout_s=_ENDED_WITHIN_S)
        self._await_gone(_ENDED_WITHIN_S)

    def stop(self, *, for_s: float) -> None:
        command = self._service.stop or f"systemctl stop {shlex.quote(self._service.unit or '')}"
        with watchdog.doing(self._machine, self._key, heal=self.start_command, for_s=for_s):
            self._machine.run(command, timeout_s=watchdog.DONE_WITHIN_S)
            self._await_gone(_ENDED_WITHIN_S)

    def pause(self, *, for_s: float) -> None:
        pid = self._there().pid
        self._arm(f"kill -CONT {pid} 2> /dev/null || true", for_s)
        self._machine.run('kill -STOP "$1"', str(pid))

    def give_back(self) -> None:
        """What was taken: it is started, or goes on."""
        watchdog.heal(self._machine, self._key)

    @property
    def start_command(self) -> str:
        """For the machine's shell; may be run twice: a broker that is there is left alone."""
        start = self._service.start or f"systemctl start --no-block {shlex.quote(self._service.unit or '')}"
        find = f"set -- {shlex.quote(self._node)}\n{FIND.replace('exit 0', '')}"
        return f'[ -n "$({find})" ] && exit 0\n{start}'

    def killed_where(self, expression: str) -> str:
        """For the machine's shell: ends the broker's process where that Erlang expression is true in it."""
        ask = tool_script(self._node, "rabbitmqctl", "eval", expression)
        found = f"$(set -- {shlex.quote(self._node)}\n{FIND})"
        return f'if [ "$({ask})" = true ]; then kill -KILL "$(echo "{found}" | cut -d" " -f1)"; sleep 1; fi\n'

    def _there(self) -> Process:
        found = self.process()
        if found is None:
            raise MachineError(f"{self._node} has no process on its machine")
        return found

    def _arm(self, heal: str, for_s: float) -> None:
        watchdog.arm(self._machine, self._key, heal=heal, after_s=for_s)

    def _await_gone(self, timeout_s: float) -> None:
        try:
            wait_until(lambda: self.process() is None, timeout_s=timeout_s, what=f"the process of {self._node} to end")
        except WaitTimeout as error:
            raise MachineError(str(error)) from error
