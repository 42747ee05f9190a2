"""What a fault does to the cluster, as its events tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rabbitmq_resilience.clusters.spec import Link

#: Steps that were operations before their effects said so.
OPERATIONS_OF_OLD = frozenset({"rebalance"})


@dataclass(frozen=True)
class Effect:
    """What a fault does to the cluster while it lasts; checkers reason on this alone."""

    nodes_down: tuple[str, ...] = ()
    #: Links are directed, and an end may be a client (``publisher:0``).
    links_cut: frozenset[Link] = frozenset()
    links_slow: frozenset[Link] = frozenset()
    #: By how much a message over one of these is later, at most; 0 where that is little or not known.
    slow_s: float = 0.0
    #: Nodes that lack CPU or memory, so that others may take them for dead at any time.
    nodes_starved: tuple[str, ...] = ()
    #: Connections over the cut links die at once, rather than being silent.
    sudden: bool = False
    #: The links are cut and whole in turns, or the nodes away and back.
    intermittent: bool = False
    #: Nodes that have an alarm of a resource ("memory" or "disk"): publishers are blocked on every node.
    nodes_alarmed: tuple[str, ...] = ()
    alarm: str = ""
    #: It is no fault but what operators do: it takes nothing away, so that there is nothing to heal.
    operation: bool = False
    #: What the cluster is afterwards, for good: a version or an image of the broker, or a feature flag.
    becomes: str = ""

    def as_fields(self) -> dict[str, Any]:
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
    def of_fields(cls, told: Mapping[str, Any], *, fault: str) -> Self:
        """``fault`` tells what early records leave out."""
        return cls(
            nodes_down=tuple(told.get("nodes_down") or ()),
            links_cut=frozenset(Link(*ends) for ends in told.get("links_cut") or ()),
            links_slow=frozenset(Link(*ends) for ends in told.get("links_slow") or ()),
            slow_s=float(told.get("slow_s") or 0),
            nodes_starved=tuple(told.get("nodes_starved") or ()),
            sudden=bool(told.get("sudden")),
            intermittent=bool(told.get("intermittent")),
            nodes_alarmed=tuple(told.get("nodes_alarmed") or ()),
            alarm=told.get("alarm") or "",
            operation=bool(told.get("operation", fault in OPERATIONS_OF_OLD)),
            becomes=told.get("becomes") or "",
        )
