"""Whether all is there: records that are made up whole, and then lose or change something that is known.

The truth is how a record was made, and what was done to it; nothing of it is worked out from the record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.checkers.wholeness import HistoryWhole
from rabbitmq_resilience.history.expected_record import Account, Recorded
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import PHASES, Row, cluster, deliver, event, history, load, publish, queues

ENDED = ("recovery", {"complete": True}), ("drain", {"complete": True})
STEP = ("injecting", "injected", "proven", "healing", "healed", "heal_proven")
#: Rows that a life which is killed may have written and not counted.
ROWS_A_WRITE = 3


@dataclass
class Record:
    """A record as plain lists: rows of publishes and deliveries, events, and what was counted. ``killed`` are the
    workers that were killed at least once."""

    publishes: list[Row] = field(default_factory=list)
    deliveries: list[Row] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    killed: set[str] = field(default_factory=set)
    troubles: list[str] = field(default_factory=list)

    def happened(self, at_s: float, kind: str, **fields: Any) -> None:
        self.events.append({"at_s": at_s, "kind": kind, **fields})

    def finding(self) -> Finding:
        made = [event(told["at_s"], **{k: v for k, v in told.items() if k != "at_s"}) for told in self.events]
        begun = [cluster(), queues("q1", "q2"), load(10, 100)]
        recorded = Recorded(True, self.troubles, self.steps, self.accounts)
        return HistoryWhole().check(replace(history(self.publishes, self.deliveries, [begun, made]), recorded=recorded))


@st.composite
def records(draw: st.DrawFn) -> Record:
    """A whole record: publishers and consumers of some lives, the last of which stopped in order."""
    record = Record()
    for phase, at_s in PHASES.items():
        record.happened(at_s, "phase", phase=phase)
    for kind, told in ENDED:
        record.happened(91, kind, **told)
    for number in range(draw(st.integers(0, 2))):
        record.steps.append("partition")
        for i, state in enumerate(STEP):
            record.happened(20 + i, "fault", step=number, fault="partition", state=state)
    for index in range(draw(st.integers(1, 2))):
        _publisher(draw, record, index)
    for index in range(draw(st.integers(1, 2))):
        _consumer(draw, record, index)
    return record


def _lives(draw: st.DrawFn, record: Record, worker: str) -> int:
    lives = draw(st.integers(1, 3))
    for life in range(lives):
        last = life == lives - 1
        record.happened(20 * life + 0.1, "worker", worker=worker, event="started", life=life)
        end = ("stopped", 94.5) if last else ("killed", 20 * life + 15)
        record.happened(end[1], "worker", worker=worker, event=end[0], life=life)
    if lives > 1:
        record.killed.add(worker)
    return lives


def _publisher(draw: st.DrawFn, record: Record, index: int) -> None:
    worker = f"publisher-{index}"
    lives = _lives(draw, record, worker)
    outcomes = draw(st.lists(st.sampled_from([*Outcome][1:]), min_size=1, max_size=12))
    settled = draw(st.integers(0, min(len(outcomes), ROWS_A_WRITE))) if lives > 1 else 0
    outcomes[len(outcomes) - settled :] = [Outcome.UNKNOWN] * settled
    order = draw(st.permutations(range(len(outcomes))))
    record.publishes += [publish(n, 1 + n, outcomes[n], publisher=index, queue=n % 2) for n in order]
    counted = outcomes[: len(outcomes) - settled]
    uncounted = draw(st.integers(0, min(ROWS_A_WRITE, len(counted)))) if lives > 1 else 0
    record.accounts.append(
        Account(
            worker,
            index,
            len(counted) - uncounted,
            ROWS_A_WRITE,
            {life: life == lives - 1 for life in range(lives)},
            publishes=True,
            sent=len(outcomes),
            confirmed=counted.count(Outcome.CONFIRMED),
            refused=counted.count(Outcome.NACKED) + counted.count(Outcome.RETURNED),
            unknown=counted.count(Outcome.UNKNOWN),
            settled=settled,
        )
    )


def _consumer(draw: st.DrawFn, record: Record, index: int) -> None:
    worker = f"consumer-{index}"
    lives = _lives(draw, record, worker)
    rows = draw(st.integers(1, 12))
    record.deliveries += [deliver(n, 2 + n, consumer=index) for n in range(rows)]
    uncounted = draw(st.integers(0, min(ROWS_A_WRITE, rows))) if lives > 1 else 0
    streams = {life: life == lives - 1 for life in range(lives)}
    record.accounts.append(Account(worker, index, rows - uncounted, ROWS_A_WRITE, streams))


@given(records())
def test_a_whole_record_is_whole(record: Record) -> None:
    finding = record.finding()
    assert (finding.verdict, finding.examples) == (Verdict.VALID, ())
    assert finding.numbers["workers"] == len(record.accounts)


Damage = Callable[[Record, st.DataObject], None]


def _one(data: st.DataObject, things: list[Any]) -> Any:
    assume(things)
    return data.draw(st.sampled_from(things))


def _a_publish_is_gone(record: Record, data: st.DataObject) -> None:
    record.publishes.remove(_one(data, record.publishes))


def _a_publish_is_there_twice(record: Record, data: st.DataObject) -> None:
    record.publishes.append(_one(data, record.publishes))


def _a_publish_came_to_it(record: Record, data: st.DataObject) -> None:
    """One of a sequence that was never counted as sent; of who was killed a row more may be there, and not this one."""
    account = _one(data, [account for account in record.accounts if account.publishes])
    record.publishes.append(publish(account.sent, 50, publisher=account.index))


def _a_publish_is_of_another(record: Record, data: st.DataObject) -> None:
    _one(data, record.publishes)["publisher"] += 1


def _a_sequence_is_another(record: Record, data: st.DataObject) -> None:
    _one(data, record.publishes)["sequence"] += data.draw(st.sampled_from([1, 2, 1000]))


def _an_outcome_is_another(record: Record, data: st.DataObject) -> None:
    row = _one(data, [row for row in record.publishes if f"publisher-{row['publisher']}" not in record.killed])
    row["outcome"] = Outcome.UNKNOWN if row["outcome"] == Outcome.CONFIRMED else Outcome.CONFIRMED


def _a_delivery_is_gone(record: Record, data: st.DataObject) -> None:
    """One that was counted; of a life that was killed nobody knows what it wrote last."""
    counted = {account.index: account.recorded for account in record.accounts if not account.publishes}
    rows = [row for row in record.deliveries if f"consumer-{row['consumer']}" not in record.killed]
    row = _one(data, rows)
    assert counted[row["consumer"]]
    record.deliveries.remove(row)


def _a_delivery_is_there_twice(record: Record, data: st.DataObject) -> None:
    rows = [row for row in record.deliveries if f"consumer-{row['consumer']}" not in record.killed]
    record.deliveries.append(_one(data, rows))


def _rows_are_of_another_time(record: Record, data: st.DataObject) -> None:
    row = _one(data, record.deliveries)
    row["received_us"] += data.draw(st.sampled_from([-1, 1])) * 10**9


def _an_end_mark_is_gone(record: Record, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(record.accounts) - 1))
    account = record.accounts[number]
    record.accounts[number] = replace(account, streams={**account.streams, max(account.streams): False})


def _a_stream_is_gone(record: Record, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(record.accounts) - 1))
    streams = dict(record.accounts[number].streams)
    del streams[_one(data, list(streams))]
    record.accounts[number] = replace(record.accounts[number], streams=streams)


def _a_stream_came_to_it(record: Record, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(record.accounts) - 1))
    streams = {**record.accounts[number].streams, 7: True}
    record.accounts[number] = replace(record.accounts[number], streams=streams)


def _a_worker_is_silent(record: Record, data: st.DataObject) -> None:
    worker = _one(data, record.accounts).worker
    record.events = [told for told in record.events if told.get("worker") != worker]


def _a_worker_says_no_end(record: Record, data: st.DataObject) -> None:
    """The last end of each worker is that it stopped."""
    ends = [told for told in record.events if told.get("event") == "stopped"]
    record.events.remove(_one(data, ends))


def _a_worker_hung(record: Record, data: st.DataObject) -> None:
    told = _one(data, [told for told in record.events if told.get("event") == "stopped"])
    told["event"] = "hung"


def _a_step_lacks_an_event(record: Record, data: st.DataObject) -> None:
    """But for a proof, which another assumption asks for."""
    told = _one(data, [told for told in record.events if told.get("state") not in (None, "proven")])
    record.events.remove(told)


def _a_step_is_gone(record: Record, data: st.DataObject) -> None:
    step = _one(data, list(range(len(record.steps))))
    record.events = [told for told in record.events if told.get("step") != step]


def _a_step_came_to_it(record: Record, _: st.DataObject) -> None:
    assume(record.steps)
    record.steps.pop()


def _a_step_is_another(record: Record, data: st.DataObject) -> None:
    assume(record.steps)
    record.steps[data.draw(st.integers(0, len(record.steps) - 1))] = "latency"


def _a_phase_is_gone(record: Record, data: st.DataObject) -> None:
    """The last one is what another assumption asks for."""
    named = [told for told in record.events if told["kind"] == "phase" and told["phase"] != "end"]
    record.events.remove(_one(data, named))


def _an_event_of_the_end_is_gone(record: Record, data: st.DataObject) -> None:
    record.events.remove(_one(data, [told for told in record.events if told["kind"] in ("recovery", "drain")]))


def _more_is_settled_than_may_be(record: Record, data: st.DataObject) -> None:
    """As if what a stream lost had been filled in."""
    number = _one(data, [i for i, account in enumerate(record.accounts) if account.publishes])
    account = record.accounts[number]
    kills = sum(told.get("worker") == account.worker and told["event"] == "killed" for told in record.events
                if told["kind"] == "worker")  # fmt: skip
    record.accounts[number] = replace(account, settled=kills * ROWS_A_WRITE + 1)


def _a_file_is_damaged(record: Record, _: st.DataObject) -> None:
    record.troubles.append("history/load.json is missing")


DAMAGES = [value for name, value in sorted(globals().items()) if name.startswith(("_a_", "_an_", "_rows_", "_more_"))]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.strip("_"))
@given(record=records(), data=st.data())
def test_what_is_missing_or_another_is_noticed(damage: Damage, record: Record, data: st.DataObject) -> None:
    damage(record, data)
    finding = record.finding()
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.examples


@given(records(), st.data())
def test_what_a_life_that_was_killed_wrote_and_did_not_count_is_there_all_the_same(
    record: Record, data: st.DataObject
) -> None:
    """A kill between a write and its count makes a row more than was counted, and never one less."""
    number = _one(data, [i for i, a in enumerate(record.accounts) if a.worker in record.killed and a.recorded])
    account = record.accounts[number]
    rows = account.recorded
    record.accounts[number] = replace(account, recorded=rows + ROWS_A_WRITE + 1)
    assert record.finding().verdict is Verdict.UNKNOWN


def test_lives_that_are_numbered_may_be_killed_before_they_say_a_word() -> None:
    def whole(*happened: tuple[str, int]) -> Verdict:
        told = [
            event(i, "worker", worker="consumer-0", event=what, life=life) for i, (what, life) in enumerate(happened)
        ]
        return HistoryWhole().check(history((), (), told)).verdict

    assert whole(("started", 0), ("killed", 0), ("killed", 1), ("started", 2), ("stopped", 2)) is Verdict.VALID
    assert whole(("started", 0), ("started", 1), ("stopped", 1)) is Verdict.UNKNOWN
    assert whole(("started", 0), ("killed", 0), ("started", 1), ("hung", 1)) is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "states",
    [
        ("skipped",),
        STEP,
        ("injecting", "unproven", "healing", "healed", "heal_proven"),
        ("injecting", "injected", "healing", "healed", "proven", "heal_proven"),
        ("injecting", "injected", "unproven", "healing", "heal_unproven"),
        ("injecting", "injected", "proven", "healing", "healed", "heal_unproven"),
    ],
)
def test_what_the_nemesis_reports_of_a_step_is_whole(states: tuple[str, ...]) -> None:
    record = of_one_step(*states)
    assert record.finding().verdict is Verdict.VALID
    record.events.pop(-1 if len(states) > 1 else -2)
    record.happened(80, "fault", step=0, fault="partition", state="injecting")
    assert record.finding().verdict is Verdict.UNKNOWN


def of_one_step(*states: str, at_s: float = 20) -> Record:
    record = Record(steps=["partition"])
    for phase, phase_at_s in PHASES.items():
        record.happened(phase_at_s, "phase", phase=phase)
    for kind, told in ENDED:
        record.happened(91, kind, **told)
    for i, state in enumerate(states):
        record.happened(at_s + i, "fault", step=0, fault="partition", state=state)
    return record


@pytest.mark.parametrize(("at_s", "verdict"), [(90, Verdict.VALID), (90.1, Verdict.UNKNOWN)])
def test_no_step_goes_on_after_the_end(at_s: float, verdict: Verdict) -> None:
    assert of_one_step(*STEP, at_s=at_s).finding().verdict is verdict
