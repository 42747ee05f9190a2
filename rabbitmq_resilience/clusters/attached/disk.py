"""The disk of a machine's broker, filled to its last block and given back.

A process holds the space: it writes to a file that has no name any more. Once that process is gone, by whatever, the
kernel gives the space back; a reboot leaves nothing behind either. It writes as the user to whom the folder belongs, so
what a file system reserves for root stays free. The process ends by itself as well, should its watchdog be gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.clusters.attached import watchdog
from rabbitmq_resilience.clusters.attached.broker import RemoteBroker
from rabbitmq_resilience.clusters.attached.machine import Machine
from rabbitmq_resilience.clusters.attached.permits import Hands
from rabbitmq_resilience.clusters.broker.management import ApiError, ApiUnreachable, ManagementApi

#: By this its process is known; it has the folder of its watchdog behind it.
_NAME = "rabbitmq-resilience-filler"

#: As the owner of the folder $1, until the machine's uptime is $2 seconds. fallocate takes most of it at once, where
#: the file system can do that; what a broker frees meanwhile is taken as well.
_FILLER = """
file="$1/.rabbitmq-resilience-$$"
exec 3>> "$file" || exit 1
rm -f "$file"
fallocate -l "$(( $(stat -f -c '%a * %S' "$1") ))" /proc/self/fd/3 2> /dev/null
while [ "$(cut -d. -f1 /proc/uptime)" -lt "$2" ]; do
    cat /dev/zero >&3 2> /dev/null
    sleep 0.1
done
"""

#: The arguments: the folder to fill, that of the watchdog, for how many seconds, and the filler.
_FILL = f"""
set -eu
ends=$(( $(cut -d. -f1 /proc/uptime) + $3 ))
setsid setpriv --reuid "$(stat -c %u "$1")" --regid "$(stat -c %g "$1")" --clear-groups \\
    sh -c "$4" {_NAME} "$1" "$ends" "$2" < /dev/null > /dev/null 2> "$2/filler.log" &
echo $! > "$2/filler"
sleep 0.5
kill -0 "$(cat "$2/filler")" 2> /dev/null || {{ cat "$2/filler.log" >&2; exit 1; }}
"""

#: Waits until no process of the group $1 runs any more. The kernel gives the space back with the last of them that had
#: the file open, and one that is killed loses its command line before its files; once it is a zombie it has none.
_GONE = """
gone() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        cat /proc/[0-9]*/stat 2> /dev/null | sed 's/.*) //' | grep -qE "^[^ZX] [0-9]+ $1 " || return 0
        sleep 0.25
    done
    return 1
}
"""

#: Ends the filler of the watchdog's folder FOLDER, with what it has started.
_EMPTY = f"""
{_GONE}
is_filler() {{ tr '\\0' ' ' 2> /dev/null < "/proc/$1/cmdline" | grep -qF '{_NAME}'; }}
pid=$(cat FOLDER/filler 2> /dev/null || true)
if [ -n "$pid" ] && is_filler "$pid"; then
    kill -KILL "-$pid"
    gone "$pid" || exit 1
fi
"""

#: The same where that is not known: $1 is the folder.
_END_ALL = f"""
{_GONE}
ended=
for file in $(grep -lazxF -e {_NAME} /proc/[0-9]*/cmdline 2> /dev/null); do
    pid=${{file%/cmdline}}; pid=${{pid##*/}}
    tr '\\0' '\\n' 2> /dev/null < "$file" | grep -qxF -e "$1" && kill -KILL "-$pid" 2> /dev/null && ended="$ended $pid"
done
for pid in $ended; do gone "$pid" || exit 1; done
exit 0
"""

#: Whether a broker that runs has lost its metadata, or is going to. What could not be written to Mnesia's log ends
#: Mnesia when it looks there next, up to three minutes later (dump_log_time_threshold), and the process lives on (seen
#: on 3.10.8). So it is asked to look now, which does no harm where all was written.
IS_BROKEN = (
    'rabbit:is_running() andalso (not is_boolean(catch rabbit_vhost:exists(<<"/">>)) orelse '
    "(mnesia:system_info(is_running) =:= yes andalso (catch mnesia:dump_log()) =/= dumped))"
)

#: Writes a block as the owner of the folder $1, and removes it.
_TAKES = """
set -eu
probe="$1/.rabbitmq-resilience-probe-$$"
trap 'rm -f "$probe"' EXIT
said=$(LC_ALL=C setpriv --reuid "$(stat -c %u "$1")" --regid "$(stat -c %g "$1")" --clear-groups \\
    dd if=/dev/zero "of=$probe" bs=4096 count=1 2>&1) && { echo yes; exit 0; }
case "$said" in *"No space left on device"*) echo no ;; *) echo "$said" >&2; exit 1 ;; esac
"""

#: Prints why $1 cannot be filled, a line each; $2 is where the broker stores. What others share is left alone.
_LACKS = """
[ -d "$1" ] || { echo "there is no folder $1"; exit 0; }
for program in setpriv setsid fallocate; do
    command -v $program > /dev/null || echo "there is no $program (util-linux)"
done
kind=$(stat -f -c %T "$1")
case "$kind" in overlayfs | nfs | cifs | smb2 | 9p | ceph)
    echo "$1 is on a file system ($kind) of which others have a share" ;;
esac
[ -z "$2" ] || [ "$(stat -c %d "$1")" = "$(stat -c %d "$2")" ] \\
    || echo "the broker stores in $2, which is on another file system than $1"
"""

#: Free and all bytes, and where it is mounted.
_LOOK = """stat -f -c '%a %b %S' "$1"; stat -c %m "$1" """


@dataclass(frozen=True)
class Room:
    free_bytes: int
    all_bytes: int
    mounted_at: str


@dataclass(frozen=True)
class RemoteDisk:
    """Of one machine: the file system of the folder ``path``. ``key`` names it in watchdogs. Raises MachineError."""

    machine: Machine
    broker: RemoteBroker
    path: str
    key: str

    def fill(self, *, for_s: float) -> None:
        """Returns while it is being filled. With its end the broker is started again, if it has died of it, or lives on
        without its metadata."""
        heal = _EMPTY.replace("FOLDER", self._folder) + self.broker.killed_where(IS_BROKEN)
        heal += self.broker.start_command()
        watchdog.arm(self.machine, self._key, heal=heal, after_s=for_s)
        lasts_s = str(round(for_s + watchdog.MARGIN_S))
        self.machine.run(_FILL, self.path, self._folder, lasts_s, _FILLER)

    def empty(self) -> None:
        """Undo ``fill``."""
        if not watchdog.heal(self.machine, self._key):
            self.machine.run(_END_ALL, self._folder)  # it may outlive what watched over it

    def room(self) -> Room:
        counted, mounted_at = self.machine.run(_LOOK, self.path).splitlines()
        free, blocks, size_bytes = map(int, counted.split())
        return Room(free * size_bytes, blocks * size_bytes, mounted_at)

    def takes(self) -> bool:
        """Whether the broker's user can write a block now."""
        return self.machine.run(_TAKES, self.path).strip() == "yes"

    def lacking(self, *, stored_in: str) -> list[str]:
        """In words, why it cannot be filled. ``stored_in``: the broker's folder, as that tells; empty if unknown."""
        return self.machine.run(_LACKS, self.path, stored_in).splitlines()

    @property
    def _key(self) -> str:
        return f"{self.key}-disk"

    @property
    def _folder(self) -> str:
        return f"{self.machine.state}/{self._key}"


#: What a broker may free between two looks.
_NOTHING_BYTES = 2**20


@dataclass(frozen=True)
class HeldDisk:
    """The disk of a broker that is not ours, as ``container_protocol.Disk``; ``node`` is its Erlang name. Filled, it is
    given back by itself some time after ``for_s``."""

    disk: RemoteDisk
    hands: Hands
    api: ManagementApi
    node: str
    for_s: float

    def fill(self) -> None:
        self.hands.take("fill_disk", [self.node], for_s=self.for_s)
        self.hands.alarming(self.node, "disk")
        self.disk.fill(for_s=self.for_s)

    def empty(self) -> None:
        self.disk.empty()
        self.hands.leave("fill_disk", [self.node])
        self.hands.calmed(self.node, "disk")

    def free_bytes(self) -> int:
        return self.disk.room().free_bytes

    def takes(self) -> bool:
        return self.disk.takes()

    def room_seen(self) -> str:
        """By the broker: one that has died of it, or is busy with it, sees none."""
        try:
            rows = self.api.get("nodes", params={"columns": "name,disk_free,disk_free_alarm"})
        except (ApiError, ApiUnreachable):
            return ""
        row: Mapping[str, Any] = next((row for row in rows if row["name"] == self.node), {})
        free_bytes = int(row.get("disk_free") or 0)
        if row.get("disk_free_alarm") or free_bytes < _NOTHING_BYTES:
            return ""
        return f"{self.node} tells of {free_bytes:,} bytes free"
