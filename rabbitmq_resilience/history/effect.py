"""Define what a fault does to the cluster, as its events record it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rabbitmq_resilience.model.links import Link


@dataclass(frozen=True)
class Effect:
    """What a fault does to the cluster while it lasts; checkers reason on this alone."""

    nodes_down: tuple[str, ...] = ()
    #: Links are directed, and an end may be a client (``publisher:0``).
    links_cut: frozenset[Link] = frozenset()
    links_slow: frozenset[Link] = frozenset()
    #: The most by which a message over a slow link is delayed; 0 if that is little or not known.
    slow_s: float = 0.0
    #: Nodes that lack CPU or memory, so that other nodes may take them for dead at any time.
    nodes_starved: tuple[str, ...] = ()
    #: Connections over the cut links die at once, instead of going silent.
    sudden: bool = False
    #: The links are cut and whole in turns, or the nodes are away and back in turns.
    intermittent: bool = False
    #: Nodes with an alarm of a resource ("memory" or "disk"): publishers are blocked on every node.
    nodes_alarmed: tuple[str, ...] = ()
    alarm: str = ""
    #: The step is an operation, not a fault: it takes nothing away, so there is nothing to heal.
    operation: bool = False
    #: The lasting change: a version or an image of the broker, or a feature flag.
    becomes: str = ""

    def as_fields(self) -> dict[str, Any]:
        """Return the effect as the fields of an event."""
        return {
            "nodes_down": list(self.nodes_down),
            "links_cut": sorted(map(list, self.links_cut)),
            "links_slow": sorted(map(list, self.links_slow)),
            "slow_s": self.slow_s,
            "nodes_starved": list(self.nodes_starved),
            "sudden": self.sudden,
            "intermittent": self.intermittent,
            "nodes_alarmed": list(self.nodes_alarmed),
            "alarm": self.alarm,
            "operation": self.operation,
            **({"becomes": self.becomes} if self.becomes else {}),
        }

    @classmethod
    def of_fields(cls, recorded: Mapping[str, Any]) -> Self:
        """Build the effect from the fields of an event."""
        return cls(
            nodes_down=tuple(recorded.get("nodes_down") or ()),
            links_cut=frozenset(Link(*ends) for ends in recorded.get("links_cut") or ()),
            links_slow=frozenset(Link(*ends) for ends in recorded.get("links_slow") or ()),
            slow_s=float(recorded.get("slow_s") or 0),
            nodes_starved=tuple(recorded.get("nodes_starved") or ()),
            sudden=bool(recorded.get("sudden")),
            intermittent=bool(recorded.get("intermittent")),
            nodes_alarmed=tuple(recorded.get("nodes_alarmed") or ()),
            alarm=recorded.get("alarm") or "",
            operation=bool(recorded.get("operation")),
            becomes=recorded.get("becomes") or "",
        )
