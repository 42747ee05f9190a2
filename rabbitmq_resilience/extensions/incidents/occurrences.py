"""Hold what was found in evidence, before a fault file is made from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


class EvidenceError(Exception):
    """The evidence cannot be used; the text says where, and what would be right."""


@dataclass(frozen=True)
class Occurrence:
    """Something that happened to nodes or between them.

    ``fault`` is a name of the catalogue. ``sides`` has the nodes by their names in the evidence: one side if something
    happened to nodes, two or more if nodes were separated. ``begin`` and ``end`` are seconds since 1970; ``end`` is
    None if the evidence does not show it. ``fields`` are further fields of the step, ``notes`` are for people.
    """

    fault: str
    sides: tuple[frozenset[str], ...]
    begin: float
    end: float | None
    fields: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset().union(*self.sides)

    def covers(self, at: float, *, slack_s: float) -> bool:
        return self.begin - slack_s <= at and (self.end is None or at <= self.end + slack_s)


@dataclass(frozen=True)
class Evidence:
    """All that is known of an incident.

    ``zones``: the zone of each node for which the evidence has it. ``seen``: times and sentences with which a replay
    should be compared.
    """

    sources: tuple[str, ...]
    nodes: tuple[str, ...]
    occurrences: tuple[Occurrence, ...]
    zones: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[str, ...] = ()
    queue_types: tuple[str, ...] = ()
    partition_handling: str | None = None
    net_ticktime_s: float | None = None
    seen: tuple[tuple[float, str], ...] = ()
    notes: tuple[str, ...] = ()


def combined(parts: Sequence[Evidence]) -> Evidence:
    """Return all parts as one; earlier parts take precedence over later ones.

    An occurrence that overlaps one of an earlier part, of the same fault and resource and on one of the same nodes,
    counts as the same and is left out. If nodes were separated, those of the smaller side count.
    """
    occurrences: list[Occurrence] = []
    for part in parts:
        occurrences += [new for new in part.occurrences if not any(_same(new, known) for known in occurrences)]
    return Evidence(
        sources=_each(part.sources for part in parts),
        nodes=_each(part.nodes for part in parts),
        occurrences=tuple(sorted(occurrences, key=lambda occurrence: occurrence.begin)),
        zones={node: zone for part in reversed(parts) for node, zone in part.zones.items()},
        versions=_each(part.versions for part in parts),
        queue_types=_each(part.queue_types for part in parts),
        partition_handling=next((part.partition_handling for part in parts if part.partition_handling), None),
        net_ticktime_s=next((part.net_ticktime_s for part in parts if part.net_ticktime_s), None),
        seen=tuple(sorted(one for part in parts for one in part.seen)),
        notes=_each(part.notes for part in parts),
    )


#: People write times to the minute: what has no end in one part may begin that much later in another.
MINUTE_S = 60.0


def _same(one: Occurrence, other: Occurrence) -> bool:
    ends = [each.begin + MINUTE_S if each.end is None else each.end for each in (one, other)]
    together = one.begin <= ends[1] and other.begin <= ends[0]
    alike = one.fault == other.fault and one.fields.get("resource") == other.fields.get("resource")
    return alike and together and bool(_smaller_side(one) & _smaller_side(other))


def _smaller_side(occurrence: Occurrence) -> frozenset[str]:
    """Return the nodes of the smallest side; of all sides that are as small."""
    least = min(map(len, occurrence.sides), default=0)
    return frozenset().union(*(side for side in occurrence.sides if len(side) == least))


def _each(groups: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return every value once, in the order of first occurrence."""
    return tuple(dict.fromkeys(value for group in groups for value in group))
