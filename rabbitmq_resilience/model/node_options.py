"""Describe what nodes get before they start so that a fault or a load can use it later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class NodeOptions:
    """Options of the nodes of a cluster. ``disks``: {node: size in bytes} for nodes whose data has its own volume.
    ``clocks``: the nodes whose clock can be turned. All other nodes use the disk and clock of their machine.
    ``plugins``: plugins that every broker enables in addition to the usual ones. ``preloaded``: the nodes whose calls
    to their disk pass through a library that can let them fail (``sut.preload``)."""

    disks: Mapping[str, int] = field(default_factory=dict)
    clocks: frozenset[str] = frozenset()
    plugins: frozenset[str] = frozenset()
    preloaded: frozenset[str] = frozenset()

    def __or__(self, other: NodeOptions) -> NodeOptions:
        """Return the union of both. If both give a node a disk, the larger size counts."""
        nodes = self.disks.keys() | other.disks.keys()
        disks = {node: max(self.disks.get(node, 0), other.disks.get(node, 0)) for node in nodes}
        return NodeOptions(
            disks, self.clocks | other.clocks, self.plugins | other.plugins, self.preloaded | other.preloaded
        )


NONE = NodeOptions()
