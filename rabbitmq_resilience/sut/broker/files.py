"""Describe the files and ports of one broker: what it reads, writes and listens on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NodePorts:
    """The ports of one broker. Each broker of a cluster has different ports if they share an address."""

    amqp: int
    management: int
    distribution: int
    epmd: int
    prometheus: int

    @property
    def published(self) -> tuple[int, ...]:
        """Return the ports of a broker in a container that are reachable on loopback."""
        return self.amqp, self.management, self.prometheus


@dataclass(frozen=True)
class BrokerFiles:
    """The files of one broker: its own folder inside the cluster's folder, and its log."""

    folder: Path
    log: Path

    @property
    def conf(self) -> Path:
        return self.folder / "rabbitmq.conf"

    @property
    def advanced_config(self) -> Path:
        return self.folder / "advanced.config"

    @property
    def plugins(self) -> Path:
        return self.folder / "enabled_plugins"

    @property
    def peers(self) -> Path:
        """Return the file of peers: Erlang terms ``{"a1", Host, Port}.``. resilience_distribution.erl reads it at every
        connection."""
        return self.folder / "peers"

    @property
    def traffic(self) -> Path:
        """Return the file of counters. resilience_distribution.erl writes its lines ``peer connection sent received
        sent_before`` (in bytes)."""
        return self.folder / "traffic"

    @property
    def data(self) -> Path:
        """Return the folder of all data that the broker stores."""
        return self.folder / "data"

    @property
    def disk_faults(self) -> Path:
        """Return the folder where a preloaded library records what is not flushed (``sut.preload``)."""
        return self.folder / "disk-faults"

    def stored_bytes(self) -> int:
        """Return the size of all data that the broker stores, as the sum of its file sizes."""
        return sum(_size_bytes(file) for file in self.data.rglob("*"))

    @property
    def output(self) -> Path:
        """Return the file with the process's output. It has the reason if the broker fails before it opens its log."""
        return self.folder / "output"

    def says_booted(self, *, since: int) -> bool:
        """Return whether the process's output, from the byte ``since`` on, says that its start is complete."""
        return self.output.exists() and _BOOTED in self.output.read_bytes()[since:]


#: A part of the last line of a start on standard output: "Starting broker... completed with 3 plugins."
_BOOTED = b" completed with "


def _size_bytes(file: Path) -> int:
    """Return the size of a file; 0 if the path is no file, or if the broker has just removed it."""
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:
        return 0
