"""The files and ports of one broker: what it reads, writes and listens on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NodePorts:
    """The ports of one broker, no two of a cluster's the same."""

    amqp: int
    management: int
    distribution: int
    epmd: int
    prometheus: int

    @property
    def published(self) -> tuple[int, ...]:
        """Those of a broker in a container that are reachable on loopback."""
        return self.amqp, self.management, self.prometheus


@dataclass(frozen=True)
class BrokerFiles:
    """Where one broker keeps what: its own folder inside the cluster's, and its log."""

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
        """Erlang terms ``{"a1", Host, Port}.``, read by resilience_distribution.erl at every connection."""
        return self.folder / "peers"

    @property
    def traffic(self) -> Path:
        """Lines ``peer connection sent received sent_before`` (bytes), written by resilience_distribution.erl."""
        return self.folder / "traffic"

    @property
    def data(self) -> Path:
        """All that the broker stores."""
        return self.folder / "data"

    @property
    def output(self) -> Path:
        """What the process prints: the reason when it does not even get as far as its log."""
        return self.folder / "output"

    def says_booted(self, *, since: int) -> bool:
        """Whether what the process printed, from the byte ``since`` on, says that its start is complete."""
        return self.output.exists() and _BOOTED in self.output.read_bytes()[since:]


#: The last words of a start on standard output: "Starting broker... completed with 3 plugins."
_BOOTED = b" completed with "
