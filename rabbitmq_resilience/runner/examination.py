"""Read the record of a run, and find what is missing or wrong in its files, before it is judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.event_log import examine_events
from rabbitmq_resilience.history.events import Event, PhaseEvent
from rabbitmq_resilience.history.expected_record import Recorded
from rabbitmq_resilience.history.history import HistoryError, files_of
from rabbitmq_resilience.history.manifest import Manifest, changes
from rabbitmq_resilience.history.metrics import METRICS_FILE, check_metrics
from rabbitmq_resilience.history.recorded_alerts import ALERTS_FILE
from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.workload.accounts import read_accounts
from rabbitmq_resilience.workload.load import LOAD_FILE
from rabbitmq_resilience.workload.settlement import settle


def recorded_history(run: RunDirectory, scenario: Scenario) -> History:
    """Return the history of a run, with a description of what the record must hold.

    If the run was broken off, settle the open messages of killed publishers first. Damaged files raise no error:
    problems are in ``recorded.troubles``.
    """
    troubles: list[str] = []
    recorded = Recorded(complete=False, steps=tuple(step.fault for step in scenario.schedule))
    with _collected(troubles):
        recorded = replace(recorded, complete=bool(Manifest.read(run.path).files))
        troubles += changes(run.path)
    events = _events(run, troubles)
    if _ended(events) or (run.history / LOAD_FILE).exists():  # a run may end before its load begins
        with _collected(troubles):
            if not recorded.complete:
                settle(run.history)
            recorded = replace(recorded, accounts=tuple(read_accounts(run.history)))
            Routes.read(run.history)
    with _collected(troubles):
        if run.metrics_file.exists() and not recorded.complete:  # otherwise its checksum shows damage
            check_metrics(run.metrics_file)
        elif scenario.metrics and _ended(events) and not run.metrics_file.exists() and not run.scraped.exists():
            troubles.append(f"{METRICS_FILE} is missing")
    with _collected(troubles):
        if run.alerts() is None and scenario.rule_files and _ended(events) and not run.scraped.exists():
            troubles.append(f"{ALERTS_FILE} is missing")
    recorded = replace(recorded, troubles=tuple(troubles))
    return History(run.owed, run.deliveries, events, run.metrics, recorded, run.alerts)


def _events(run: RunDirectory, troubles: list[str]) -> list[Event]:
    events: list[Event] = []
    with _collected(troubles):
        if not run.events_file.exists():
            troubles.append(f"{run.events_file.name} is missing")
        files = [run.events_file, *files_of(run.history, ".jsonl")]
        events, found = examine_events(*files)
        troubles += found
    return events


def _ended(events: Sequence[Event]) -> bool:
    return any(isinstance(event, PhaseEvent) and event.phase == "end" for event in events)


@contextmanager
def _collected(troubles: list[str]) -> Iterator[None]:
    """Append any error of the block to ``troubles``, as reading damaged files may raise any exception."""
    try:
        yield
    except HistoryError as error:
        troubles.append(str(error))
    except Exception as error:
        troubles.append(f"the record cannot be read: {type(error).__name__}: {error}")
