"""Load the history of a recorded run, so that the run can be judged again."""

from __future__ import annotations

from pathlib import Path

from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.run_directory import RunDirectory


def load_history(run_directory: Path) -> History:
    """Return the history under ``run_directory``. Its messages, events, metrics and alerts are read when a checker asks
    for them; no broker is needed.

    Raise ``RunDirectoryError`` if the directory lacks one of them.
    """
    run = RunDirectory.open(run_directory)
    return History(run.owed, run.deliveries, run.events(), run.metrics, alerts=run.alerts)
