"""Every injection carries its own end: a watchdog on the machine that heals what nobody has healed in time.

It is a shell on the far side, in a session of its own, so it goes on when our connection, our process or our machine is
gone. It is there before the injection. What it knows lies in a folder of the machine's: ``heal``, a script that may be
run twice, and ``until``, in seconds of the machine's uptime, which no change of its clock moves. What fails to heal is
tried again each second.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rabbitmq_resilience.clusters.attached.machine import AbsentError, Machine, MachineError

#: On machines of others. Gone after a reboot, as what it heals is.
STATE = "/run/rabbitmq-resilience"
#: How much later than asked it heals by itself.
MARGIN_S = 30.0
#: How long that may take which is not done at once.
DONE_WITHIN_S = 120.0
#: How long healing may take that is asked for.
HEALED_WITHIN_S = 60.0

_IS_OURS = """
is_ours() { tr '\\0' ' ' 2> /dev/null < "/proc/$1/cmdline" | grep -qF "$2"; }
"""

#: One heals at a time, the watchdog or who was asked to: the other's script would run into the half of it, and lose the
#: folder under its feet. What one has left that was killed meanwhile is no hindrance.
_TAKE = """
take() {
    ln -s $$ "$1/healing" 2> /dev/null && return 0
    is_ours "$(readlink "$1/healing")" "$1" && return 1
    rm -f "$1/healing"
    ln -s $$ "$1/healing" 2> /dev/null
}
"""

#: ``heal`` goes first, so that nobody takes what is healed for what is not, once the rest of the folder is going.
_FORGET = 'rm -f "$1/heal"; rm -rf "$1"'

#: Ends what is still being done: healed beneath it, it would be done afterwards, and nobody would watch.
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

#: The arguments: the folder, after how many seconds, how to heal, the watchdog, and a name for a unit of systemd, which
#: does not end it with the session of a user who logs out, nor what it has started once it is over. What watched
#: before, and may be healing right now, stands still meanwhile, and goes on where nobody takes its place.
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
if [ -d /run/systemd/system ] && [ "$(id -u)" = 0 ] && command -v systemd-run > /dev/null; then
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

#: The folder, the script, and its arguments. It is a session of its own, so that it can be ended with all that it has
#: started.
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
    """From now on ``heal`` is run on the machine after so long, in place of what this ``key`` stood for before. Raises
    MachineError if nobody watches: nothing may be injected then."""
    unit = f"rabbitmq-resilience-{re.sub('[^A-Za-z0-9.-]', '-', key)}-{secrets.token_hex(4)}"
    try:
        machine.run(_ARM, f"{machine.state}/{key}", str(round(after_s + MARGIN_S)), heal, _WATCH, unit)
    except MachineError as error:
        raise MachineError(f"no watchdog could be set, so nothing was done: {error}") from error


@contextmanager
def doing(machine: Machine, key: str, *, heal: str, for_s: float) -> Iterator[Callable[[str], None]]:
    """For what takes its time until it is done, by the function that this gives: only from then on ``for_s`` counts.
    What is not done once it is healed, by whomever, is ended first."""
    arm(machine, key, heal=heal, after_s=for_s + DONE_WITHIN_S)

    def do(script: str) -> None:
        machine.run(_DO, f"{machine.state}/{key}", script, timeout_s=DONE_WITHIN_S)

    yield do
    arm(machine, key, heal=heal, after_s=for_s)


def heal(machine: Machine, key: str) -> bool:
    """Run now what the watchdog would run, and end it; where it is healing by itself, wait for it. False where nobody
    watches any more: it is healed, or what was known of it is lost, and whoever needs to know must look. Raises
    MachineError where healing fails; the watchdog goes on trying then."""
    return machine.run(_HEAL, f"{machine.state}/{key}", timeout_s=HEALED_WITHIN_S).strip() == _HEALED


def armed(machine: Machine) -> Sequence[str]:
    """The keys of what is not healed on the machine. Where there is no machine, nobody watches."""
    try:
        return machine.run(_ARMED, machine.state).split()
    except AbsentError:
        return []
