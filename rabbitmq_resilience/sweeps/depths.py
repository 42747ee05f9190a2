"""What queues held over time: a panel for each cell, all with the same axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rabbitmq_resilience.sweeps.summary import Row

WIDTH, HEIGHT = 260, 90


@dataclass(frozen=True)
class DepthPanel:
    """``runs``: lines as SVG has them. ``chaos_x``: where the steady phase ends."""

    title: str
    runs: Sequence[str]
    chaos_x: float


@dataclass(frozen=True)
class Depths:
    """``top``: what the upper edge stands for; the lower one is 0. ``from_s``, ``to_s``: the left and the right edge,
    from the end of the steady phase."""

    top: int
    from_s: float
    to_s: float
    panels: Sequence[DepthPanel]


def depths(found: Sequence[Row]) -> Depths | None:
    """None where nobody told."""
    every = [moment for row in found for line in row.lines for moment in line.depth]
    if not every:
        return None
    from_s, to_s = min(0.0, *(s for s, _ in every)), max(0.1, *(s for s, _ in every))
    top = max(1, *(held for _, held in every))

    def drawn(moments: Sequence[tuple[float, int]]) -> str:
        points = [(WIDTH * (s - from_s) / (to_s - from_s), HEIGHT * (1 - held / top)) for s, held in moments]
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)

    panels = [
        DepthPanel(
            ", ".join(f"{axis} {label}" for axis, label in row.labels.items()),
            [drawn(line.depth) for line in row.lines if line.depth],
            WIDTH * -from_s / (to_s - from_s),
        )
        for row in found
    ]
    return Depths(top, from_s, to_s, [panel for panel in panels if panel.runs])
