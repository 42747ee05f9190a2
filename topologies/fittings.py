"""What nodes are given before they start so that a fault can act on it later, as proxies are on links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fittings:
    """``disks``: the nodes whose data has a volume of its own, and its size in bytes; ``clocks``: the nodes whose clock
    can be turned. All others have the disk and the clock of their machine."""

    disks: Mapping[str, int] = field(default_factory=dict)
    clocks: frozenset[str] = frozenset()

    def __or__(self, other: Fittings) -> Fittings:
        """Both; of two disks of a node the larger."""
        nodes = self.disks.keys() | other.disks.keys()
        disks = {node: max(self.disks.get(node, 0), other.disks.get(node, 0)) for node in nodes}
        return Fittings(disks, self.clocks | other.clocks)


NONE = Fittings()
