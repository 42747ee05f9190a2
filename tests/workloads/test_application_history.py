"""What becomes of the messages of an application that retries, repeats itself, deletes queues, or loses connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rabbitmq_resilience.history.events import ApplicationEvent, WireEvent
from rabbitmq_resilience.history.history import DELIVERIES, PUBLISHES, Outcome, StreamReader
from rabbitmq_resilience.tap.wire_history import Kind, Mode, Row
from rabbitmq_resilience.workload.application_advice import unjudged
from rabbitmq_resilience.workload.application_history import Application, ApplicationHistory
from rabbitmq_resilience.workload.application_queues import ApplicationQueues, declared, read_queues
from rabbitmq_resilience.workload.matching import Bound, Router
from rabbitmq_resilience.workload.queues import QueuePlace
from rabbitmq_resilience.workload.wire_messages import WireMessages
from tests.tap.records import Wire, write

PLACE = QueuePlace(type="quorum", members=["a1"], leader="a1")
ROUTER = Router({"all": ("fanout", None)}, [Bound("all", name, False, "") for name in ("q", "p")])
QUEUES = ApplicationQueues({"q": PLACE, "p": PLACE}, {}, ROUTER, frozenset({"all"}), asked_us=5)
#: The broker had listed the queues; the drain ended; the processes were asked to end.
KNOWN_US, DRAINED_US, ASKED_US = 10, 900, 1000


def publish(t_us: int, identity: int = 1, **fields: Any) -> Row:
    """A message with its confirm number 1, through the connection 0."""
    given = {"tag": 1, "mode": Mode.CONFIRMS, "routing_key": "q", "body": identity, **fields}
    return Row(t_us, given.pop("connection", 0), 0, Kind.PUBLISHED, identity=identity, **given)


def confirm(t_us: int, *, connection: int = 0, tag: int = 1, multiple: bool = False) -> Row:
    return Row(t_us, connection, 0, Kind.CONFIRMED, tag=tag, multiple=multiple)


def deliver(t_us: int, identity: int = 1, **fields: Any) -> Row:
    given = {"tag": t_us, "place": "q", "body": identity, **fields}
    return Row(t_us, given.pop("connection", 2), 0, Kind.DELIVERED, identity=identity, **given)


def acknowledge(t_us: int, tag: int) -> Row:
    return Row(t_us, 2, 0, Kind.ACKED, tag=tag)


class Written(NamedTuple):
    """Publishes as (outcome, queues that it arrived from), the fields of the use, the rows of deliveries, and the
    queues that the broker had not listed."""

    messages: Sequence[tuple[str, str]]
    use: Mapping[str, Any]
    deliveries: Sequence[Mapping[str, Any]]
    declared_later: Sequence[str]


def written(
    folder: Path, *rows: Row, wire: Sequence[Wire] = (), queues: ApplicationQueues = QUEUES, judged: bool = False
) -> Written:
    """Convert rows of the connections 0 and 1 of ``web-0``, and 2 of ``job-0``."""
    write(folder, rows, wire, processes=("web-0", "web-0", "job-0"))
    messages = WireMessages(folder)
    events = messages.complete(asked_us=ASKED_US, drained_us=DRAINED_US)
    own = [ApplicationEvent(t_us=0, process=name, event="started") for name in ("web-0", "job-0")]
    application = Application(("web-0", "job-0"), ("a1",), queues, KNOWN_US, DRAINED_US, judged)
    history = ApplicationHistory(application, messages, events, own)
    use = history.write(folder)
    published, delivered = rows_of(folder, "publishes", PUBLISHES), rows_of(folder, "deliveries", DELIVERIES)
    names = [name for name in queues.places if name not in use["skipped"]]
    came: dict[int, set[str]] = {message["sequence"]: set() for message in published}
    for delivery in delivered:
        came[delivery["sequence"]].add(names[delivery["queue"]])
    found = [(Outcome(one["outcome"]).name, "".join(sorted(came[one["sequence"]]))) for one in published]
    return Written(found, use, delivered, history.declared_later)


def rows_of(folder: Path, what: str, schema: Any) -> list[dict[str, Any]]:
    paths = sorted(folder.glob(f"*.{what}.arrows"))
    return [row for path in paths for batch in StreamReader(path, schema).batches() for row in batch.to_pylist()]


@pytest.mark.parametrize("named", [True, False])
def test_a_message_that_is_sent_again_after_no_confirm_is_not_lost(named: bool, tmp_path: Path) -> None:
    """With a message_id or equal content, it is the confirmed one that arrived."""
    rows = (publish(100, named=named), publish(200, connection=1, named=named), confirm(210, connection=1))
    found = written(tmp_path, *rows, deliver(300), wire=[(150, 0, "lost", {"by": "broker"})])
    assert found.messages == [("UNKNOWN", ""), ("CONFIRMED", "q")]


def test_a_transaction_has_the_messages_from_before_its_end_was_asked_for(tmp_path: Path) -> None:
    """A client need not wait: the second message came before the rollback of the first was answered."""
    rows = [publish(100, 1, tag=1, mode=Mode.TRANSACTIONS), publish(110, 2, tag=2, mode=Mode.TRANSACTIONS)]
    undone = Row(120, 0, 0, Kind.ROLLED_BACK, tag=1, multiple=True)
    done = Row(130, 0, 0, Kind.COMMITTED, tag=2, multiple=True)
    assert written(tmp_path, *rows, undone, done).messages == [("NACKED", ""), ("CONFIRMED", "")]


def test_messages_of_one_id_with_other_bodies_are_both_owed(tmp_path: Path) -> None:
    """Two programs may both number their messages from 1."""
    rows = publish(100, named=True, body=7), publish(200, connection=1, named=True, body=8)
    found = written(tmp_path, *rows, confirm(150), confirm(210, connection=1), deliver(300, body=8))
    assert found.messages == [("CONFIRMED", ""), ("CONFIRMED", "q")]
    assert [row["intact"] for row in found.deliveries] == [True]


def test_a_message_that_was_sent_twice_with_one_id_is_owed_once(tmp_path: Path) -> None:
    rows = publish(100, named=True), publish(200, connection=1, named=True)
    found = written(tmp_path, *rows, confirm(150), confirm(210, connection=1), deliver(300))
    assert found.messages == [("CONFIRMED", "q"), ("UNKNOWN", "")]


def test_an_equal_message_that_was_on_its_way_to_a_lost_connection_is_not_lost(tmp_path: Path) -> None:
    """Both were sent to a consumer whose link was cut, and the tap saw the first: both come again, marked."""
    rows = [publish(100), publish(101, tag=2), confirm(110, tag=2, multiple=True), deliver(120)]
    rows += [deliver(200, connection=1, flag=True), deliver(201, connection=1, flag=True)]
    found = written(tmp_path, *rows, wire=[(150, 2, "lost", {"by": "broker"})])
    assert found.messages == [("CONFIRMED", "q"), ("CONFIRMED", "q")]


def test_an_equal_message_that_never_came_is_lost(tmp_path: Path) -> None:
    rows = [publish(100), publish(101, tag=2), confirm(110, tag=2, multiple=True), deliver(120)]
    found = written(tmp_path, *rows, deliver(200, connection=1, flag=True), wire=[(150, 2, "lost", {"by": "broker"})])
    assert found.messages == [("CONFIRMED", "q"), ("CONFIRMED", "")]


def test_a_message_without_confirm_that_is_returned_is_returned(tmp_path: Path) -> None:
    """Also where the loss of such messages is judged."""
    row = publish(100, tag=0, mode=Mode.PLAIN, flag=True)
    back = Row(110, 0, 0, Kind.RETURNED, identity=1, routing_key="q", body=1)
    found = written(tmp_path, row, back, judged=True)
    assert found.messages == [("RETURNED", "")]
    assert found.use["plain_lost"] == {}


def test_each_of_two_equal_messages_that_are_returned_is_returned(tmp_path: Path) -> None:
    rows = [publish(100, flag=True), publish(101, flag=True, tag=2), confirm(120, tag=2, multiple=True)]
    rows += [Row(t_us, 0, 0, Kind.RETURNED, identity=1, routing_key="q", body=1) for t_us in (110, 111)]
    assert written(tmp_path, *rows).messages == [("RETURNED", ""), ("RETURNED", "")]


def test_only_a_mandatory_message_can_be_returned(tmp_path: Path) -> None:
    rows = [publish(100), publish(101, flag=True, tag=2), confirm(120, tag=2, multiple=True)]
    back = Row(110, 0, 0, Kind.RETURNED, identity=1, routing_key="q", body=1)
    found = written(tmp_path, *rows, back, deliver(130))
    assert found.messages == [("CONFIRMED", "q"), ("RETURNED", "")]


@pytest.mark.parametrize("t_us", [KNOWN_US - 1, DRAINED_US])
def test_what_is_sent_too_early_or_too_late_may_be_lost(t_us: int, tmp_path: Path) -> None:
    """Before the queues were known, or while the consumers are asked to end."""
    found = written(tmp_path, publish(t_us), confirm(t_us + 1))
    assert found.messages == [("UNKNOWN", "")]


def test_a_message_with_a_time_to_live_may_be_gone(tmp_path: Path) -> None:
    """Confirmed or not; one that arrives is no such message. A delivery is of one that must arrive, if it may be."""
    rows = [publish(100, 1, expires=True), publish(101, 2, tag=2, expires=True), publish(102, 3, tag=3, expires=True)]
    rows += [publish(103, 3, tag=4), publish(104, 4, tag=0, mode=Mode.PLAIN, expires=True)]
    rows += [confirm(110, tag=4, multiple=True), deliver(200, 1), deliver(201, 3)]
    found = written(tmp_path, *rows, judged=True)
    arrived, lost = ("CONFIRMED", "q"), ("UNKNOWN", "")
    assert found.messages == [arrived, lost, lost, arrived, lost]
    assert found.use["may_have_expired"] == {"web-0": 3}
    assert found.use["plain_lost"] == {}


def test_an_early_message_takes_no_delivery_of_a_later_one_that_is_equal(tmp_path: Path) -> None:
    """The first had no queue yet."""
    rows = publish(KNOWN_US - 1), publish(200, connection=1), confirm(11), confirm(210, connection=1)
    assert written(tmp_path, *rows, deliver(300)).messages == [("UNKNOWN", ""), ("CONFIRMED", "q")]


@pytest.mark.parametrize(
    ("what", "t_us", "skipped"),
    [
        ("queue_deleted", 4, {}),  # it was declared again before the broker was asked
        ("queue_deleted", 6, {"q": "the application deleted or purged it"}),
        ("queue_purged", 500, {"q": "the application deleted or purged it"}),
        ("queue_unbound", 500, {"q": "the application removed a binding of it"}),
    ],
)
def test_queues_that_the_application_empties_are_skipped(
    what: str, t_us: int, skipped: Mapping[str, str], tmp_path: Path
) -> None:
    change = (t_us, 0, what, {"queue": "q", "exchange": "all", "routing_key": ""})
    found = written(tmp_path, publish(100, place="all"), confirm(110), wire=[change])
    assert found.use["skipped"] == skipped
    assert found.messages == [("CONFIRMED", "")]  # the other queue lacks it in any case


def test_messages_that_come_while_processes_are_asked_to_end_need_no_acknowledgement(tmp_path: Path) -> None:
    """A program that publishes to the end has others that it sends messages to."""
    rows = publish(100), confirm(110), publish(910, 2, tag=2), confirm(911, tag=2)
    closed: Wire = (1100, 2, "closed", {})
    got = written(tmp_path, *rows, deliver(200), acknowledge(210, 200), deliver(912, 2), wire=[closed])
    assert got.use["processes"]["job-0"]["unsettled"] == 0
    assert got.use["processes"]["job-0"]["returned"] == 1


def test_a_message_of_the_drain_that_is_never_acknowledged_waits(tmp_path: Path) -> None:
    closed: Wire = (1100, 2, "closed", {})
    got = written(tmp_path, publish(100), confirm(110), deliver(DRAINED_US - 1), wire=[closed])
    assert got.use["processes"]["job-0"]["unsettled_in"] == {"q": 1}


def test_what_is_not_known_to_be_unroutable_is_not_said_to_be(tmp_path: Path) -> None:
    """A queue that was declared later, a way back to a client, and an exchange that a queue was bound to later."""
    keys = "later", "amq.rabbitmq.reply-to.g1", "nothing"
    rows = [publish(100 + i, i, routing_key=key, tag=i + 1) for i, key in enumerate(keys)]
    declared = (50, 0, "queue_declared", {"queue": "later"})
    bound = (60, 0, "queue_bound", {"queue": "later", "exchange": "none", "routing_key": ""})
    router = Router({"none": ("direct", None)}, [])
    queues = ApplicationQueues({}, {}, router, frozenset({"none"}), asked_us=5)
    rows.append(publish(110, 9, place="none", routing_key="x", tag=4))
    found = written(tmp_path, *rows, confirm(120, tag=4, multiple=True), wire=[declared, bound], queues=queues)
    assert found.use["processes"]["web-0"]["unroutable"] == 1


def test_queues_that_were_not_listed_are_named_and_those_that_pass_are_not(tmp_path: Path) -> None:
    """Those of another program on the same virtual host are known by their consumers alone."""
    declared: Mapping[str, Mapping[str, Any]] = {
        "q": {},
        "later": {},
        "mine": {"exclusive": True},
        "passing": {"auto_delete": True},
        "gone": {},
    }
    wire: list[Wire] = [(50, 0, "queue_declared", {"queue": name, **fields}) for name, fields in declared.items()]
    wire.append((60, 0, "queue_deleted", {"queue": "gone"}))
    for queue in (*declared, "other", "amq.rabbitmq.reply-to"):
        wire.append((55, 2, "consuming", {"queue": queue, "consumer": queue, "prefetch": 1, "automatic": False}))
    found = written(tmp_path, publish(100), confirm(110), deliver(120), wire=wire).declared_later
    assert found == ["later", "other"]
    assert list(unjudged(found)) == [
        "declared later, not judged: later, other; a broker listed the queues when messages began to flow"
    ]
    assert list(unjudged([])) == []
    assert " q4 and 7 more;" in next(unjudged([f"q{number}" for number in range(12)]))


def test_deliveries_of_messages_that_were_published_elsewhere_are_not_foreign(tmp_path: Path) -> None:
    """A queue that was bound later, or takes dead letters, gets messages that it is not owed."""
    found = written(tmp_path, publish(100), confirm(110), deliver(200, place="p"), deliver(201, 5))
    assert found.use["foreign"] == 1
    assert found.messages == [("CONFIRMED", "")]


def test_a_run_without_messages_to_judge_is_converted(tmp_path: Path) -> None:
    """All that it publishes goes to exchanges whose routes depend on headers, and it gets nothing."""
    found = written(tmp_path, publish(100, place="by_header"))
    assert found.messages == []
    assert found.use["processes"]["web-0"]["publisher"] is None


def test_what_programs_declared_to_stay_is_removed_with_a_run() -> None:
    """Neither what was there before, nor what goes by itself, nor what each virtual host has."""
    fields: list[dict[str, Any]] = [
        {"what": "queue", "queue": "mine"},
        {"what": "queue", "queue": "theirs", "passive": True},
        {"what": "queue", "queue": "passing", "exclusive": True},
        {"what": "exchange", "exchange": "post"},
        {"what": "exchange", "exchange": "theirs", "passive": True},
        {"what": "exchange", "exchange": "amq.topic"},
    ]
    wire = [
        WireEvent(
            t_us=1,
            connection=0,
            what=f"{one.pop('what')}_declared",
            fields={"passive": False, "exclusive": False, **one},
        )
        for one in fields
    ]
    assert declared(wire) == {"queues": {"mine"}, "exchanges": {"post"}}


class _Api:
    """What a broker lists: this is its answer, from which everything else is computed."""

    def __init__(self, queues: Any, exchanges: Any, bindings: Any) -> None:
        self.listed = queues, exchanges, bindings

    def queues(self, *_: Any, **__: Any) -> Any:
        return self.listed[0]

    def exchanges(self, _: str) -> Any:
        predeclared = {"": "direct", "amq.topic": "topic", "amq.headers": "headers"}
        return [*({"name": name, "type": kind, "arguments": {}} for name, kind in predeclared.items()), *self.listed[1]]

    def policies(self, _: str) -> Any:
        return []

    def bindings(self, _: str) -> Any:
        return self.listed[2]


class _Cluster:
    """One node with that API."""

    def __init__(self, api: _Api) -> None:
        self.topology = self
        self.node_names = ["a1"]
        self._api = api

    def api(self, _: str) -> _Api:
        return self._api

    def broker_name(self, node: str) -> str:
        return f"{node}@localhost"


def listed(queues: Any = (), exchanges: Any = (), bindings: Any = ()) -> ApplicationQueues:
    rows = [{"type": "quorum", "leader": "a1@localhost", "durable": True, **queue} for queue in queues]
    return read_queues(_Cluster(_Api(rows, list(exchanges), list(bindings))), "/")  # type: ignore[arg-type]


def binding(source: str, destination: str, *, to: str = "queue", key: str = "") -> dict[str, str]:
    return {"source": source, "destination": destination, "destination_type": to, "routing_key": key}


def test_a_policy_that_lets_messages_go_is_heeded() -> None:
    policies = {"limited": {"max-length": 5}, "kept": {"ha-mode": "all"}, "free": None}
    found = listed([{"name": name, "effective_policy_definition": value} for name, value in policies.items()])
    assert set(found.places) == {"kept", "free"}
    assert found.skipped == {"limited": "it has a maximum length"}


def test_exchanges_that_each_virtual_host_has_are_known() -> None:
    found = listed([{"name": "q"}], bindings=[binding("amq.topic", "q", key="a.*")])
    assert found.owed("amq.topic", "a.b") == ("q",)
    assert found.owed("amq.topic", "b") == ()
    assert found.computed


@pytest.mark.parametrize("alternate", ["nowhere", "by_header"])
def test_an_alternate_exchange_that_cannot_be_followed_is_not(alternate: str) -> None:
    """A broker takes the name of one that there is not."""
    main = {"name": "main", "type": "direct", "arguments": {"alternate-exchange": alternate}}
    exchanges = [main, {"name": "by_header", "type": "headers"}]
    found = listed([{"name": "q"}], exchanges, [binding("main", "q", key="one")])
    assert found.owed("main", "one") == ("q",)
    assert found.owed("main", "two") == ()
    assert found.computed is (alternate == "nowhere")
