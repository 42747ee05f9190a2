"""Check that a record is complete: nothing that a worker observed, and no event, is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rabbitmq_resilience.checkers.application_connections import connections_of
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.message_ledger import NO_ROW, Ledger, Messages, ledger_of
from rabbitmq_resilience.checkers.possible_times import impossible_times
from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Finding, History, Scope, Verdict
from rabbitmq_resilience.history.events import (
    ClusterEvent,
    DrainEvent,
    FaultEvent,
    LoadEvent,
    PhaseEvent,
    QueuesEvent,
    RecoveryEvent,
    WorkerEvent,
)
from rabbitmq_resilience.history.expected_record import Account, Recorded
from rabbitmq_resilience.history.history import Outcome

PHASES = ("steady", "chaos", "recovery", "drain", "end")
#: A run that was played to its end has at least one event of each of these kinds.
EXPECTED_KINDS = (ClusterEvent, QueuesEvent, LoadEvent, RecoveryEvent, DrainEvent)

#: The states of a step in their order, one letter each. A proof comes before healing, or after it if necessary. A step
#: that cannot be injected is healed all the same. A step that cannot be healed has no proof.
_LETTERS = {
    "skipped": "s",
    "injecting": "i",
    "injected": "j",
    "proven": "p",
    "unproven": "u",
    "healing": "h",
    "healed": "e",
    "heal_proven": "q",
    "heal_unproven": "n",
}
_STEP = re.compile(r"s|i(u|j[pu]?)h(n|e[pu]?[qn])")


@dataclass(frozen=True)
class HistoryWhole:
    """Every worker stopped in order or was killed on purpose, and recorded all that it counted. Every step of the
    schedule and every phase has its events. No message has impossible times, and no file was damaged since.

    For a history that was not recorded, only those times and the workers' own reports of their end are checked.
    """

    scope: ClassVar[Scope] = "run"

    def check(self, history: History) -> Finding:
        facts, recorded = history.facts, history.recorded
        lives = incarnations(facts)
        problems = list(recorded.troubles) if recorded is not None else []
        problems += _unread(facts)
        if not problems:
            problems += _problems_of_ends(lives)
            problems += impossible_times(history)
            problems += _problems_of_record(history, recorded, lives) if recorded is not None else ()
        numbers = {"workers": len(lives)}
        if not problems:
            return Finding(Verdict.VALID, f"{counted(len(lives), 'worker')} recorded all that they saw", numbers)
        more = len(problems) - EXAMPLES_MAX
        summary = "; ".join(problems[:EXAMPLES_MAX]) + (f"; and {more} more" if more > 0 else "")
        return Finding(Verdict.UNKNOWN, summary, numbers, tuple(problems[:EXAMPLES_MAX]))


@dataclass
class Life:
    """One process of a worker: whether it reported its start, and how it ended (stopped, killed, hung, or '')."""

    started: bool = False
    end: str = ""


def incarnations(facts: Facts) -> Mapping[str, Mapping[int, Life]]:
    """Return the lives of each worker, by their number."""
    found: dict[str, dict[int, Life]] = {}
    for event in facts.of_kind(WorkerEvent):
        life = found.setdefault(event.worker, {}).setdefault(event.life, Life())
        if event.event == "started":
            life.started = True
        elif event.event in ("stopped", "killed", "hung"):
            life.end = event.event
    return found


def _unread(facts: Facts) -> Iterator[str]:
    """Yield the connections of an application that the tap could not read to their end."""
    for connection in connections_of(facts):
        if connection.unreadable:
            yield f"a connection of {connection.process} to {connection.node} was not read: {connection.unreadable}"


def _problems_of_ends(lives: Mapping[str, Mapping[int, Life]]) -> Iterator[str]:
    for worker, of_worker in lives.items():
        for life in of_worker.values():
            if life.end == "hung":
                yield f"{worker} hung at the end, and had to be killed"
            elif not life.end:
                yield f"{worker} ended without reporting its end"


def _problems_of_record(history: History, recorded: Recorded, lives: Mapping[str, Mapping[int, Life]]) -> Iterator[str]:
    ledger = ledger_of(history)
    if "end" in history.facts.phases:
        if not recorded.complete:
            yield "the run was broken off before its record was complete: manifest.json names no files"
        yield from _problems_of_events(history.facts)
        yield from _problems_of_steps(history.facts, recorded.steps)
    known = {account.worker for account in recorded.accounts}
    hung = {worker for worker, of_worker in lives.items() if any(life.end == "hung" for life in of_worker.values())}
    strange = lives.keys() - known - hung  # a worker that only keeps connections may hang, too
    yield from (f"{worker} is no worker of the load, and has events" for worker in sorted(strange))
    for account in recorded.accounts:
        of_worker = lives.get(account.worker, {})
        yield from _problems_of_streams(account, of_worker)
        kills = sum(life.end in ("killed", "hung") for life in of_worker.values())
        if account.publishes:
            yield from _problems_of_publisher(account, ledger.messages.get(account.index, Messages()), kills)
        else:
            yield from _problems_of_count(account, ledger.received_by.get(account.index, 0), kills)
    yield from _problems_of_time(history.facts, ledger)


def _problems_of_events(facts: Facts) -> Iterator[str]:
    phases = tuple(event.phase for event in facts.of_kind(PhaseEvent))
    if phases != PHASES:
        yield f"the events are of the phases {', '.join(phases)}; they should be {', '.join(PHASES)}"
    for kind in EXPECTED_KINDS:
        if not any(facts.of_kind(kind)):
            yield f"there is no event of the kind {kind.kind}"


def _problems_of_steps(facts: Facts, steps: Sequence[str]) -> Iterator[str]:
    by_step: dict[int, list[FaultEvent]] = {}
    for event in facts.of_kind(FaultEvent):
        by_step.setdefault(event.step, []).append(event)
    for number, fault in enumerate(steps):
        events = by_step.pop(number, [])
        states = [event.state for event in events]
        if not _STEP.fullmatch("".join(_LETTERS.get(state, "?") for state in states)):
            yield f"the events of step {number} ({fault}) are not those of a step: {', '.join(states) or 'none'}"
        elif {event.fault for event in events} != {fault}:
            yield f"step {number} is {fault} in the schedule, and {events[0].fault} in the events"
        elif events[-1].t_us > facts.phases["end"]:
            yield f"step {number} ({fault}) has events after the end of the run"
    yield from (f"the schedule has no step {number}, and events refer to it" for number in by_step)


def _problems_of_streams(account: Account, lives: Mapping[int, Life]) -> Iterator[str]:
    if not any(life.started for life in lives.values()):
        yield f"there is no event for the start of {account.worker}: its events are missing"
    for number, life in lives.items():
        there, ended = number in account.streams, account.streams.get(number, False)
        if life.started and not there:
            yield f"the stream of {account.worker}, life {number}, is missing"
        elif life.end == "stopped" and there and not ended:
            yield f"the stream of {account.worker}, life {number}, has no end mark, though it stopped in order"
    yield from (
        f"{account.worker} has a stream of a life {number} that no event mentions"
        for number in account.streams
        if number not in lives
    )


def _problems_of_count(account: Account, rows: int, kills: int) -> Iterator[str]:
    """Yield a problem if rows are missing, or too many. A life that is killed may write rows that it does not count."""
    if not account.recorded <= rows <= account.recorded + kills * account.rows_a_write:
        yield f"{account.worker} wrote {account.recorded} rows, and {rows} are there"


def _problems_of_publisher(account: Account, messages: Messages, kills: int) -> Iterator[str]:
    """Yield the problems of a publisher's rows. Each message that was sent has one row. Rows of unknown outcome were
    added for publishers that were killed."""
    worker, has_row = account.worker, messages.outcome != NO_ROW
    rows = int(np.count_nonzero(has_row))
    missing = account.sent - int(np.count_nonzero(has_row[: account.sent]))
    if missing:
        yield f"{worker} sent {account.sent} messages, and {missing} of them are not recorded"
    if has_row[account.sent :].any():
        yield f"{worker} sent {account.sent} messages, and there are rows of later ones"
    if sum(int(np.count_nonzero(lane.there)) for lane in messages.lanes) < messages.rows:
        yield f"there are several rows of one message of {worker}"
    if account.settled > kills * account.rows_a_write:
        yield f"{account.settled} messages of {worker} are said to be unknown, more than may be: it was killed {kills}x"
    yield from _problems_of_count(account, rows - account.settled, kills)
    if not kills:
        yield from _problems_of_outcomes(account, messages)


def _problems_of_outcomes(account: Account, messages: Messages) -> Iterator[str]:
    counted = {
        "confirmed": (account.confirmed, [Outcome.CONFIRMED]),
        "refused": (account.refused, [Outcome.NACKED, Outcome.RETURNED]),
        "unknown": (account.unknown, [Outcome.UNKNOWN]),
    }
    for name, (count, outcomes) in counted.items():
        rows = int(np.count_nonzero(np.isin(messages.outcome, outcomes)))
        if rows != count:
            yield f"{account.worker} counted {count} messages as {name}, and {rows} are recorded so"


def _problems_of_time(facts: Facts, ledger: Ledger) -> Iterator[str]:
    first_us, last_us = ledger.span_us
    if first_us > last_us:
        return
    if not facts.events or first_us < facts.events[0].t_us or last_us > facts.events[-1].t_us:
        yield "some messages are of another time than the events: the streams are of another run, or damaged"
