"""The history of a run that was recorded, so that it can be judged again."""

from __future__ import annotations

from pathlib import Path

from rabbitmq_resilience.invariants.verdict import History
from rabbitmq_resilience.record.run_directory import RunDirectory


def load_history(run_directory: Path) -> History:
    """The messages, events, metrics and alerts under ``run_directory``, read when a checker asks; needs no broker.

    Raises ``RunDirectoryError`` if the directory lacks one of them.
    """
    run = RunDirectory.open(run_directory)
    return History(run.owed, run.deliveries, run.events(), run.metrics, alerts=run.alerts)
