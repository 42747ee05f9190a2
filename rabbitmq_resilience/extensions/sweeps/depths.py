"""Draw how many messages queues held over time: a panel for each cell, all with the same axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rabbitmq_resilience.extensions.sweeps.results import Depth
from rabbitmq_resilience.extensions.sweeps.sweep_summary import CellRow

WIDTH, HEIGHT = 260, 90


@dataclass(frozen=True)
class DepthPanel:
    """The drawing of one cell.

    ``runs``: points of SVG polylines, interrupted during gaps of the samples. ``chaos_x``: where the chaos phase
    begins."""

    title: str
    runs: Sequence[str]
    chaos_x: float


@dataclass(frozen=True)
class Depths:
    """The panels of all cells and their common axes.

    ``top``: the number of messages at the upper edge; the lower edge is 0. ``from_s``, ``to_s``: the times of the left
    and the right edge, from the end of the steady phase."""

    top: int
    from_s: float
    to_s: float
    panels: Sequence[DepthPanel]


def depths(found: Sequence[CellRow]) -> Depths | None:
    """Return the panels of all cells that have samples; None if there are none."""
    every = [moment for row in found for line in row.lines for moment in line.depth]
    if not every:
        return None
    from_s, to_s = min(0.0, *(s for s, _ in every)), max(0.1, *(s for s, _ in every))
    top = max(1, *(held or 0 for _, held in every))

    def drawn(moments: Sequence[Depth]) -> list[str]:
        """Return a line for each stretch of time without a gap."""
        lines: list[list[str]] = [[]]
        for s, held in moments:
            if held is None:
                lines.append([])
            else:
                lines[-1].append(f"{WIDTH * (s - from_s) / (to_s - from_s):.1f},{HEIGHT * (1 - held / top):.1f}")
        return [" ".join(points) for points in lines if points]

    panels = [
        DepthPanel(
            ", ".join(f"{axis} {label}" for axis, label in row.labels.items()),
            [points for line in row.lines for points in drawn(line.depth)],
            WIDTH * -from_s / (to_s - from_s),
        )
        for row in found
    ]
    return Depths(top, from_s, to_s, [panel for panel in panels if panel.runs])
