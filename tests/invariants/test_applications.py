"""What is said of the user's own programs: who did not come back, and who only seems not to have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rabbitmq_resilience.checkers.assumptions import LoadNotZero
from rabbitmq_resilience.checkers.verdict import History, Verdict
from rabbitmq_resilience.checkers.wholeness import HistoryWhole
from tests.invariants.literal import (
    cluster,
    deliver,
    event,
    fault,
    history,
    load,
    node_states,
    phases,
    publish,
    queues,
    sample,
    us,
)
from tests.invariants.references.common import checked as found

KILL = fault(20, 40, name="kill", down=["b1"])
IDLE = {"published": 0, "plain": 0, "delivered": 0, "automatic": 0, "acknowledged": 0, "returned": 0, "unsettled": 0}


def use(**processes: Mapping[str, Any]) -> Any:
    """How an application used its brokers; by process its numbers as a publisher and a consumer."""
    rows = {
        name: {"publisher": None, "consumer": None, **IDLE, "unsettled_in": {}, **fields}
        for name, fields in processes.items()
    }
    return event(94.9, "application_use", processes=rows, plain_lost={}, skipped={}, foreign=0)


def connection(
    number: int,
    process: str,
    from_s: float,
    to_s: float | None = None,
    *,
    queue: str = "",
    end: str = "closed",
    by: str = "broker",
) -> list[Any]:
    """The events of a connection, with a consumer if there is a ``queue``."""
    events = [
        (from_s, "opened", {"process": process, "node": "a1"}),
        (from_s + 0.1, "connected", {}),
        *([(from_s + 0.2, "consuming", {"consumer": "c", "queue": queue})] if queue else []),
        *([(to_s, end, {"by": by, "code": 200, "text": ""}), (to_s + 0.01, "closed", {})] if to_s is not None else []),
    ]
    return [
        event(at_s, "wire", connection=number, what=what, channel=int(what == "consuming"), fields=fields)
        for at_s, what, fields in events
    ]


def record(
    *events: Any, sent_s: Any = (), got_s: Any = (), up_s: float = 42, again: Any = (), unseen: Any = (200, 200)
) -> History:
    """A history with a broker that dies from second 20 to 40, is up again at ``up_s``, and down during ``again``;
    messages of publisher 0 and to consumer 0. Nodes are not looked at during ``unseen``."""
    sent = [publish(number, at_s) for number, at_s in enumerate(sent_s)]
    got = [deliver(number, at_s) for number, at_s in enumerate(got_s)]
    away = [(20, up_s, "down"), *((*span, "down") for span in again)]
    looks = [one for one in node_states(unlike={"b1": away}) if not us(unseen[0]) <= one.t_us < us(unseen[1])]
    given = [cluster(), queues("q1"), phases(), load(10, None), KILL, looks]
    made: History = history(sent, got, [*given, *(sample(at_s) for at_s in range(95)), *events])
    return made


def steadily(from_s: float, to_s: float, every_s: float = 0.5) -> list[float]:
    return [from_s + i * every_s for i in range(int((to_s - from_s) / every_s))]


def reconnects(*events: Any, **rows: Any) -> Any:
    return found("reconnects", record(*events, **rows), within_s=20)


WEB = use(web={"publisher": 0})
JOB = use(job={"consumer": 0})


def test_a_process_that_publishes_once_a_minute_is_not_called_lost() -> None:
    """It had published once before the faults, and its next message is not due yet."""
    finding = reconnects(WEB, connection(0, "web", 0), sent_s=[4])
    assert finding.verdict == Verdict.UNKNOWN
    assert "published seldom" in finding.summary
    assert reconnects(WEB, connection(0, "web", 0), sent_s=[4, 85]).verdict == Verdict.VALID


def test_a_process_that_published_all_the_time_and_stopped_is_named_with_its_connection() -> None:
    finding = reconnects(WEB, connection(0, "web", 0, 21, end="lost"), sent_s=steadily(0, 20))
    assert finding.verdict == Verdict.INVALID
    assert finding.summary == (
        "web did not publish again; its last connection, to a1, was lost, by the broker's end (+62.000 s), "
        "22 s after the last fault was healed, 20 s after all nodes were up"
    )


@pytest.mark.parametrize(("up_s", "verdict"), [(44, Verdict.INVALID), (46, Verdict.VALID), (95, Verdict.UNKNOWN)])
def test_a_process_is_not_blamed_for_a_broker_that_starts_slowly(up_s: float, verdict: Verdict) -> None:
    """It is back 25 s after the healing, and 20 s are allowed. If the broker never starts, it need not come back."""
    wire = connection(0, "web", 0, 21, end="lost")
    back = steadily(65, 80) if up_s < 95 else []
    finding = reconnects(WEB, wire, sent_s=[*steadily(0, 20), *back], up_s=up_s)
    assert finding.verdict == verdict, finding.summary
    assert up_s < 95 or finding.summary.endswith("s after the last fault was healed, and a node was not up")


def test_a_process_is_due_once_its_broker_is_up_for_good() -> None:
    """It is back 8 s after its broker, which went down again after the healing."""
    wire = [connection(0, "web", 0, 45.5, end="lost"), connection(1, "web", 63)]
    sent_s = [*steadily(0, 20), *steadily(41, 45.5), *steadily(63, 89)]
    finding = reconnects(WEB, *wire, sent_s=sent_s, again=[(45, 55)])
    assert finding.verdict == Verdict.VALID, finding.summary


def test_a_message_before_the_last_loss_shows_no_return() -> None:
    """It had published after the healing, over a connection that was not gone yet, and never again."""
    lost = connection(0, "web", 0, 43.5, end="lost")
    restarted = reconnects(WEB, lost, sent_s=[*steadily(0, 20), *steadily(40, 43.5)], again=[(43, 50)])
    assert restarted.verdict == Verdict.INVALID
    sent_s = [*steadily(0, 20), *steadily(42, 43.5)]
    finding = reconnects(WEB, lost, sent_s=sent_s)
    assert finding.verdict == Verdict.INVALID
    assert finding.summary.startswith("web lost its connection at +43.500 s, and did not publish again; its last")
    assert reconnects(WEB, lost, connection(1, "web", 62), sent_s=[*sent_s, 63.4]).verdict == Verdict.VALID
    late = reconnects(WEB, lost, connection(1, "web", 80), sent_s=[*sent_s, 88])
    assert late.verdict == Verdict.INVALID
    assert late.summary.startswith("web lost its connection at +43.500 s, and did not publish again for 44.5 s; its")
    in_order = connection(0, "web", 0, 43.5, end="connection_closed", by="client")
    assert reconnects(WEB, in_order, sent_s=sent_s).verdict == Verdict.VALID
    both = use(web={"publisher": 0, "consumer": 0})
    wire = [lost, connection(1, "web", 0, queue="q1")]
    row = {"sent_s": [*sent_s, 88], "got_s": [*steadily(0.1, 20), 43.1, 87.9]}
    assert reconnects(both, *wire, **row).verdict == Verdict.VALID  # it had nothing to answer meanwhile
    assert reconnects(both, *wire, **row | {"sent_s": sent_s}).verdict == Verdict.VALID  # it had no time for it
    silent = {"sent_s": sent_s, "got_s": [*steadily(0.1, 20), 43.1, 60]}
    assert reconnects(both, *wire, **silent).verdict == Verdict.INVALID
    last = connection(0, "web", 0, 75, end="lost")
    assert reconnects(WEB, last, sent_s=[*steadily(0, 20), *steadily(42, 75)]).verdict == Verdict.VALID


@pytest.mark.parametrize(("back_s", "verdict"), [(58, Verdict.VALID), (70, Verdict.UNKNOWN), (None, Verdict.UNKNOWN)])
@pytest.mark.parametrize(
    ("blind", "why"),
    [
        ({"up_s": 95}, "and a node was not up"),
        ({"unseen": (41, 62)}, "and the nodes were not observed for a while"),
    ],
)
def test_what_is_not_known_of_nodes_is_not_held_against_a_process(
    blind: Any, why: str, back_s: float | None, verdict: Verdict
) -> None:
    """What is back within the time from the healing on is in time in any case."""
    back = steadily(back_s, 89) if back_s is not None else []
    finding = reconnects(WEB, connection(0, "web", 0, 21, end="lost"), sent_s=[*steadily(0, 20), *back], **blind)
    assert finding.verdict == verdict, finding.summary
    assert verdict == Verdict.VALID or finding.summary.endswith(why)


def test_a_consumer_that_is_there_until_the_drain_is_back() -> None:
    """A broker never came up, so that it is not known when the consumer was due."""
    wire = [connection(0, "job", 0, 21, queue="q1", end="lost"), connection(1, "job", 43, 93, queue="q1")]
    finding = reconnects(JOB, *wire, got_s=steadily(0.5, 20), up_s=95)
    assert finding.verdict == Verdict.VALID, finding.summary


@pytest.mark.parametrize(("until_s", "verdict"), [(60, Verdict.INVALID), (80, Verdict.VALID), (93, Verdict.VALID)])
def test_a_consumer_that_gets_nothing_is_there_as_long_as_its_connection(until_s: float, verdict: Verdict) -> None:
    """It lost two connections after its last message. The second one had its consumer again, and for 20 s before the
    drain there was time for a third one."""
    wire = [
        connection(0, "job", 0, 46, queue="q1", end="lost"),
        connection(1, "job", 48, until_s, queue="q1", end="lost"),
    ]
    finding = reconnects(JOB, *wire, got_s=[*steadily(0.5, 20), *steadily(43, 45)])
    assert finding.verdict == verdict, finding.summary


def test_the_process_without_a_connection_is_named_first() -> None:
    """``api`` is connected and waits for the answer of one that never came back."""
    both = use(api={"publisher": 0}, web={"publisher": 1})
    wire = connection(0, "api", 0), connection(1, "web", 0, 21, end="lost")
    rows = [publish(n, at_s, publisher=p) for p in (0, 1) for n, at_s in enumerate(steadily(0, 20))]
    given = [cluster(), queues("q1"), phases(), load(10, None), KILL, node_states(), both, *wire]
    finding = found("reconnects", history(rows, [], given), within_s=20)
    assert finding.summary.startswith("web did not publish again")
    assert [text.split()[0] for text in finding.examples] == ["web", "api"]


def test_a_process_that_answers_is_not_blamed_for_those_that_ask_no_more() -> None:
    answers = use(job={"publisher": 0, "consumer": 0})
    wire = connection(0, "job", 0, queue="q1")
    finding = reconnects(answers, wire, sent_s=steadily(0, 20), got_s=steadily(0.2, 20))
    assert finding.verdict == Verdict.UNKNOWN
    assert "got nothing to answer" in finding.summary


@pytest.mark.parametrize(
    ("ends_s", "queue", "verdict"),
    [(None, "", Verdict.UNKNOWN), (21, "", Verdict.INVALID), (21, "q1", Verdict.INVALID), (None, "q1", Verdict.VALID)],
)
def test_a_process_that_fetches_messages_may_find_none(ends_s: float | None, queue: str, verdict: Verdict) -> None:
    """Over an open connection; one that subscribes must have its consumer again."""
    finding = reconnects(JOB, connection(0, "job", 0, ends_s, queue=queue), got_s=steadily(0.5, 20))
    assert finding.verdict == verdict, finding.summary


def test_a_client_that_does_not_notice_the_end_of_its_connection_is_named() -> None:
    """Its broker has ended it, and the client closes it only when it is stopped itself."""
    kept = [one for one in connection(0, "web", 0, 21, end="lost") if one.what != "closed"]
    closed = event(94, "wire", connection=0, what="closed", channel=0, fields={})
    finding = reconnects(WEB, [*kept, closed], sent_s=steadily(0, 20))
    assert "to a1, was lost, by the broker's end, and the client kept it (+62" in finding.summary
    own = [one for one in connection(0, "web", 0, 21, end="lost", by="client") if one.what != "closed"]
    finding = reconnects(WEB, [*own, closed], sent_s=steadily(0, 20))
    assert "to a1, was lost, by the client's end (+62" in finding.summary


def test_an_alarm_that_blocks_a_process_is_named() -> None:
    blocked = event(30, "wire", connection=0, what="blocked", channel=0, fields={"detail": "low on memory"})
    finding = reconnects(WEB, connection(0, "web", 0), blocked, sent_s=steadily(0, 20))
    assert "to a1, was open, and the broker had blocked it: low on memory (+62" in finding.summary


def test_an_application_that_never_consumes_is_judged_by_what_it_publishes() -> None:
    """If it subscribes, and gets nothing, the load is none."""
    publishes = record(use(web={"publisher": 0}), connection(0, "web", 0), sent_s=steadily(0, 20))
    assert LoadNotZero().check(publishes).verdict == Verdict.VALID
    subscribes = record(use(web={"publisher": 0}), connection(0, "web", 0, queue="q1"), sent_s=steadily(0, 20))
    assert LoadNotZero().check(subscribes).summary == "nothing was delivered"


def test_a_queue_does_not_stand_still_while_its_publisher_does_not_try() -> None:
    """A program that waits for 35 s before it connects again makes no queue unavailable; one that tries does."""
    sent_s = [*steadily(0, 20), *steadily(56, 88)]
    back = connection(1, "web", 55)
    pause = found("availability", record(WEB, connection(0, "web", 0, 20.5, end="lost"), back, sent_s=sent_s))
    assert pause.verdict != Verdict.INVALID, pause.summary
    tries = found("availability", record(WEB, connection(0, "web", 0, 55, end="lost"), back, sent_s=sent_s))
    assert tries.verdict == Verdict.INVALID, tries.summary


@pytest.mark.parametrize(("queue", "verdict"), [("", Verdict.VALID), ("q2", Verdict.VALID), ("q1", Verdict.INVALID)])
def test_a_queue_keeps_messages_from_its_consumers_alone(queue: str, verdict: Verdict) -> None:
    """A process that is connected again, and does not subscribe again, is no fault of the cluster."""
    ready = {"q1": {"ready": 5, "unacked": 0, "leader": "a1", "members": 3, "online": 3}}
    samples = [event(at_s, "sample", node="", queues=ready) for at_s in range(45, 95)]
    wire = [*connection(0, "job", 0, 21, queue="q1", end="lost"), *connection(1, "job", 43, queue=queue)]
    worker = [event(43, "worker", worker="consumer-0", event="connected", node="a1", detail="")]
    given = [cluster(), queues("q1"), phases(), load(10, None), KILL, node_states(unlike={"b1": [(20, 42, "down")]})]
    given += [JOB, *wire, *worker, *samples, *(sample(at_s) for at_s in range(45))]
    finding = found("recovery", history([publish(0, 5)], [deliver(0, 6)], given), within_s=20)
    assert finding.verdict == verdict, finding.summary


def test_a_tap_reads_many_messages_at_one_moment() -> None:
    """Twenty at one microsecond are no sign of a damaged record, as they are where consumers read the clock."""
    got = [deliver(number, 30.0) for number in range(20)]
    sent = [publish(number, 5) for number in range(20)]
    given = [cluster(), queues("q1"), phases(), load(10, None), KILL, node_states()]
    assert HistoryWhole().check(history(sent, got, [*given, JOB])).verdict == Verdict.VALID
    assert HistoryWhole().check(history(sent, got, given)).verdict == Verdict.UNKNOWN


def ends(*events: tuple[float, str, int | None, str], **bounds: Any) -> Any:
    recorded = [event(0, "application", process="web-0", event="started", pid=1)]
    recorded += [
        event(at_s, "application", process="web-0", event=what, status=status, detail=detail)
        for at_s, what, status, detail in events
    ]
    return found("stays_up", record(WEB, *recorded), **bounds)


def test_a_process_that_ends_by_itself_is_named_with_its_last_words() -> None:
    """Also with status 0. One that is killed, stopped or hangs at its end did not end by itself."""
    finding = ends((30, "ended", 0, "first\nlast words\n\n"))
    assert finding.verdict == Verdict.INVALID
    assert finding.examples == (
        "web-0 ended with status 0 at +30.000 s, during step 0 (kill), while b1 was not up: last words",
    )
    assert finding.summary == f"1 process ended by itself; {finding.examples[0]}"
    twice = ends((30, "ended", 1, "one"), (50, "ended", 1, "two"), ends_max=1)
    assert twice.summary == f"1 process ended by itself, 2 times in all; {twice.examples[0]}"
    assert ends((30, "ended", 1, "")).examples[0].endswith(": it had written nothing")
    again = ends((30, "ended", 1, ""), (31, "started", None, ""), ends_max=3)
    assert again.verdict == Verdict.VALID
    assert again.summary == "processes ended 1 time by themselves and were started again; allowed are 3"
    assert ends((88, "ended", 1, ""), ends_max=1).verdict == Verdict.VALID
    for_good = ends((30, "ended", 1, ""), ends_max=1)
    assert for_good.verdict == Verdict.INVALID
    assert for_good.examples[0].startswith("web-0 ended with status 1 at +30.000 s, for good, ")
    assert ends((30, "killed", None, ""), (94, "hung", None, "")).verdict == Verdict.VALID
