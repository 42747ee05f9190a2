"""Fill the disk of a machine's broker (``sut.machine.fillable_folder``), with a watchdog that gives the space back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.fault_budget import BlastRadius
from rabbitmq_resilience.extensions.attached.foreign_broker import RemoteBroker
from rabbitmq_resilience.extensions.attached.machine import Machine
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.sut.machine.fillable_folder import FILL_DISK, FillableFolder

#: True if a broker that runs has lost its metadata, or is about to. If a write to its log failed, Mnesia ends when it
#: dumps the log next, up to three minutes later (dump_log_time_threshold), and the process lives on (seen on 3.10.8).
#: So the expression has it dump the log now, which does no harm if all was written.
IS_BROKEN = (
    'rabbit:is_running() andalso (not is_boolean(catch rabbit_vhost:exists(<<"/">>)) orelse '
    "(mnesia:system_info(is_running) =:= yes andalso (catch mnesia:dump_log()) =/= dumped))"
)

#: Prints why filling $1 does not fill the disk of $2, the folder where the broker stores its data; nothing if it does.
_IS_ELSEWHERE = """
[ -z "$2" ] || [ ! -d "$1" ] || [ "$(stat -c %d "$1")" = "$(stat -c %d "$2")" ] \\
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
        heal = f"set -- {shlex.join([self.path, self._folder])}\n{FILL_DISK.undo}"
        heal += self.broker.killed_where(IS_BROKEN) + self.broker.start_command()
        watchdog.arm(self.machine, self._key, heal=heal, after_s=for_s)
        self._filled.fill(for_s=for_s + watchdog.MARGIN_S)

    def empty(self) -> None:
        """Undo ``fill``."""
        if not watchdog.heal(self.machine, self._key):
            self._filled.empty()  # the filler may outlive its watchdog

    def room(self) -> Room:
        counted, mounted_at = self.machine.run(_LOOK, self.path).splitlines()
        free, blocks, size_bytes = map(int, counted.split())
        return Room(free * size_bytes, blocks * size_bytes, mounted_at)

    def takes(self) -> bool:
        """Return whether the broker's user can write a block now."""
        return self._filled.takes()

    def lacking(self, *, stored_in: str) -> list[str]:
        """Return the reasons, in words, why the disk cannot be filled.

        ``stored_in``: the folder that the broker reports; empty if unknown.
        """
        elsewhere = self.machine.run(_IS_ELSEWHERE, self.path, stored_in).splitlines()
        return [*FILL_DISK.lacking(self.machine, self.path), *elsewhere]

    @property
    def _filled(self) -> FillableFolder:
        return FillableFolder(self.machine, self.path, self._folder)

    @property
    def _key(self) -> str:
        return f"{self.key}:disk"

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
