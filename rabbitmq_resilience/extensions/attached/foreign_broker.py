"""Find the process of a machine's broker, take the broker away, and bring it back."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Protocol

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError, tool_script
from rabbitmq_resilience.extensions.attached.offers import BrokerService
from rabbitmq_resilience.sut.node_protocol import ProcessState
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: Functions of the shell. ``find_broker NODE`` prints each process that may be that node's broker: its number, when it
#: was started (ticks since the boot of the machine), and its state (proc(5)). A broker is an Erlang machine started
#: with ``-s rabbit boot`` (scripts/rabbitmq-server of all versions). If its arguments or its environment name another
#: node, it is that node's broker. A broker with the default name has no name there. A process in a container on the
#: machine counts as one on another machine (pid_namespaces(7)).
FIND = r"""
names_of() {
    tr '\0' '\n' 2> /dev/null < "/proc/$1/cmdline" | sed -nE '/^-s?name$/ { n; p; }'
    tr '\0' '\n' 2> /dev/null < "/proc/$1/environ" | sed -n 's/^RABBITMQ_NODENAME=//p'
}
started_and_state() {
    sed -nE 's/.*\) ([^ZX]) ([^ ]+ ){18}([^ ]+) .*/\3 \1/p' "/proc/$1/stat" 2> /dev/null
}
is_elsewhere() {
    ours=$(readlink /proc/self/ns/pid 2> /dev/null) its=$(readlink "/proc/$1/ns/pid" 2> /dev/null)
    [ -n "$ours" ] && [ -n "$its" ] && [ "$ours" != "$its" ]
}
is_there() { [ -n "$2" ] && [ "$(started_and_state "$1" | cut -d" " -f1)" = "$2" ]; }
find_broker() {
    for file in $(grep -lazxF -e rabbit /proc/[0-9]*/cmdline 2> /dev/null); do
        pid=${file%/cmdline}; pid=${pid##*/}
        tr '\0' ' ' 2> /dev/null < "$file" | grep -qF -e ' -s rabbit boot ' || continue
        is_elsewhere "$pid" && continue
        names=$(names_of "$pid")
        [ -z "$names" ] || echo "$names" | grep -qxF -e "$1" -e "${1%@*}" || continue
        found=$(started_and_state "$pid")
        [ -z "$found" ] || echo "$pid $found"
    done
}
"""

#: Sends a signal to a process, by its number and start time, and never to a later process with the same number.
_SIGNAL = f"""{FIND}
is_there "$2" "$3" || {{ echo "process $2 is not there any more" >&2; exit 1; }}
kill -"$1" "$2"
"""

#: Whether a broker runs and is not about to end (init(3)).
RUNS = "rabbit:is_running() andalso element(1, init:get_status()) =:= started."

#: Lets a suspended process go on, and fails if it does not. A process that is gone needs nothing.
_CONTINUE = f"""{FIND}
is_there "$old" "$since" || exit 0
kill -CONT "$old"
case "$(started_and_state "$old")" in *" "[Tt]) echo "process $old is still suspended" >&2; exit 1 ;; esac
exit 0
"""

#: Prints each problem of the unit $1 for the process $2 on a line.
_LACKS_UNIT = """
command -v systemctl > /dev/null || { echo "there is no systemctl; state broker: with start: and stop:"; exit 0; }
loaded=$(systemctl show -p LoadState --value "$1") main=$(systemctl show -p MainPID --value "$1")
[ "$loaded" = loaded ] || { echo "systemd has no unit $1 (LoadState=$loaded); state broker: {unit: NAME}"; exit 0; }
pid=$2
while [ "$pid" -gt 1 ] && [ "$pid" != "$main" ]; do
    pid=$(sed -nE 's/^PPid:[^0-9]*//p' "/proc/$pid/status" 2> /dev/null)
    [ -n "$pid" ] || pid=0
done
[ "$pid" = "$main" ] && [ "$main" -gt 0 ] \\
    || echo "the unit $1 does not run the broker: its process is ${main:-none}, and the broker is $2"
"""
#: Prints each problem of the command $2 that can be found before it is run; $1 is its field in the cluster file.
_LACKS_COMMAND = """
printf '%s\\n' "$2" | sh -n 2> /dev/null || { echo "$1: is nothing that a shell understands: $2"; exit 0; }
first=${2%%[[:space:]]*}
case "$first" in *[!A-Za-z0-9_./-]*) exit 0 ;; esac
command -v "$first" > /dev/null || echo "$1: there is no $first"
"""

ENDED_WITHIN_S = 20.0
BACK_WITHIN_S = 30.0
#: How long a broker that was started may take to have a process.
STARTED_WITHIN_S = 30


@dataclass(frozen=True)
class MachineProcess:
    """A process of a machine: ``pid`` and ``started`` together identify it, ``state`` is a letter of proc(5)."""

    pid: int
    started: int
    state: str

    @property
    def name(self) -> str:
        return f"process {self.pid} (started at {self.started})"


class Named(Protocol):
    @property
    def name(self) -> str:
        """Return the name of a process, which people can read; it differs after each start."""
        ...


class ForeignBroker(Protocol):
    """The broker of a node that is not ours. Raise MachineError if an action fails."""

    def process(self) -> Named | None:
        """Return the broker's process, or None if it has none."""
        ...

    def state(self) -> ProcessState: ...

    def kill(self, *, for_s: float) -> None: ...

    def stop(self, *, for_s: float) -> None: ...

    def pause(self, *, for_s: float) -> None: ...

    def give_back(self) -> None:
        """Start the broker again if it was ended, or let it go on if it was paused."""
        ...


class RemoteBroker:
    """A broker on a machine that is reached by a shell. Raise MachineError if an action fails.

    ``node`` is the Erlang name; ``key`` identifies the node in watchdogs.
    """

    def __init__(self, machine: Machine, service: BrokerService, *, node: str, key: str) -> None:
        self._machine = machine
        self._service = service
        self._node = node
        self._key = f"{key}:broker"
        #: The script that undoes the last action, in case no watchdog on the machine does.
        self._undo: str | None = None

    def process(self) -> MachineProcess | None:
        """Return the broker's process, or None if it has none. Raise MachineError if several processes may be it."""
        rows = [row.split() for row in self._machine.run(f'{FIND}\nfind_broker "$1"', self._node).splitlines()]
        found = [MachineProcess(int(pid), int(started), state) for pid, started, state in rows]
        if len(found) > 1:
            named = ", ".join(str(one.pid) for one in found)
            raise MachineError(
                f"several processes on the machine of {self._node} may be its broker: {named}; give each broker there "
                "its RABBITMQ_NODENAME"
            )
        return found[0] if found else None

    def state(self) -> ProcessState:
        found = self.process()
        if found is None:
            return "gone"
        return "suspended" if found.state in "Tt" else "running"

    def kill(self, *, for_s: float) -> None:
        """End the process by SIGKILL.

        A unit of systemd is stopped as soon as its process is dead, as systemd would start it again by itself.
        """
        found = self._there()
        self._undo = self.start_command(found)
        watchdog.arm(self._machine, self._key, heal=self._undo, after_s=for_s)
        stop = "" if self._service.unit is None else f"\nsystemctl stop {shlex.quote(self._service.unit)}"
        self._signal("KILL", found, more=stop)
        self._await_gone(ENDED_WITHIN_S)

    def stop(self, *, for_s: float) -> None:
        command = self._service.stop or f"systemctl stop {shlex.quote(self._service.unit or '')}"
        self._undo = self.start_command(self._there())
        with watchdog.doing(self._machine, self._key, heal=self._undo, for_s=for_s) as do:
            do(command)
            self._await_gone(ENDED_WITHIN_S)

    def pause(self, *, for_s: float) -> None:
        found = self._there()
        self._undo = f"{_of(found)}{_CONTINUE}"
        watchdog.arm(self._machine, self._key, heal=self._undo, after_s=for_s)
        self._signal("STOP", found)

    def give_back(self) -> None:
        """Start the broker again, or let it go on, and return once it is seen to run."""
        if not watchdog.heal(self._machine, self._key):
            self._machine.run(self._undo or self._undo_of_others(), timeout_s=watchdog.HEALED_WITHIN_S)
        what = f"the broker of {self._node} to run"
        try:
            wait_until(lambda: self.state() == "running", timeout_s=BACK_WITHIN_S, what=what, poll_s=0.5)
        except WaitTimeout as error:
            raise MachineError(str(error)) from error
        self._undo = None

    def _undo_of_others(self) -> str:
        """Return the script that undoes an action of another process of ours, which is gone."""
        found = self.process()
        if found is not None and found.state in "Tt":
            return f"{_of(found)}{_CONTINUE}"
        return self.start_command()

    def start_command(self, ended: MachineProcess | None = None) -> str:
        """Return a script for the machine's shell that starts the broker.

        It may be run twice, as it leaves a running broker alone. It succeeds once the broker has another process than
        ``ended``, or if ``ended`` still runs as a broker.
        """
        asked = tool_script(self._node, "rabbitmqctl", "eval", RUNS)
        running = f'[ "$({asked})" = true ] && exit 0'
        start, unit = self._service.start, self._service.unit
        if start is None:
            quoted = shlex.quote(unit or "")
            start = f"systemctl start --no-block {quoted} || exit 1"
            running = f"{start}\n    systemctl is-active --quiet {quoted} && {running}"
        return f"""node={shlex.quote(self._node)}
{_of(ended)}{FIND}
others() {{
    find_broker "$node" | while read -r pid started _; do
        [ "$pid $started" = "$old $since" ] || echo "$pid"
    done
}}
[ -z "$(others)" ] || exit 0
if is_there "$old" "$since"; then
    {running}
    echo "process $old of $node, which was to end, is still there, and does not run as a broker" >&2
    exit 1
fi
( {start}
) || exit 1
for _ in $(seq {STARTED_WITHIN_S}); do
    [ -z "$(others)" ] || exit 0
    sleep 1
done
echo "$node was started, and has no process {STARTED_WITHIN_S} s later" >&2
exit 1"""

    def killed_where(self, expression: str) -> str:
        """Return a script for the machine's shell that ends the broker's process if ``expression`` is true in it.

        ``expression`` is Erlang without its full stop. The broker itself reports the number of its process.
        """
        asked = tool_script(self._node, "rabbitmqctl", "eval", f"({expression}) andalso list_to_integer(os:getpid()).")
        return (
            f"{FIND}\nbroken=$({asked})\n"
            f'if find_broker {shlex.quote(self._node)} | cut -d" " -f1 | grep -qx "$broken"; then\n'
            '    kill -KILL "$broken"; sleep 1\nfi\n'
        )

    def lacking(self) -> list[str]:
        """Return the reasons, in words, why a broker that was ended would not be started again."""
        found = self.process()
        if found is None:
            return [f"there is no process of {self._node}"]
        service = self._service
        if service.unit is not None:
            return self._machine.run(_LACKS_UNIT, service.unit, str(found.pid)).splitlines()
        texts = (self._machine.run(_LACKS_COMMAND, name, getattr(service, name)) for name in ("start", "stop"))
        return [line for text in texts for line in text.splitlines()]

    def _signal(self, signal: str, process: MachineProcess, *, more: str = "") -> None:
        script, of = _SIGNAL + more, (str(process.pid), str(process.started))
        self._machine.run(script, signal, *of, timeout_s=ENDED_WITHIN_S)

    def _there(self) -> MachineProcess:
        found = self.process()
        if found is None:
            raise MachineError(f"{self._node} has no process on its machine")
        return found

    def _await_gone(self, timeout_s: float) -> None:
        try:
            wait_until(lambda: self.process() is None, timeout_s=timeout_s, what=f"the process of {self._node} to end")
        except WaitTimeout as error:
            raise MachineError(str(error)) from error


def _of(process: MachineProcess | None) -> str:
    """Return assignments of ``old`` and ``since`` for a script: the process, or empty ones."""
    return "old= since=\n" if process is None else f"old={process.pid} since={process.started}\n"
