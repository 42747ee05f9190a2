"""What a cluster looks like, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

NODES_MIN = 3
NODES_MAX = 7

#: Short, so that a test need not wait a minute for a broker to notice.
DEFAULT_NET_TICKTIME_S = 5
#: RabbitMQ's own default for ``net_ticktime``, chosen by ``--production-timing``.
PRODUCTION_NET_TICKTIME_S = 60

ZoneName = Annotated[str, StringConstraints(pattern=r"^[a-z]{1,8}$")]
PartitionHandling = Literal["pause_minority", "pause_if_all_down", "autoheal", "ignore"]


class Spec(BaseModel):
    """Base of every value that a fault file can state: frozen, and no unknown field is accepted."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Node(NamedTuple):
    """One broker: ``name`` is its zone's name and a number (``a1``), unique in its topology."""

    name: str
    zone: str


def is_client(name: str) -> bool:
    """Whether an end of a link is a client, by role and number from 0 (``publisher:0``), and no node."""
    return ":" in name


class Link(NamedTuple):
    """One *directed* path between two brokers, by node name, or between a client and a broker."""

    source: str
    target: str

    @property
    def back(self) -> Link:
        """The other direction."""
        return Link(self.target, self.source)

    @property
    def client(self) -> str | None:
        return next(filter(is_client, self), None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The ends that are brokers; the last is the one that answers a probe over the link."""
        return tuple(end for end in self if not is_client(end))

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


def _as_tuple(value: Any) -> Any:
    """A topology is a plain mapping when it is validated, and a strict tuple takes no list."""
    return tuple(value) if isinstance(value, list) else value


class PauseIfAllDown(Spec):
    """A node pauses while it reaches none of ``nodes``; ``recover`` says what follows a split that left some of them
    on each side (``cluster_partition_handling.pause_if_all_down`` in rabbitmq.conf)."""

    nodes: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(_as_tuple)]
    recover: Literal["autoheal", "ignore"] = "autoheal"


class Topology(Spec):
    """Frozen description of nodes, zones and broker configuration.

    ``zones`` maps each zone to its number of nodes; node names follow from it (``{"a": 2, "b": 1}``
    gives ``a1 a2 b1``). The three files are the user's own broker configuration; what the harness
    must own (names, ports, cookie, data folders) is added to them. ``pause_if_all_down`` goes with the
    ``partition_handling`` of that name, and only with it.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
    zones: Annotated[dict[ZoneName, Annotated[int, Field(ge=1, le=NODES_MAX)]], Field(min_length=1)]
    partition_handling: PartitionHandling = "pause_minority"
    pause_if_all_down: PauseIfAllDown | None = None
    net_ticktime_s: Annotated[int, Field(ge=1, le=3600)] = DEFAULT_NET_TICKTIME_S
    rabbitmq_conf: Path | None = None
    advanced_config: Path | None = None
    definitions: Path | None = None

    @model_validator(mode="after")
    def _size(self) -> Self:
        size = sum(self.zones.values())
        if not NODES_MIN <= size <= NODES_MAX:
            raise ValueError(f"a cluster has {NODES_MIN} to {NODES_MAX} nodes, the zones have {size}")
        return self

    @model_validator(mode="after")
    def _preferred(self) -> Self:
        if (self.partition_handling == "pause_if_all_down") != (self.pause_if_all_down is not None):
            raise ValueError(
                "partition_handling: pause_if_all_down needs pause_if_all_down: {nodes: [...]}, no other does"
            )
        unknown = sorted(set(self.pause_if_all_down.nodes if self.pause_if_all_down else ()) - set(self.node_names))
        if unknown:
            raise ValueError(
                f"pause_if_all_down.nodes: no node {', '.join(unknown)}; there are {', '.join(self.node_names)}"
            )
        return self

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(Node(f"{zone}{i}", zone) for zone, n in self.zones.items() for i in range(1, n + 1))

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    @property
    def links(self) -> frozenset[Link]:
        """Every directed link between two different nodes."""
        names = self.node_names
        return frozenset(Link(a, b) for a in names for b in names if a != b)

    def zone_of(self, node: str) -> str:
        return next(n.zone for n in self.nodes if n.name == node)
