from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest

from rabbitmq_resilience.checkers.checker_catalogue import ASSUMPTIONS, INVARIANTS
from rabbitmq_resilience.checkers.judge import Judgement, judge
from rabbitmq_resilience.checkers.recorded_history import load_history
from rabbitmq_resilience.checkers.verdict import Assumption, Checker, Coverage, Finding, History, Scope, Verdict
from rabbitmq_resilience.history.dead_letter_routes import DeadLetterRoutes
from rabbitmq_resilience.history.events import Event, SampleEvent
from rabbitmq_resilience.history.history import DELIVERIES, DELIVERIES_SUFFIX, PUBLISHES, PUBLISHES_SUFFIX, StreamWriter
from rabbitmq_resilience.history.recorded_alerts import RecordedAlerts, RuleGroup, write_alerts
from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.history.run_directory import RunDirectory
from tests.invariants.literal import (
    THREE,
    Row,
    apart,
    cluster,
    deliver,
    event,
    fault,
    history,
    load,
    node_states,
    phases,
    publish,
    sample,
    told,
    us,
)
from tests.messages import Messages

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN


@dataclass(frozen=True)
class Says:
    """An assumption of the whole run, or an invariant that forgives ``of_some``."""

    verdict: Verdict
    scope: ClassVar[Scope] = "run"
    forgives: ClassVar[frozenset[str]] = frozenset({"of_some", "of_valid"})

    def check(self, history: History) -> Finding:
        return Finding(self.verdict, f"said {self.verdict} on {len(history.events)} events")


@dataclass(frozen=True)
class SaysStrictly(Says):
    """An assumption of some invariants, or an invariant that forgives nothing."""

    scope: ClassVar[Scope] = "invariants"
    forgives: ClassVar[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class SaysOfValid(Says):
    """An assumption without which nothing is VALID."""

    scope: ClassVar[Scope] = "invariants_and_valid"


class Raises(Says):
    def check(self, history: History) -> Finding:
        raise ZeroDivisionError(f"{len(history.events)} is not enough")


def judged(
    *verdicts: Verdict, whole: Verdict = VALID, of_some: Verdict = VALID, of_valid: Verdict = VALID
) -> Judgement:
    """The first invariant, ``a``, needs all assumptions; the others forgive ``of_some`` and ``of_valid``."""
    kinds = (SaysStrictly, Says, Says)
    invariants: dict[str, Checker] = {n: kind(v) for n, kind, v in zip("abc", kinds, verdicts, strict=False)}
    assumptions: dict[str, Assumption] = {
        "whole": Says(whole),
        "of_some": SaysStrictly(of_some),
        "of_valid": SaysOfValid(of_valid),
    }
    return judge(history(), invariants, assumptions)


@pytest.mark.parametrize(
    ("verdicts", "whole", "of_some", "overall"),
    [
        ([VALID, VALID], VALID, VALID, VALID),
        ([VALID, INVALID, UNKNOWN], VALID, VALID, INVALID),
        ([VALID, UNKNOWN], VALID, VALID, UNKNOWN),
        ([VALID, VALID], UNKNOWN, VALID, UNKNOWN),
        ([INVALID, VALID], UNKNOWN, VALID, UNKNOWN),
        ([VALID, VALID], VALID, UNKNOWN, UNKNOWN),
        ([INVALID, VALID], VALID, UNKNOWN, UNKNOWN),
        ([VALID, INVALID], VALID, UNKNOWN, INVALID),
        ([], VALID, VALID, UNKNOWN),
    ],
)
def test_combinations(verdicts: Sequence[Verdict], whole: Verdict, of_some: Verdict, overall: Verdict) -> None:
    assert judged(*verdicts, whole=whole, of_some=of_some).verdict is overall


@pytest.mark.parametrize(
    ("verdicts", "overall"),
    [
        ([INVALID, VALID], UNKNOWN),  # which does not forgive it
        ([VALID, INVALID], INVALID),
        ([VALID, VALID], UNKNOWN),
        ([UNKNOWN, UNKNOWN], UNKNOWN),
    ],
)
def test_nothing_is_valid_without_what_all_validity_needs(verdicts: Sequence[Verdict], overall: Verdict) -> None:
    assert judged(*verdicts, of_valid=UNKNOWN).verdict is overall
    forgiving = judge(history(), {"b": Says(VALID)}, {"of_valid": SaysOfValid(UNKNOWN)})
    assert forgiving.verdict is UNKNOWN
    assert "of_valid" in forgiving.reason


def test_findings_are_shown_though_the_run_means_nothing(message: Messages) -> None:
    judgement = judged(INVALID, whole=UNKNOWN)
    assert judgement.findings["a"].verdict is INVALID
    message(judgement.reason)
    assert "whole" in judgement.reason


def test_a_guarded_finding_shows_what_it_lacks_and_what_was_seen(message: Messages) -> None:
    finding = judged(INVALID, of_some=UNKNOWN).findings["a"]
    assert finding.verdict is UNKNOWN
    message(finding.summary)
    assert "of_some" in finding.summary


def test_a_checker_that_raises_is_unknown_and_shows_why(message: Messages) -> None:
    judgement = judge(history(), {"a": Raises(VALID), "b": Says(VALID)}, {})
    assert judgement.verdict is UNKNOWN
    message(judgement.reason)
    assert "ZeroDivisionError: 0 is not enough" in judgement.reason


def test_a_checker_that_raises_hides_no_violation() -> None:
    assert judge(history(), {"a": Raises(VALID), "b": Says(INVALID)}, {}).verdict is INVALID


def test_an_assumption_that_raises_is_unknown() -> None:
    assert judge(history(), {"a": Says(INVALID)}, {"of all": Raises(VALID)}).verdict is UNKNOWN


def test_what_is_forgiven_exists_and_is_not_of_the_whole_run() -> None:
    for invariant in INVARIANTS.values():
        assert invariant.forgives <= ASSUMPTIONS.keys()
        assert all(ASSUMPTIONS[name].scope != "run" for name in invariant.forgives)


def every_invariant() -> dict[str, Checker]:
    """With its default bounds, as far as it has some and they fit 20 messages/s."""
    stated = {"uptime": {"outage_s_max": 5}, "flow": {"window_s": 2}}
    return {name: invariant.model_validate(stated.get(name, {})) for name, invariant in INVARIANTS.items()}


def no_alerts() -> RecordedAlerts:
    """Rules that were evaluated all the time, and none of which fired."""
    return RecordedAlerts([RuleGroup("mine", 1.0, ["Something"], [(us(-1), us(96))])], [])


def whole_run() -> History:
    times = [i / 20 for i in range(1800)]
    looks = [both_queues(at) for at in range(95)]
    events = [cluster(), with_dead_letters(), phases(), node_states(), looks]
    cut = fault(20, 25, cut=apart(["a1"], ["b1", "c1"]))
    declared = [event(22, "declaration", item="queue x", node="b1", state=state) for state in ("asked", "created")]
    known = event(94, "metadata", nodes={node: ["queue x"] for node in THREE})
    drained = event(94, "drain", complete=True, confirmed=1800, received=1800, unconsumed=0, detail="")
    publishes = [publish(n, at_s) | {"node": 1} for n, at_s in enumerate(times)]
    deliveries = [deliver(n, at_s + 0.01) for n, at_s in enumerate(times)]
    rejected = DeadLetterRoutes({0: (1,)}, ONE_IN).rejected(np.zeros(len(times), int), np.arange(len(times)))
    deliveries += [deliver(n, times[n] + 0.02, queue=1, consumer=1) for n in np.flatnonzero(rejected).tolist()]
    rebalanced = fault(40, 40.5, step=9, name="rebalance", operation=True)
    asked = [event(at, "flow_states", node="a1", connections={"running": 2}, flow_queues=[]) for at in range(5, 95, 5)]
    happened = [*events, load(10, 20), cut, rebalanced, declared, known, asked, drained, *of_application()]
    return replace(history(publishes, deliveries, happened, metrics=[*whole_metrics()]), alerts=no_alerts)


def of_application() -> list[Event]:
    """A program that publishes, consumes, commits and acknowledges everything, over one connection that lasts."""
    idle = dict.fromkeys(("published", "plain", "automatic", "returned", "unsettled"), 0)
    use = {"publisher": 0, "consumer": 0, "delivered": 1800, "acknowledged": 1800, **idle, "unsettled_in": {}}
    said = dict.fromkeys(("uncommitted", "early", "unmatched", "unread"), 0)
    use["work"] = {"committed": 1800, "acknowledged": 1800, "first_unread": "", **said}
    wire = {"opened": {"process": "web-0", "node": "b1"}, "connected": {}}
    wire["consuming"] = {"consumer": "c", "queue": "q1"}
    return [
        event(0, "application", process="web-0", event="started", pid=1),
        *(event(0, "wire", connection=0, what=what, fields=fields) for what, fields in wire.items()),
        event(94, "application_use", processes={"web-0": use}),
    ]


ONE_IN = 10


def with_dead_letters() -> Event:
    places = {name: {"type": "quorum", "members": list(THREE), "leader": "a1"} for name in ("q1", "dead")}
    letters = {
        "queues": {"q1": "dead"},
        "strategy": "at_least_once",
        "reject_one_in": ONE_IN,
        "limited": False,
        "held_s": 0,
    }
    return event(0, "queues", queues=places, dead_letters=letters)


def both_queues(at_s: float) -> SampleEvent:
    one, other = sample(at_s), sample(at_s, leader="b1", names=("dead",))
    return replace(one, queues={**one.queues, **other.queues})


def whole_metrics() -> Iterator[list[Row]]:
    of_nodes = {"memory_used": 2e8, "memory_limit": 1e9, "alarm_memory": 0, "alarm_disk": 0}
    of_nodes |= {"disk_free": 1e10, "disk_limit": 5e7}
    of_queues = {"unacked": 0, "raft_written_index": 50, "raft_commit_index": 50}
    for node in THREE:
        yield from (told(metric, node, value) for metric, value in of_nodes.items())
        yield from (told(metric, node, value, queue=q) for q in ("q1", "dead") for metric, value in of_queues.items())


def test_a_sane_run_is_valid_by_every_invariant() -> None:
    judgement = judge(whole_run(), every_invariant())
    assert (judgement.verdict, judgement.reason) == (VALID, "")


def test_an_empty_history_is_never_valid() -> None:
    assert judge(history(), every_invariant()).verdict is UNKNOWN


def test_a_recorded_run_gives_the_same_judgement(tmp_path: Path) -> None:
    literal, run = whole_run(), RunDirectory.create(tmp_path, "literal")
    run.fault_file.write_text("version: 1\n")
    run.events_file.write_text("".join(json.dumps(e.as_fields()) + "\n" for e in literal.events))
    for suffix, schema, batches in (
        (PUBLISHES_SUFFIX, PUBLISHES, literal.publishes()),
        (DELIVERIES_SUFFIX, DELIVERIES, literal.deliveries()),
    ):
        writer = StreamWriter(run.history / f"w0{suffix}", schema)
        for batch in batches:
            writer.append({name: batch.column(name if name != "route" else "queue") for name in schema.names})
        writer.close()
    Routes.plain(1).save(run.history)
    pq.write_table(literal.metrics(), run.metrics_file)
    write_alerts(no_alerts(), run.alerts_file)
    invariants = every_invariant()
    again = judge(load_history(run.path), invariants)
    assert again.as_dict() == judge(literal, invariants).as_dict()
    assert json.loads(json.dumps(again.as_dict()))["verdict"] == "VALID"


def test_what_is_valid_though_nothing_was_judged_is_unknown(message: Messages) -> None:
    class Covers(Says):
        def check(self, history: History) -> Finding:
            return Finding(self.verdict, "all is well", coverage=Coverage(len(history.events), 5))

    for verdict, events, overall in ((VALID, [], UNKNOWN), (VALID, [phases()], VALID), (INVALID, [], INVALID)):
        judgement = judge(history((), (), events), {"covers": Covers(verdict)}, {})
        assert judgement.verdict is overall
        assert judgement.as_dict()["invariants"]["covers"]["coverage"] == {"judged_s": 5 * len(events), "demanded_s": 5}
    reason = judge(history(), {"covers": Covers(VALID)}, {}).reason
    message(reason)
    assert "covers" in reason
