"""Every injection carries its own end: a watchdog on the machine that heals what nobody has healed in time.

It is a shell on the far side, in a session of its own, so it goes on when our connection, our process or our machine is
gone. It is there before the injection. What it knows lies in a folder of the machine's: ``heal``, a script that may be
run twice, and ``until``, in seconds of the machine's uptime, which no change of its clock moves. What fails to heal is
tried again each second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rabbitmq_resilience.clusters.attached.machine import Machine, MachineError

#: On machines of others. Gone after a reboot, as what it heals is.
STATE = "/run/rabbitmq-resilience"
#: How much later than asked it heals by itself.
MARGIN_S = 30.0
#: How long that may take which is not done at once.
DONE_WITHIN_S = 120.0

_WATCH = """
echo $$ > "$1/pid"
while sleep 1; do
    now=$(cut -d. -f1 /proc/uptime)
    [ "$now" -lt "$(cat "$1/until")" ] && continue
    sh "$1/heal" > "$1/healing.log" 2>&1 < /dev/null && { rm -rf "$1"; exit 0; }
done
"""

#: The arguments: the folder, after how many seconds, how to heal, the watchdog, and a name for a unit of systemd, which
#: does not end it with the session of a user who logs out.
_ARM = """
set -eu
umask 077
mkdir -p "$1"
old=$(cat "$1/pid" 2>/dev/null || true)
printf '%s\\n' "$3" > "$1/heal.new"
echo $(( $(cut -d. -f1 /proc/uptime) + $2 )) > "$1/until.new"
printf '%s\\n' "$4" > "$1/watch.new"
for file in until watch heal; do mv "$1/$file.new" "$1/$file"; done
rm -f "$1/pid"
if [ -d /run/systemd/system ] && [ "$(id -u)" = 0 ] && command -v systemd-run > /dev/null; then
    systemd-run --quiet --collect --unit "$5" sh "$1/watch" "$1"
else
    setsid sh "$1/watch" "$1" < /dev/null > /dev/null 2>&1 &
fi
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -s "$1/pid" ] && kill -0 "$(cat "$1/pid")" && break
    sleep 0.1
done
kill -0 "$(cat "$1/pid")"
[ -n "$old" ] && tr '\\0' ' ' 2> /dev/null < "/proc/$old/cmdline" | grep -qF "$1/watch" && kill "$old"
exit 0
"""

_HEAL = """
set -eu
[ -e "$1/heal" ] || exit 0
sh "$1/heal" > "$1/healing.log" 2>&1 < /dev/null || { cat "$1/healing.log" >&2; exit 1; }
dog=$(cat "$1/pid" 2>/dev/null || true)
[ -n "$dog" ] && tr '\\0' ' ' 2> /dev/null < "/proc/$dog/cmdline" | grep -qF "$1/watch" && kill "$dog"
rm -rf "$1"
"""

_ARMED = 'for each in "$1"/*/heal; do [ -e "$each" ] && basename "$(dirname "$each")"; done; exit 0'


def arm(machine: Machine, key: str, *, heal: str, after_s: float) -> None:
    """From now on ``heal`` is run on the machine after so long, in place of what this ``key`` stood for before. Raises
    MachineError if nobody watches: nothing may be injected then."""
    unit = f"rabbitmq-resilience-{key}-{abs(hash((key, after_s, heal))) % 10**8}"
    try:
        machine.run(_ARM, f"{machine.state}/{key}", str(round(after_s + MARGIN_S)), heal, _WATCH, unit)
    except MachineError as error:
        raise MachineError(f"no watchdog could be set, so nothing was done: {error}") from error


@contextmanager
def doing(machine: Machine, key: str, *, heal: str, for_s: float) -> Iterator[None]:
    """For what takes its time until it is done: only from then on ``for_s`` counts. Healed before, it would be done
    afterwards, and nobody would watch."""
    arm(machine, key, heal=heal, after_s=for_s + DONE_WITHIN_S)
    yield
    arm(machine, key, heal=heal, after_s=for_s)


def heal(machine: Machine, key: str) -> None:
    """Run now what the watchdog would run, and end it. No error where there is nothing to heal. Raises MachineError
    where healing fails; the watchdog goes on trying then."""
    machine.run(_HEAL, f"{machine.state}/{key}", timeout_s=60.0)


def armed(machine: Machine) -> Sequence[str]:
    """The keys of what is not healed on the machine."""
    return machine.run(_ARMED, machine.state).split()
