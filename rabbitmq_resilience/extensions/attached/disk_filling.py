"""Fill the disk of a machine's broker to its last block, and give the space back.

A process, the filler, holds the space: it writes to a file that has no name any more. Once the filler is gone, for any
reason, the kernel gives the space back; a reboot leaves nothing behind either. The filler writes as the user who owns
the folder, so the space that a file system reserves for root stays free. It also ends by itself if its watchdog is
gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.fault_budget import BlastRadius
from rabbitmq_resilience.extensions.attached.foreign_broker import RemoteBroker
from rabbitmq_resilience.extensions.attached.machine import Machine
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi

#: The name that marks the filler's process; its command line also has the folder of its watchdog.
_NAME = "rabbitmq-resilience-filler"

#: Fills the disk as the owner of the folder $1, until the machine's uptime is $2 seconds. fallocate takes most of the
#: space at once if the file system supports it. Space that a broker frees later is taken as well.
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

#: Waits until no process of the group $1 runs any more. The kernel gives the space back with the last process that had
#: the file open. A killed process loses its command line before its files, and has neither once it is a zombie.
_GONE = """
gone() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        cat /proc/[0-9]*/stat 2> /dev/null | sed 's/.*) //' | grep -qE "^[^ZX] [0-9]+ $1 " || return 0
        sleep 0.25
    done
    return 1
}
"""

#: Ends the filler of the watchdog's folder FOLDER, with all processes that it has started.
_EMPTY = f"""
{_GONE}
is_filler() {{ tr '\\0' ' ' 2> /dev/null < "/proc/$1/cmdline" | grep -qF '{_NAME}'; }}
pid=$(cat FOLDER/filler 2> /dev/null || true)
if [ -n "$pid" ] && is_filler "$pid"; then
    kill -KILL "-$pid"
    gone "$pid" || exit 1
fi
"""

#: Ends the fillers of the watchdog's folder $1 if the files of that watchdog are gone.
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

#: True if a broker that runs has lost its metadata, or is about to. If a write to its log failed, Mnesia ends when it
#: dumps the log next, up to three minutes later (dump_log_time_threshold), and the process lives on (seen on 3.10.8).
#: So the expression has it dump the log now, which does no harm if all was written.
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

#: Prints each reason why $1 cannot be filled on a line; $2 is the folder where the broker stores its data. A file
#: system that other machines share is left alone.
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

#: Prints the free and all blocks, the size of a block, and the mount point.
_LOOK = """stat -f -c '%a %b %S' "$1"; stat -c %m "$1" """


@dataclass(frozen=True)
class Room:
    free_bytes: int
    all_bytes: int
    mounted_at: str


@dataclass(frozen=True)
class RemoteDisk:
    """The file system of the folder ``path`` on one machine. Raise MachineError if an action fails.

    ``key`` identifies the node in watchdogs.
    """

    machine: Machine
    broker: RemoteBroker
    path: str
    key: str

    def fill(self, *, for_s: float) -> None:
        """Begin to fill the disk, and return at once.

        When the fault ends, the broker is started again if it has died of it, or if it has lost its metadata.
        """
        heal = _EMPTY.replace("FOLDER", self._folder) + self.broker.killed_where(IS_BROKEN)
        heal += self.broker.start_command()
        watchdog.arm(self.machine, self._key, heal=heal, after_s=for_s)
        lasts_s = str(round(for_s + watchdog.MARGIN_S))
        self.machine.run(_FILL, self.path, self._folder, lasts_s, _FILLER)

    def empty(self) -> None:
        """Undo ``fill``."""
        if not watchdog.heal(self.machine, self._key):
            self.machine.run(_END_ALL, self._folder)  # the filler may outlive its watchdog

    def room(self) -> Room:
        counted, mounted_at = self.machine.run(_LOOK, self.path).splitlines()
        free, blocks, size_bytes = map(int, counted.split())
        return Room(free * size_bytes, blocks * size_bytes, mounted_at)

    def takes(self) -> bool:
        """Return whether the broker's user can write a block now."""
        return self.machine.run(_TAKES, self.path).strip() == "yes"

    def lacking(self, *, stored_in: str) -> list[str]:
        """Return the reasons, in words, why the disk cannot be filled.

        ``stored_in``: the folder that the broker reports; empty if unknown.
        """
        return self.machine.run(_LACKS, self.path, stored_in).splitlines()

    @property
    def _key(self) -> str:
        return f"{self.key}-disk"

    @property
    def _folder(self) -> str:
        return f"{self.machine.state}/{self._key}"


#: Less free space than this counts as none: a broker may free as much between two looks.
_NOTHING_BYTES = 2**20


@dataclass(frozen=True)
class HeldDisk:
    """The disk of a broker that is not ours, as ``container_protocol.Disk``; ``node`` is its Erlang name.

    A filled disk is given back by itself some time after ``for_s``.
    """

    disk: RemoteDisk
    hands: BlastRadius
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
        """Return, in words, the free space that the broker reports.

        Return an empty text if it reports none or does not answer: it may have died of the full disk, or be busy.
        """
        try:
            rows = self.api.get("nodes", params={"columns": "name,disk_free,disk_free_alarm"})
        except (ApiError, ApiUnreachable):
            return ""
        row: Mapping[str, Any] = next((row for row in rows if row["name"] == self.node), {})
        free_bytes = int(row.get("disk_free") or 0)
        if row.get("disk_free_alarm") or free_bytes < _NOTHING_BYTES:
            return ""
        return f"{self.node} reports {free_bytes:,} free bytes"
