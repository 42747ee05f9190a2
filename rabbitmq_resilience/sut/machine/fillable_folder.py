"""Fill the disk of a folder to its last block, and give the space back.

A process, the filler, holds the space: it writes to a file that has no name any more. Once the filler is gone, for any
reason, the kernel gives the space back; a reboot leaves nothing behind either. The filler writes as the user who owns
the folder, so the space that a file system reserves for root stays free.
"""

from __future__ import annotations

from dataclasses import dataclass

from rabbitmq_resilience.sut.machine.machine_shell import MachineShell, ShellAction

#: The name that marks the filler's process; its command line also has the key.
_NAME = "rabbitmq-resilience-filler"

#: Fills the disk of the folder $1, until the machine's uptime is $2 seconds. fallocate takes most of the space at once
#: if the file system supports it. Space that a broker frees later is taken as well.
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

#: Prints the command that runs another as the owner of the folder $1; nothing if it is our user.
_AS_OWNER = """
as_owner() {
    user=$(stat -c %u "$1")
    [ "$user" = "$(id -u)" ] || echo "setpriv --reuid $user --regid $(stat -c %g "$1") --clear-groups"
}
"""

#: ``fillers KEY`` prints the processes that fill under this key. ``gone PID`` waits until no process of that group runs
#: any more. The kernel gives the space back with the last process that had the file open. A killed process loses its
#: command line before its files, and has neither once it is a zombie.
_FUNCTIONS = f"""
fillers() {{
    for file in $(grep -lF -e {_NAME} /proc/[0-9]*/cmdline 2> /dev/null); do
        words=$(tr '\\0' '\\n' 2> /dev/null < "$file")
        echo "$words" | grep -qxF -e {_NAME} && echo "$words" | grep -qxF -e "$1" || continue
        pid=${{file%/cmdline}}
        echo "${{pid##*/}}"
    done
}}
gone() {{
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        cat /proc/[0-9]*/stat 2> /dev/null | sed 's/.*) //' | grep -qE "^[^ZX] [0-9]+ $1 " || return 0
        sleep 0.25
    done
    return 1
}}
"""

_LACKS = """
[ -d "$1" ] || { echo "there is no folder $1"; exit 0; }
for program in setpriv setsid fallocate; do
    command -v $program > /dev/null || echo "there is no $program (util-linux)"
done
kind=$(stat -f -c %T "$1")
case "$kind" in overlayfs | nfs | cifs | smb2 | 9p | ceph)
    echo "$1 is on a file system ($kind) of which others have a share" ;;
esac
"""

_DO = f"""
{_FUNCTIONS}{_AS_OWNER}
set -eu
[ -z "$(fillers "$2")" ] || exit 0
ends=$(( $(cut -d. -f1 /proc/uptime) + $3 ))
log=$(mktemp)
trap 'rm -f "$log"' EXIT
setsid $(as_owner "$1") sh -c "$4" {_NAME} "$1" "$ends" "$2" < /dev/null > /dev/null 2> "$log" &
sleep 0.5
kill -0 $! 2> /dev/null || {{ cat "$log" >&2; exit 1; }}
"""

_UNDO = f"""
{_FUNCTIONS}
ended=$(fillers "$2")
for pid in $ended; do kill -KILL "-$pid" 2> /dev/null; done
for pid in $ended; do gone "$pid" || exit 1; done
"""

#: Writes a block as the owner of the folder, and removes it. Prints whether that was possible, and the free bytes.
_SEEN = f"""
{_AS_OWNER}
set -eu
probe="$1/.rabbitmq-resilience-probe-$$"
trap 'rm -f "$probe"' EXIT
taken=yes
said=$(LC_ALL=C $(as_owner "$1") dd if=/dev/zero "of=$probe" bs=4096 count=1 2>&1) || taken=no
case "$taken $said" in yes*|*"No space left on device"*) ;; *) echo "$said" >&2; exit 1 ;; esac
rm -f "$probe"
echo "$taken $(( $(stat -f -c '%a * %S' "$1") ))"
"""

#: The arguments: the folder, a key of the filler, for how many seconds, and the filler.
FILL_DISK = ShellAction(_LACKS, _DO, _UNDO, _SEEN)


@dataclass(frozen=True)
class FillableFolder:
    """The disk of the folder ``path``. ``key`` identifies its filler on the machine. Methods raise ClusterError."""

    shell: MachineShell
    path: str
    key: str

    def fill(self, *, for_s: float) -> None:
        """Begin to fill the disk, and return at once. The filler ends by itself after ``for_s``."""
        self.shell.run(FILL_DISK.do, self.path, self.key, str(round(for_s)), _FILLER)

    def empty(self) -> None:
        """Undo ``fill``."""
        self.shell.run(FILL_DISK.undo, self.path, self.key)

    def takes(self) -> bool:
        """Return whether the folder's owner can write a block now. Only the kernel's answer ENOSPC counts as no."""
        return self._seen()[0] == "yes"

    def free_bytes(self) -> int:
        return int(self._seen()[1])

    def _seen(self) -> list[str]:
        return self.shell.run(FILL_DISK.seen, self.path).split()
