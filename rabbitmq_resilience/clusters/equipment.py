"""What nodes are given before they start so that a fault can act on it later, as on proxies, or a load can use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Equipment:
    """``disks``: the nodes whose data has a volume of its own, and its size in bytes; ``clocks``: the nodes whose clock
    can be turned. All others have the disk and the clock of their machine. ``plugins``: what every broker has enabled
    beside what it always has."""

    disks: Mapping[str, int] = field(default_factory=dict)
    clocks: frozenset[str] = frozenset()
    plugins: frozenset[str] = frozenset()

    def __or__(self, other: Equipment) -> Equipment:
        """Both; of two disks of a node the larger."""
        nodes = self.disks.keys() | other.disks.keys()
        disks = {node: max(self.disks.get(node, 0), other.disks.get(node, 0)) for node in nodes}
        return Equipment(disks, self.clocks | other.clocks, self.plugins | other.plugins)


NONE = Equipment()
