"""The history of a run that was recorded, so that it can be judged again."""

from __future__ import annotations

from pathlib import Path

from invariants.verdict import History
from reports.run_directory import RunDirectory


def load_history(run_directory: Path) -> History:
    """The messages, events and metrics under ``run_directory``, read when a checker asks; needs no broker.

    Raises ``RunDirectoryError`` if the directory lacks one of them.
    """
    run = RunDirectory.open(run_directory)
    return History(run.publishes, run.deliveries, run.events(), run.metrics)
