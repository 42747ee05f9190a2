"""The one protocol that every cluster driver implements."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal, Protocol

from topologies.management import ManagementApi
from topologies.spec import Link, Topology

ProcessState = Literal["running", "suspended", "gone"]
NodeState = Literal["up", "paused", "suspended", "down"]


class ClusterError(Exception):
    """The cluster could not be brought to the asked state; the text says which node, what was last
    seen, and which log to read."""


class Links(Protocol):
    """The proxied links of one cluster.

    Two brokers share one connection, opened by either, so what acts on the directed link a->b acts on
    the upstream side of the proxy a->b *and* the downstream side of the proxy b->a. Each call takes
    the links that it acts on; those that carry no proxy are passed over, which the proof then shows.
    """

    @property
    def proxied(self) -> frozenset[Link]:
        """The links that a proxy carries: always both directions of a pair."""
        ...

    def cut(self, links: Collection[Link]) -> None:
        """Packets stop, nothing is closed: bytes are held until ``restore``."""
        ...

    def restore(self, links: Collection[Link]) -> None:
        """Undo ``cut``. A connection younger than ``net_ticktime`` goes on; an older one is made anew."""
        ...

    def delay(self, links: Collection[Link], *, latency_ms: int, jitter_ms: int) -> None: ...

    def undelay(self, links: Collection[Link]) -> None: ...

    def held_bytes(self, link: Link) -> int | None:
        """Bytes taken in for ``link`` and not yet delivered; None where it carries no proxy."""
        ...

    def probe_ms(self, link: Link, *, timeout_s: float) -> float | None:
        """Round trip of a probe that crosses the directed link; None if unanswered or not proxied."""
        ...


class Cluster(Protocol):
    """Running brokers of one topology. Node arguments are topology names (``a1``)."""

    @property
    def topology(self) -> Topology: ...

    @property
    def driver(self) -> str: ...

    @property
    def broker_version(self) -> str: ...

    @property
    def replaced_settings(self) -> tuple[str, ...]:
        """The lines of the user's configuration that gave way to what the harness must own."""
        ...

    @property
    def links(self) -> Links: ...

    def broker_name(self, node: str) -> str:
        """The Erlang node name, as the management API shows it."""
        ...

    def amqp_port(self, node: str) -> int:
        """The loopback port of the node's AMQP listener."""
        ...

    def api(self, node: str) -> ManagementApi: ...

    def process(self, node: str) -> ProcessState: ...

    def state(self, node: str) -> NodeState:
        """``up``: serves AMQP; ``paused``: the process lives and its listener is closed (also while
        booting); ``suspended``: stopped by a signal; ``down``: no process."""
        ...

    def kill(self, node: str) -> None:
        """SIGKILL. Returns when the process is gone."""
        ...

    def stop(self, node: str) -> None:
        """Graceful shutdown. Returns when the process is gone."""
        ...

    def start(self, node: str) -> None:
        """Start a node that was killed or stopped; returns at once, see ``state``."""
        ...

    def pause(self, node: str) -> None: ...

    def resume(self, node: str) -> None: ...

    def logs(self) -> Mapping[str, Path]:
        """The log file of every node."""
        ...
