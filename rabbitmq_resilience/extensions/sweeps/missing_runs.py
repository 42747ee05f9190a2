"""Find how many runs of a sweep were not played: a result of a part may say something else than that of the whole."""

from __future__ import annotations

from rabbitmq_resilience.extensions.sweeps.cells import choices
from rabbitmq_resilience.extensions.sweeps.results import Results
from rabbitmq_resilience.extensions.sweeps.sweep_model import SweepSpec


def missing_runs(results: Results, spec: SweepSpec) -> str:
    """Return, in words, how many of the runs that the sweep file states were played; empty if all were.

    Cells that are played with ``-m whole_grid`` only count once one of them was played."""
    cells = {frozenset(choice.labels.items()): choice.here for choice in choices(spec)}
    played = {(line.round, frozenset(line.labels.items())) for line in results.lines if not line.is_played_again}
    is_whole = any(not cells.get(labels, True) for _, labels in played)
    of_cells = [labels for labels, here in cells.items() if here or is_whole]
    wanted = {(number, labels) for labels in of_cells for number in range(1, spec.repeats + 1)}
    count = len(wanted & played)
    return f"only {count} of {len(wanted)} runs were played until now" if count < len(wanted) else ""
