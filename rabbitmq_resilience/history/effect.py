"""Define what a fault does to the cluster, as its events record it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from rabbitmq_resilience.model.links import Link


@dataclass(frozen=True)
class Effect:
    """What a fault does to the cluster while it lasts; checkers reason on this alone.

    Each field is written to events and read from them by its name and the type of its default."""

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
    #: Nodes of which a stored file was damaged while they were away.
    nodes_damaged: tuple[str, ...] = ()
    #: Whose file that was: of "quorum" queues, or of "classic" ones, which all others are. Empty: of any.
    type_damaged: str = ""
    #: Nodes that lost all that they had stored.
    nodes_emptied: tuple[str, ...] = ()
    #: The queue that an operator deleted, until it is declared again.
    queue_deleted: str = ""
    #: All stable feature flags are enabled in the end.
    feature_flags: bool = False
    #: The nodes that are down may serve all the same, for a while or all the time.
    nodes_may_serve: bool = False

    def as_fields(self) -> dict[str, Any]:
        """Return the effect as the fields of an event."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: _written(value) for name, value in values.items() if value or name not in _LEFT_OUT_IF_EMPTY}

    @classmethod
    def of_fields(cls, recorded: Mapping[str, Any]) -> Self:
        """Build the effect from the fields of an event."""
        read = {f.name: _READ[type(f.default)](value) for f in fields(cls) if (value := recorded.get(f.name))}
        return cls(**read)


#: Fields that events have only if they are not empty: records had no such field once.
_LEFT_OUT_IF_EMPTY = frozenset(
    {"becomes", "nodes_damaged", "type_damaged", "nodes_emptied", "queue_deleted", "feature_flags", "nodes_may_serve"}
)

#: How to read a recorded value, by the type of the field's default.
_READ: Mapping[type, Callable[[Any], Any]] = {
    tuple: tuple,
    frozenset: lambda links: frozenset(Link(*ends) for ends in links),
    float: float,
    bool: bool,
    str: lambda text: text,
}


def _written(value: Any) -> Any:
    """Return a value of an effect as JSON has it."""
    if isinstance(value, frozenset):
        return sorted(map(list, value))
    return list(value) if isinstance(value, tuple) else value
