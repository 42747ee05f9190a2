"""Convert the record of a tap into the history of publishers and consumers that all checkers read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rabbitmq_resilience.history.event_log import EventLog
from rabbitmq_resilience.history.events import ApplicationEvent, WireEvent
from rabbitmq_resilience.history.history import DELIVERIES, PUBLISHES, Outcome, StreamWriter
from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.history.wire_connections import followed
from rabbitmq_resilience.tap.wire_history import Mode
from rabbitmq_resilience.workload.application_queues import ApplicationQueues
from rabbitmq_resilience.workload.application_use import used
from rabbitmq_resilience.workload.counters import Count, Counters
from rabbitmq_resilience.workload.equal_messages import MatchedDeliveries
from rabbitmq_resilience.workload.load import RecordedClients, deliveries_path, publishes_path
from rabbitmq_resilience.workload.unrouted_messages import REPLY_QUEUES, UnroutedMessages
from rabbitmq_resilience.workload.wire_messages import TappedPublish, WireMessages

#: How many messages of a process may be under way, as an application states no limit.
_UNDER_WAY_MAX = 65_535

#: Events after which messages of a queue may be gone, or not be routed to it, because the application wants it so.
_GONE = dict.fromkeys(("queue_deleted", "queue_purged"), "the application deleted or purged it") | {
    "queue_unbound": "the application removed a binding of it"
}


@dataclass(frozen=True)
class Application:
    """What is known of an application in addition to its messages. ``instances``: its processes, in order. ``queues``:
    as the broker listed them before ``known_us``. ``drained_us``: when the drain was last seen to go on; what is
    published later need not arrive. ``judges_plain``: whether messages without confirms must arrive."""

    instances: Sequence[str]
    nodes: Sequence[str]
    queues: ApplicationQueues
    known_us: int
    drained_us: int
    judges_plain: bool = False


class ApplicationHistory:
    """The history of an application, from its messages and the events of its processes."""

    def __init__(
        self,
        application: Application,
        messages: WireMessages,
        wire: Sequence[WireEvent],
        own: Sequence[ApplicationEvent],
    ) -> None:
        self._application = application
        self._messages = messages
        self._wire = wire
        self._own = own
        gone = {
            event.fields["queue"]: _GONE[event.what]
            for event in wire
            if event.what in _GONE and event.t_us >= application.queues.asked_us
        }
        self._skipped = {**application.queues.skipped, **gone}
        self._queues = [name for name in application.queues.places if name not in gone]
        self._index = {name: number for number, name in enumerate(self._queues)}
        owed = {publish.route: self._route(publish) for publish in messages.publishes}
        self._kept = [publish for publish in messages.publishes if owed[publish.route]]
        self._owed = [owed[publish.route] for publish in self._kept]
        self._publishers = [name for name in application.instances if any(p.process == name for p in self._kept)]
        self._consumers = [name for name in application.instances if messages.delivered[name]]
        self._judge_plain()
        self._matched = MatchedDeliveries(self._kept, self._owed, self._must_arrive)
        self._matched.take((delivery, self._index.get(delivery.queue, None)) for delivery in messages.deliveries)

    @property
    def declared_later(self) -> list[str]:
        """Return the queues that were used and that the broker had not listed, except those that pass by design."""
        used = [event.fields for event in self._wire if event.what in {"queue_declared", "consuming"}]
        passing = {fields["queue"] for fields in used if fields.get("exclusive") or fields.get("auto_delete")}
        deleted = {event.fields["queue"] for event in self._wire if event.what == "queue_deleted"}
        found = {fields["queue"] for fields in used} - self._application.queues.names - passing - deleted - {""}
        return sorted(name for name in found if not name.startswith(REPLY_QUEUES))

    def _route(self, publish: TappedPublish) -> tuple[int, ...]:
        owed = self._application.queues.owed(*publish.route)
        return tuple(self._index[name] for name in owed if name in self._index)

    def _permit(self) -> None:
        """Let messages be lost that need not have arrived.

        They were published before all nodes knew their queues, or after the drain had ended; or they may have expired;
        or an equal message with the same ``message_id`` has arrived."""
        for number, publish in enumerate(self._kept):
            if publish.outcome is not Outcome.CONFIRMED or self._matched.has_come(number):
                continue
            if not self._must_arrive(publish) or (publish.named and self._matched.equal_has_come(number)):
                publish.outcome = Outcome.UNKNOWN

    def _judge_plain(self) -> None:
        """Let messages without confirms be owed, if that is demanded."""
        for publish in self._kept if self._application.judges_plain else ():
            if publish.mode is Mode.PLAIN and not publish.returned:
                publish.outcome = Outcome.CONFIRMED

    def _must_arrive(self, publish: TappedPublish) -> bool:
        return publish.outcome is Outcome.CONFIRMED and self._is_in_time(publish) and not publish.expires

    def _is_in_time(self, publish: TappedPublish) -> bool:
        return self._application.known_us <= publish.sent_us < self._application.drained_us

    def _foreign(self) -> int:
        published = {publish.identity for publish in self._messages.publishes}
        return sum(delivery.identity not in published for delivery in self._messages.deliveries)

    @property
    def skipped(self) -> Mapping[str, str]:
        """Return the queues that are not judged, each with the reason."""
        return self._skipped

    def write(self, folder: Path) -> dict[str, Any]:
        """Write streams, routes, counts and events into ``folder``, and return the fields of "application_use"."""
        plain_lost, expired = self._plain_lost(), self._expired()
        self._permit()
        table = {route: number for number, route in enumerate(dict.fromkeys(self._owed))}
        Routes.of([list(route) for route in table] or [[0]]).save(folder)
        self._clients().save(folder)
        sequences = self._write_publishes(folder, table)
        self._write_deliveries(folder, sequences)
        for role, names in (("publisher", self._publishers), ("consumer", self._consumers)):
            for index, name in enumerate(names):
                self._write_events(folder, f"{role}-{index}", name)
        return {
            "processes": self._uses(),
            "plain_lost": plain_lost,
            "may_have_expired": expired,
            "skipped": self._skipped,
            "foreign": self._foreign(),
        }

    def _clients(self) -> RecordedClients:
        return RecordedClients(
            publishers=len(self._publishers),
            consumers=len(self._consumers),
            in_flight=_UNDER_WAY_MAX,
            prefetch=_UNDER_WAY_MAX,
        )

    def _plain_lost(self) -> dict[str, int]:
        """Return how many messages without confirms did not arrive, by process."""
        lost: Counter[str] = Counter()
        for number, publish in enumerate(self._kept):
            if (
                publish.mode is Mode.PLAIN
                and not publish.returned
                and not publish.expires
                and self._is_in_time(publish)
            ):
                lost[publish.process] += not self._matched.has_come(number)
        return dict(+lost)

    def _expired(self) -> dict[str, int]:
        """Return how many messages with a time to live did not arrive, by process."""
        gone = [p.process for number, p in enumerate(self._kept) if p.expires and not self._matched.has_come(number)]
        return dict(Counter(gone))

    def _write_publishes(self, folder: Path, table: Mapping[tuple[int, ...], int]) -> list[int]:
        """Write the publishes of each process and life. Return the sequence of each message that was kept."""
        node_of = {name: number for number, name in enumerate(self._application.nodes)}
        numbers: Counter[str] = Counter()
        sequences, rows = [], defaultdict(list)
        for publish, owed in zip(self._kept, self._owed, strict=True):
            sequence = numbers[publish.process]
            numbers[publish.process] += 1
            sequences.append(sequence)
            route, node = table[owed], node_of[publish.node]
            ended_us = publish.sent_us if publish.outcome_us is None else publish.outcome_us
            publisher = self._publishers.index(publish.process)
            row = (publisher, route, sequence, publish.sent_us, publish.sent_us, publish.outcome, ended_us, node)
            rows[publish.process, self._life_at(publish.process, publish.sent_us)].append(row)
        workers = len(self._publishers) + len(self._consumers)
        with Counters(folder, workers=workers, create=True) as counters:
            for index, name in enumerate(self._publishers):
                for life in self._lives(name):
                    path = publishes_path(folder, f"publisher-{index}", life)
                    _write(path, PUBLISHES, rows[name, life])
                _count(counters, index, [publish.outcome for publish in self._kept if publish.process == name])
        return sequences

    def _write_deliveries(self, folder: Path, sequences: Sequence[int]) -> None:
        rows: defaultdict[tuple[str, int], list[tuple[Any, ...]]] = defaultdict(list)
        counts: Counter[str] = Counter()
        for delivery, number, queue, intact in self._matched.matches:
            publisher = self._publishers.index(self._kept[number].process)
            row = (
                *(self._consumers.index(delivery.process), publisher, queue, sequences[number], delivery.received_us),
                *(delivery.redelivered, intact),
            )
            rows[delivery.process, self._life_at(delivery.process, delivery.received_us)].append(row)
            counts[delivery.process] += 1
        with Counters(folder, workers=len(self._publishers) + len(self._consumers)) as counters:
            for index, name in enumerate(self._consumers):
                for life in self._lives(name):
                    _write(deliveries_path(folder, f"consumer-{index}", life), DELIVERIES, rows[name, life])
                counters.set(len(self._publishers) + index, Count.RECORDED, counts[name])

    def _lives(self, name: str) -> Sequence[int]:
        return [event.life for event in self._own if event.process == name and event.event == "started"]

    def _life_at(self, name: str, t_us: int) -> int:
        begun = [e.life for e in self._own if (e.process, e.event) == (name, "started") and e.t_us <= t_us]
        return begun[-1] if begun else 0

    def _write_events(self, folder: Path, worker: str, name: str) -> None:
        """Write what happened to the process, and to its connections, as events of a worker."""
        found = [(e.t_us, _PROCESS.get(e.event), "", e.detail, e.life) for e in self._own if e.process == name]
        for connection in followed(self._wire):
            if connection.process == name:
                changes = connection.changes
                found += [(t_us, what, connection.node, "", self._life_at(name, t_us)) for t_us, what in changes]
        with EventLog(folder / f"{worker}.jsonl") as log:
            for t_us, what, node, detail, life in sorted(found, key=lambda each: each[0]):
                if what is not None:
                    log.record("worker", t_us=t_us, worker=worker, event=what, node=node, detail=detail, life=life)

    def _uses(self) -> dict[str, dict[str, Any]]:
        """Return how each process used its brokers; see ``history.events.ApplicationUseEvent``."""
        routes = UnroutedMessages(self._application.queues, self._wire, known_us=self._application.known_us)
        return {
            name: {
                "publisher": self._publishers.index(name) if name in self._publishers else None,
                "consumer": self._consumers.index(name) if name in self._consumers else None,
                **used(name, self._messages, self._wire, is_unroutable=routes.is_unroutable),
            }
            for name in self._application.instances
        }


#: The events of workers for those of processes: one that ended by itself was not killed by a step.
_PROCESS = {"started": "started", "ended": "stopped", "stopped": "stopped", "killed": "killed", "hung": "killed"}


def _write(path: Path, schema: Any, rows: Iterable[tuple[Any, ...]]) -> None:
    columns = list(zip(*rows, strict=True)) or [() for _ in schema.names]
    with closing(StreamWriter(path, schema)) as stream:
        stream.append(dict(zip(schema.names, columns, strict=True)))


def _count(counters: Counters, row: int, outcomes: Sequence[Outcome]) -> None:
    found = Counter(outcomes)
    counters.set(row, Count.SENT, len(outcomes))
    counters.set(row, Count.RECORDED, len(outcomes))
    counters.set(row, Count.CONFIRMED, found[Outcome.CONFIRMED])
    counters.set(row, Count.REFUSED, found[Outcome.NACKED] + found[Outcome.RETURNED])
    counters.set(row, Count.UNKNOWN, found[Outcome.UNKNOWN])
