"""Convert the cases of an application as a run does, and judge them by the checkers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.event_log import EventLog, read_events
from rabbitmq_resilience.history.events import ApplicationEvent, OvertakenEvent, UncommittedEvent, WorkerEvent
from rabbitmq_resilience.history.history import DELIVERIES, PUBLISHES, Outcome, StreamReader
from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.tap.wire_history import EVENTS_FILE, WireWriter
from rabbitmq_resilience.workload.application_history import Application, ApplicationHistory
from rabbitmq_resilience.workload.application_queues import ApplicationQueues
from rabbitmq_resilience.workload.committed_work import CommittedWork
from rabbitmq_resilience.workload.delivery_order import DeliveryOrder
from rabbitmq_resilience.workload.matching import Bound, Router
from rabbitmq_resilience.workload.queues import QueuePlace
from rabbitmq_resilience.workload.wire_messages import WireMessages
from rabbitmq_resilience.workload.work_lines import COMMITTED, WorkLine, WorkOfProcess
from tests.invariants.literal import cluster, event, fault, history, load, node_states, phases, queues, us
from tests.invariants.references.application_played import (
    ASKED_S,
    BOUND,
    DRAINED_S,
    ENDED_S,
    FAULT_S,
    HEALED_S,
    KNOWN_S,
    NODES,
    PLACES,
    PROCESSES,
    SKIPPED,
    WITHIN_S,
    Case,
)
from tests.invariants.references.common import checked


@dataclass(frozen=True)
class Answer:
    """What is to be said of a case, to be compared."""

    lost: int
    broken: int
    refused: tuple[int, int]
    verdicts: tuple[tuple[str, str], ...]
    settled: tuple[int, ...]
    work: tuple[int, ...]
    order: tuple[int, ...]
    by_consumer: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        judged = ", ".join(f"{name} {verdict}" for name, verdict in self.verdicts)
        return f"{'lost' if self.lost else 'not lost'}, {judged}"


def listed_queues() -> ApplicationQueues:
    """Return the queues as the broker lists them."""
    router = Router({"all": ("fanout", None), "by_key": ("direct", None)}, [Bound(n, q, False, k) for n, k, q in BOUND])
    places = {name: QueuePlace(type="quorum", members=list(NODES), leader="a1") for name in PLACES}
    return ApplicationQueues(places, SKIPPED, router, frozenset({"all", "by_key"}), us(ASKED_S))


def found(case: Case) -> Answer:
    """Return what the conversion and the checkers say."""
    with tempfile.TemporaryDirectory() as name:
        return _found(case, Path(name))


def _found(case: Case, folder: Path) -> Answer:
    writer = WireWriter(folder)
    for row in case.rows:
        writer.add(row)
    writer.close()
    with EventLog(folder / EVENTS_FILE) as log:
        for at_s, connection, what, channel, fields in case.wire:
            log.record("wire", t_us=us(at_s), connection=connection, what=what, channel=channel, fields=dict(fields))
    own = [ApplicationEvent(t_us=us(at_s), process=name, event=what, life=life) for at_s, name, what, life in case.own]
    messages = WireMessages(folder)
    wire = messages.complete(asked_us=us(ENDED_S), drained_us=us(DRAINED_S))
    application = Application(
        instances=PROCESSES,
        nodes=NODES,
        queues=listed_queues(),
        known_us=us(KNOWN_S),
        drained_us=us(DRAINED_S),
        judges_plain=case.judged,
    )
    work = _work(case, messages)
    converted = ApplicationHistory(application, messages, wire, own)
    order = DeliveryOrder(messages, wire, listed_queues(), converted.skipped)
    use = converted.write(folder) | {"order": order.by_queue}
    for process, said in work.by_process().items():
        use["processes"][process]["work"] = said
    uncommitted = [UncommittedEvent(**fields) for fields in work.events()]
    overtaken = [OvertakenEvent(**fields) for fields in order.events()]
    looks = [
        look
        for look in node_states(unlike={"c1": [(*span, "down") for span in case.away]})
        if not us(case.unseen[0]) <= look.t_us < us(case.unseen[1])
    ]
    judged = _history(folder, use, [*looks, *wire, *own, *uncommitted, *overtaken])
    loss = checked("no_loss", judged)
    verdicts = {
        "settled": checked("settled", judged),
        "stays_up": checked("stays_up", judged),
        "committed": checked("committed", judged),
        "order": checked("order", judged),
        "consumers": checked("consumers", judged, within_s=WITHIN_S),
        "reconnects": checked("reconnects", judged, within_s=WITHIN_S),
    }
    settled = dict(verdicts["settled"].numbers)
    names = ("delivered", "automatic", "acknowledged", "returned", "unsettled")
    consumers = {of["consumer"]: name for name, of in use["processes"].items() if of["consumer"] is not None}
    counts: dict[str, int] = {}
    outcomes = [one for batch in _rows(folder, "publishes", PUBLISHES) for one in batch.column("outcome").to_pylist()]
    for batch in _rows(folder, "deliveries", DELIVERIES):
        for consumer in batch.column("consumer").to_pylist():
            counts[consumers[consumer]] = counts.get(consumers[consumer], 0) + 1
    return Answer(
        loss.numbers["lost"],
        loss.numbers["broken"],
        (outcomes.count(Outcome.NACKED), outcomes.count(Outcome.RETURNED)),
        tuple(sorted((name, str(finding.verdict)) for name, finding in verdicts.items())),
        tuple(settled[name] for name in names),
        tuple(verdicts["committed"].numbers[name] for name in ("acknowledged", "uncommitted", "early", "unmatched")),
        tuple(verdicts["order"].numbers[name] for name in ("judged", "shared", "equal", "overtaken")),
        tuple(sorted(counts.items())),
    )


def _work(case: Case, messages: WireMessages) -> CommittedWork:
    written = {process: WorkOfProcess() for process in PROCESSES}
    for process, identity, at_s in case.work:
        written[process].lines.append(WorkLine(COMMITTED, str(identity), at_s))
    written[PROCESSES[1]].unread = case.unread
    return CommittedWork(messages, written, int, drained_us=us(DRAINED_S), epoch_us=us(0))


def _rows(folder: Path, what: str, schema: Any) -> Iterator[Any]:
    for path in sorted(folder.glob(f"*.{what}.arrows")):
        yield from StreamReader(path, schema).batches()


def _history(folder: Path, use: Mapping[str, Any], events: Sequence[Any]) -> History:
    owed = Routes.read(folder).owed
    published = [row for batch in _rows(folder, "publishes", PUBLISHES) for row in owed(batch).to_pylist()]
    delivered = [row for batch in _rows(folder, "deliveries", DELIVERIES) for row in batch.to_pylist()]
    workers = [one for path in folder.glob("*er-*.jsonl") for one in read_events(path) if isinstance(one, WorkerEvent)]
    names = [name for name in PLACES if name not in use["skipped"]]
    given = [
        cluster(),
        queues(*names),
        phases(),
        load(10, None),
        fault(FAULT_S, HEALED_S, name="kill_client"),
    ]
    used = event(94.5, "application_use", **use)
    judged: History = history(published, delivered, [*given, *events, *workers, used])
    return judged
