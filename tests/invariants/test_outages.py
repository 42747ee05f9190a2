from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.checkers.consequences import consequences
from rabbitmq_resilience.checkers.uptime import Uptime
from rabbitmq_resilience.checkers.verdict import Coverage, Finding, Verdict
from rabbitmq_resilience.history.events import Event
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import (
    Row,
    blocked,
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
    us,
)
from tests.messages import Messages

BASE: list[Event | list[Event]] = [cluster(), queues("q1", "q2"), phases(), node_states()]
KILL = fault(30, 40, name="kill", down=["a1", "b1"])


def confirms(*spans: tuple[float, float], queue: int = 0) -> list[Row]:
    """Ten a second in each span, each confirmed 5 ms after it was sent."""
    times = [start + i / 10 for start, end in spans for i in range(round((end - start) * 10))]
    return [publish(n, at_s, publisher=queue, queue=queue) for n, at_s in enumerate(times)]


def waiting(sent_s: float, until_s: float, outcome: Outcome = Outcome.UNKNOWN, *, queue: int = 0) -> Row:
    row = publish(99_999, sent_s, outcome, publisher=5 + queue, queue=queue)
    return row | {"outcome_us": us(until_s)}


def told(publishes: list[Row], *events: Any, deliveries: list[Row] | None = None) -> dict[str, Any]:
    found = consequences(history(publishes, deliveries or (), [*BASE, *events]))
    assert found is not None
    return found


def longest(publishes: list[Row], *events: Any) -> dict[str, float]:
    return {name: row["longest_s"] for name, row in told(publishes, *events)["queues"].items()}


def test_nothing_is_reported_where_it_is_not_known_when_publishing_began_and_ended() -> None:
    assert consequences(history(confirms((0, 90)), (), [cluster(), queues("q1")])) is None


def test_sane() -> None:
    found = told([*confirms((0, 90)), *confirms((0, 90), queue=1)])
    assert (found["publishing_s"], found["queues"], found["worst"]) == (90, {}, [])


def test_an_outage_lasts_from_when_something_was_due_until_the_next_confirm() -> None:
    """The last confirm came at 20 s; the next message was sent at 22 s, and confirmed with others at 50 s."""
    rows = [*confirms((0, 20.05), (50, 90)), waiting(22, 50, Outcome.CONFIRMED)]
    assert longest(rows) == {"q1": pytest.approx(28, abs=0.05)}
    under_way = [*confirms((0, 20.05), (50, 90)), waiting(15, 50, Outcome.CONFIRMED)]
    assert longest(under_way) == {"q1": pytest.approx(30, abs=0.15)}


def test_what_was_tried_and_refused_was_due() -> None:
    for outcome in (Outcome.NACKED, Outcome.RETURNED, Outcome.UNKNOWN):
        rows = [*confirms((0, 20), (50, 90)), waiting(30, 30.01, outcome)]
        assert longest(rows) == {"q1": pytest.approx(20, abs=0.05)}
    never = [*confirms((0, 20), (50, 90)), waiting(30, 30.01, Outcome.NEVER_SENT)]
    assert longest(never) == {}


def test_where_no_one_tried_there_was_no_outage() -> None:
    assert longest(confirms((0, 20), (50, 90))) == {}


def test_it_lasts_to_the_end_of_publishing_and_begins_with_it() -> None:
    assert longest([*confirms((10, 60)), waiting(2, 120)]) == {"q1": pytest.approx(30, abs=0.15)}
    assert told([waiting(-5, 120)])["outages"] == {"longest_s": 89.99, "total_s": 89.99, "ratio": 0.9999, "count": 1}


def test_what_is_shorter_than_a_second_is_not_reported() -> None:
    assert longest([*confirms((0, 20), (20.88, 90)), waiting(19, 50)]) == {}
    assert longest([*confirms((0, 20), (20.98, 90)), waiting(19, 50)]) == {"q1": pytest.approx(1.08, abs=0.03)}


def test_all_queues_are_out_where_none_confirms() -> None:
    hanging = [waiting(5, 89, queue=0), waiting(5, 89, queue=1)]
    rows = [*confirms((0, 20), (50, 90)), *confirms((0, 30), (60, 90), queue=1), *hanging]
    found = told(rows, KILL)
    assert found["outages"] == {"longest_s": pytest.approx(20.1, abs=0.1), "total_s": pytest.approx(20.1, abs=0.1)} | {
        "ratio": pytest.approx(0.223, abs=0.002),
        "count": 1,
    }
    assert {name: row["count"] for name, row in found["queues"].items()} == {"q1": 1, "q2": 1}
    assert all("step 0" in row["beside"] for row in found["worst"])
    assert len(found["worst"]) == 2
    assert found["worst"][0]["start_s"] == pytest.approx(19.9, abs=0.05)


def worker(at_s: float, name: str, change: str) -> Event:
    return event(at_s, "worker", worker=name, event=change, node="a1", detail="")


def test_how_long_publishers_were_refused() -> None:
    lost = [worker(20, "publisher-0", "connection_lost"), worker(26, "publisher-0", "connected")]
    other = [worker(24, "publisher-1", "killed"), worker(25, "publisher-1", "started")]
    again = [worker(31, "publisher-1", "connected"), worker(88, "publisher-1", "connection_lost")]
    nacks = [waiting(50 + n / 2, 50 + n / 2, Outcome.NACKED) for n in range(5)]
    found = told([*confirms((0, 90)), *nacks], lost, other, again, blocked(40, 44), blocked(89, None))
    assert found["publishers"] == {
        "blocked": {"longest_s": 4, "total_s": 5},
        "nacked": {"longest_s": pytest.approx(2.02), "total_s": pytest.approx(2.02)},
        "disconnected": {"longest_s": 7, "total_s": 13},
    }


def test_how_long_consumers_were_without() -> None:
    deliveries = [deliver(n, n / 10) for n in range(900) if not 300 <= n < 450]
    lost = [worker(30, "consumer-0", "connection_lost"), worker(42, "consumer-0", "connected")]
    found = told(confirms((0, 90)), lost, deliveries=deliveries)
    assert found["consumers"]["without"] == {"longest_s": pytest.approx(15, abs=0.1)} | {
        "total_s": pytest.approx(15, abs=0.1)
    }
    assert found["consumers"]["disconnected"] == {"longest_s": 12, "total_s": 12}
    quiet = told(confirms((0, 30), (45, 90)), deliveries=deliveries)
    assert quiet["consumers"]["without"]["longest_s"] == 0, "nothing was due"


@pytest.mark.parametrize(
    ("events", "longest_s"), [((), 90), ((event(0, "queues", queues={}, read_at_drain=["q2"]),), 0)]
)
def test_a_queue_that_delivered_nothing_at_all_was_without(events: tuple[Event, ...], longest_s: float) -> None:
    """q2 has consumers, or is read at the drain only."""
    deliveries = [deliver(n, n / 10) for n in range(900)]
    loaded = [load(0, 20), worker(0.1, "consumer-0", "connected"), *events]
    found = told([*confirms((0, 90)), *confirms((0, 90), queue=1)], *loaded, deliveries=deliveries)
    assert found["consumers"]["without"]["longest_s"] == pytest.approx(longest_s, abs=0.1)


def objective(rows: list[Row], *events: Any, **bounds: float) -> Finding:
    return Uptime.model_validate(bounds).check(history(rows, (), [cluster(), queues("q1"), phases(), *events]))


def test_uptime_empty() -> None:
    assert Uptime(ratio_min=0.9).check(history()).verdict is Verdict.UNKNOWN


OUT = [*confirms((0, 20), (50, 90)), waiting(19, 80)]


@pytest.mark.parametrize(
    ("bounds", "verdict"),
    [
        ({"outage_s_max": 31}, Verdict.VALID),
        ({"outage_s_max": 30}, Verdict.INVALID),
        ({"ratio_min": 0.66}, Verdict.VALID),
        ({"ratio_min": 0.67}, Verdict.INVALID),
        ({"outage_s_max": 31, "ratio_min": 0.67}, Verdict.INVALID),
    ],
)
def test_uptime_at_its_bounds(bounds: dict[str, float], verdict: Verdict, message: Messages) -> None:
    finding = objective(OUT, KILL, node_states(), **bounds)
    assert (finding.verdict, finding.coverage) == (verdict, Coverage(90.0, 90.0))
    message(finding.summary)
    assert "q1" in finding.summary
    assert "+19.91" in finding.summary
    assert "30.1 s" in finding.summary.replace("30.08", "30.1")
    assert len(finding.examples) == (verdict is Verdict.INVALID)


def test_no_fault_is_an_excuse() -> None:
    assert objective(OUT, KILL, outage_s_max=10).verdict is Verdict.INVALID
    assert "step 0" in objective(OUT, KILL, outage_s_max=10).examples[0]


def test_where_no_one_tried_an_outage_may_hide(message: Messages) -> None:
    silent = confirms((0, 20), (50, 90))
    finding = objective(silent, outage_s_max=20)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "q1" in finding.summary
    assert "+19.91" in finding.summary
    assert finding.coverage is not None
    assert finding.coverage.judged == pytest.approx(60, abs=0.2)
    assert objective(silent, outage_s_max=31).verdict is Verdict.VALID


def test_the_loads_own_pause_hides_none() -> None:
    pause = load(10, 100, (100, 10), (0, 30))
    assert objective(confirms((0, 20), (50, 90)), pause, outage_s_max=2).verdict is Verdict.VALID


def test_a_confirm_parts_two_outages_that_touch() -> None:
    """One is under way all the time; of the two silences each is shorter than the bound."""
    rows = [publish(0, 0), publish(1, 8), publish(2, 16), *confirms((16, 90), queue=0)[3:], waiting(0, 30)]
    finding = objective(rows, outage_s_max=9)
    assert (finding.verdict, finding.numbers["outage_s"]) == (Verdict.VALID, 8)
    assert objective(rows, outage_s_max=7).verdict is Verdict.INVALID
