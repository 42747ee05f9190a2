"""Name the nodes and zones of a fault file: zones by letters, nodes by zone and number."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from rabbitmq_resilience.extensions.incidents.occurrences import Evidence, EvidenceError

#: Clusters with incidents are rarely smaller: if the evidence has fewer nodes, logs of some are probably missing.
NODES_MIN = 3

_ZONE = re.compile(r"[a-z]{1,8}")
_NAMED = re.compile(r"([a-z]{1,8})([1-9]\d*)")


@dataclass(frozen=True)
class NodeNames:
    """The zones of a cluster.

    ``zones``: the nodes of each zone, by their own names, in order. ``unseen``: a zone for nodes that the cluster must
    have but of which there is no evidence.
    """

    zones: Mapping[str, tuple[str, ...]]
    is_guess: bool
    unseen: str | None

    @property
    def sizes(self) -> Mapping[str, int]:
        missing = NODES_MIN - sum(len(nodes) for nodes in self.zones.values())
        return {zone: len(nodes) for zone, nodes in self.zones.items()} | (
            {self.unseen: missing} if self.unseen else {}
        )

    @property
    def called(self) -> Mapping[str, str]:
        """Return the name in the fault file of each node."""
        return {node: f"{zone}{i}" for zone, nodes in self.zones.items() for i, node in enumerate(nodes, 1)}

    def target(self, nodes: Collection[str]) -> str | None:
        """Return the one target that names exactly these nodes; None if there is none."""
        if len(nodes) == 1:
            return self.called[next(iter(nodes))]
        zone = next((zone for zone, members in self.zones.items() if set(members) == set(nodes)), None)
        return f"zone:{zone}" if zone and zone != self.unseen else None

    def targets(self, nodes: Collection[str]) -> tuple[str, ...]:
        """Return as few targets as possible that together name these nodes."""
        left, found = set(nodes), []
        for zone, members in self.zones.items():
            if len(members) > 1 and set(members) <= left:
                found.append(f"zone:{zone}")
                left -= set(members)
        return (*found, *sorted(self.called[node] for node in left))


def layout(evidence: Evidence, zones: Mapping[str, Sequence[str]]) -> NodeNames:
    """Return the zones of the evidence's nodes. Raise EvidenceError if ``zones`` name an unknown node.

    Zones come from ``zones``, which the user gives, else from the evidence, else from the nodes' names (a1, a2, b1).
    Otherwise they are a guess: nodes that were together on the smaller side of a cut share a zone, and every other node
    has its own.
    """
    given = {node: zone for zone, nodes in zones.items() for node in nodes} or dict(evidence.zones)
    if unknown := sorted(given.keys() - {*evidence.nodes}) if zones else []:
        known = ", ".join(evidence.nodes)
        raise EvidenceError(f"no evidence names {', '.join(unknown)}, which a zone has; nodes are {known}")
    by_name = _by_name(evidence.nodes) if not given else {}
    groups: dict[str, list[str]] = {}
    for node in evidence.nodes:
        label = given.get(node) or by_name.get(node) or _companions(node, evidence)
        groups.setdefault(label, []).append(node)
    free = iter(letter for letter in ascii_lowercase if letter not in groups)
    named = {
        label if _ZONE.fullmatch(label) and "\0" not in label else next(free): nodes for label, nodes in groups.items()
    }
    members = {zone: tuple(sorted(nodes)) for zone, nodes in named.items()}
    few = sum(map(len, members.values())) < NODES_MIN
    return NodeNames(members, is_guess=not given and not by_name, unseen=next(free) if few else None)


def _by_name(nodes: Sequence[str]) -> Mapping[str, str]:
    """Return the zone of each node, if all names are like ``a1`` and ``b2@host``, numbered from 1; else none."""
    found = {node: _NAMED.fullmatch(node.split("@")[0]) for node in nodes}
    named = {node: (match[1], int(match[2])) for node, match in found.items() if match}
    numbers: dict[str, list[int]] = {}
    for zone, number in named.values():
        numbers.setdefault(zone, []).append(number)
    whole = all(sorted(found) == list(range(1, len(found) + 1)) for found in numbers.values())
    return (
        {n: zone for n, (zone, _) in named.items()} if len(named) == len(nodes) and whole and len(numbers) > 1 else {}
    )


def _companions(node: str, evidence: Evidence) -> str:
    """Return a label that nodes share if they were always on the same smaller side of cuts."""
    sides = [side for h in evidence.occurrences if len(h.sides) > 1 for side in sorted(h.sides, key=len)[:-1]]
    mine = [side for side in sides if node in side and len(side) > 1]
    if not mine or any(len({*one} & {*other}) not in (0, len(one)) for one in sides for other in mine if len(one) > 1):
        return f"\0{node}"
    return "\0".join(sorted(mine[0]))
