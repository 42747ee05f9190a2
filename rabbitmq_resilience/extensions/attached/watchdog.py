"""Give every injection an end of its own: a watchdog on the machine heals it if this suite has not done so in time.

The watchdog is a shell on the machine, in a session of its own, so it goes on if our connection, our process or our
machine is gone. It is started before the injection. Its folder on the machine holds ``heal``, a script that may be run
twice, and ``until``, in seconds of the machine's uptime, which does not depend on its clock. If healing fails, the
watchdog tries again each second.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rabbitmq_resilience.extensions.attached.machine import AbsentError, Machine, MachineError

#: The folder of watchdogs on other machines. It is gone after a reboot, like the injections.
STATE = "/run/rabbitmq-resilience"
#: How long after the planned end of an injection its watchdog heals it.
MARGIN_S = 30.0
#: How long a script of ``doing`` may take.
DONE_WITHIN_S = 120.0
#: How long ``heal`` may take.
HEALED_WITHIN_S = 60.0

_IS_OURS = """
is_ours() { tr '\\0' ' ' 2> /dev/null < "/proc/$1/cmdline" | grep -qF "$2"; }
"""

#: Takes the right to heal, for the watchdog or for ``heal``: two scripts at once would disturb each other, and the
#: first to end would remove the folder. A link that a killed process has left is replaced.
_TAKE = """
take() {
    ln -s $$ "$1/healing" 2> /dev/null && return 0
    is_ours "$(readlink "$1/healing")" "$1" && return 1
    rm -f "$1/healing"
    ln -s $$ "$1/healing" 2> /dev/null
}
"""

#: Removes ``heal`` first: while the rest of the folder is removed, the injection must not count as unhealed.
_FORGET = 'rm -f "$1/heal"; rm -rf "$1"'

#: Ends an injection that is still being done: if it ended after its healing, no watchdog would heal it.
_END = """
doing=$(cat "$1/doing" 2> /dev/null || true)
[ -n "$doing" ] && is_ours "$doing" "$1/do" && kill -KILL "-$doing" || true
rm -f "$1/doing"
"""

_WATCH = f"""
{_IS_OURS}{_TAKE}
echo $$ > "$1/pid"
while [ -e "$1/heal" ]; do
    sleep 1
    now=$(cut -d. -f1 /proc/uptime)
    [ "$now" -lt "$(cat "$1/until")" ] && continue
    take "$1" || continue
    {_END}
    sh "$1/heal" > "$1/healing.log" 2>&1 < /dev/null && {{ {_FORGET}; exit 0; }}
    rm -f "$1/healing"
done
"""

#: The arguments: the folder, after how many seconds to heal, how to heal, the watchdog, and a name for a unit of
#: systemd. The unit survives the session of a user who logs out, and what it has started survives the unit. Below the
#: folder of a user there is none: a unit would not have the variables that the user's commands may need. An earlier
#: watchdog, which may be healing right now, is suspended first; it goes on if no new watchdog could be started.
_ARM = """
set -eu
umask 077
old=$(cat "$1/pid" 2> /dev/null || true)
[ -n "$old" ] && tr '\\0' ' ' 2> /dev/null < "/proc/$old/cmdline" | grep -qF "$1/watch" || old=
[ -z "$old" ] || kill -STOP "-$old" || old=
trap '[ -z "$old" ] || kill -CONT "-$old"' EXIT
mkdir -p "$1"
printf '%s\\n' "$3" > "$1/heal.new"
echo $(( $(cut -d. -f1 /proc/uptime) + $2 )) > "$1/until.new"
printf '%s\\n' "$4" > "$1/watch.new"
for file in until watch heal; do mv "$1/$file.new" "$1/$file"; done
rm -f "$1/pid"
case $1 in /run/*) of_machine=1 ;; *) of_machine= ;; esac
if [ -n "$of_machine" ] && [ -d /run/systemd/system ] && [ "$(id -u)" = 0 ] && command -v systemd-run > /dev/null; then
    systemd-run --quiet --collect --property KillMode=process --unit "$5" sh "$1/watch" "$1"
else
    setsid sh "$1/watch" "$1" < /dev/null > /dev/null 2>&1 &
fi
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -s "$1/pid" ] && kill -0 "$(cat "$1/pid")" && break
    sleep 0.1
done
kill -0 "$(cat "$1/pid")"
[ -z "$old" ] || kill -KILL "-$old"
old=
"""

#: The arguments: the folder, the script, and its arguments. The script gets a session of its own, so that it can be
#: ended with all processes that it has started.
_DO = """
folder=$1
printf '%s\\n' "$2" > "$folder/do"
shift 2
setsid sh "$folder/do" "$@" < /dev/null &
echo $! > "$folder/doing"
status=0
wait $! || status=$?
rm -f "$folder/doing"
exit $status
"""

_HEALED = "healed"
_HEAL = f"""
set -eu
{_IS_OURS}{_TAKE}
while [ -e "$1/heal" ] && ! take "$1"; do sleep 0.1; done
[ -e "$1/heal" ] || exit 0
{_END}
sh "$1/heal" > "$1/healing.log" 2>&1 < /dev/null || {{ cat "$1/healing.log" >&2; rm -f "$1/healing"; exit 1; }}
dog=$(cat "$1/pid" 2> /dev/null || true)
[ -n "$dog" ] && is_ours "$dog" "$1/watch" && kill "$dog" || true
{_FORGET}
echo {_HEALED}
"""

_ARMED = 'for each in "$1"/*/heal; do [ -e "$each" ] && basename "$(dirname "$each")"; done; exit 0'


def arm(machine: Machine, key: str, *, heal: str, after_s: float) -> None:
    """Start a watchdog that runs ``heal`` after ``after_s`` and a margin, in place of an earlier one of this ``key``.

    Raise MachineError if no watchdog could be started; nothing may be injected then.
    """
    unit = f"rabbitmq-resilience-{re.sub('[^A-Za-z0-9.-]', '-', key)}-{secrets.token_hex(4)}"
    try:
        machine.run(_ARM, f"{machine.state}/{key}", str(round(after_s + MARGIN_S)), heal, _WATCH, unit)
    except MachineError as error:
        raise MachineError(f"no watchdog could be set, so nothing was done: {error}") from error


@contextmanager
def doing(machine: Machine, key: str, *, heal: str, for_s: float) -> Iterator[Callable[[str], None]]:
    """Yield a function that runs a script which takes its time; ``for_s`` counts from the end of the context.

    If the injection is healed while the script still runs, or if the script takes too long, it is ended first.
    """
    arm(machine, key, heal=heal, after_s=for_s + DONE_WITHIN_S)

    def do(script: str) -> None:
        try:
            machine.run(_DO, f"{machine.state}/{key}", script, timeout_s=DONE_WITHIN_S)
        except MachineError:
            with suppress(MachineError):  # otherwise its healing ends it
                machine.run(_IS_OURS + _END, f"{machine.state}/{key}")
            raise

    yield do
    arm(machine, key, heal=heal, after_s=for_s)


def heal(machine: Machine, key: str) -> bool:
    """Run now what the watchdog would run, and end the watchdog; if it is healing already, wait for it.

    Return False if there is no watchdog any more. Then the injection is healed, or the watchdog's files are lost, and
    only a look at the machine shows which. Raise MachineError if healing fails; the watchdog goes on trying then.
    """
    return machine.run(_HEAL, f"{machine.state}/{key}", timeout_s=HEALED_WITHIN_S).strip() == _HEALED


def armed(machine: Machine) -> Sequence[str]:
    """Return the keys of injections that are not healed on the machine; none if there is no such machine."""
    try:
        return machine.run(_ARMED, machine.state).split()
    except AbsentError:
        return []
