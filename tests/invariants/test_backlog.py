from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest

from rabbitmq_resilience.checkers.backlog import Backlog
from rabbitmq_resilience.checkers.verdict import Coverage, Finding, Verdict
from tests.invariants.literal import PHASES, cluster, event, fault, history, load, phases, queues
from tests.messages import Messages


def held_at(depths: Sequence[tuple[float, int | None]], at: float) -> int | None:
    """On the straight line from each point to the next; None from a point where nobody tells, and before the first."""
    for (start_s, depth), (end_s, later) in itertools.pairwise([*depths, (999, depths[-1][1])]):
        if start_s <= at < end_s:
            rises = 0 if depth is None or later is None else (later - depth) * (at - start_s) / (end_s - start_s)
            return None if depth is None else math.floor(depth + rises)
    return None


def check(*depths: tuple[float, int | None], end_s: float | None = None, **bounds: float) -> Finding:
    """``depths``: what q1 holds at these moments, sampled every second. The steady phase ends at 10 s, and the run just
    after the last of them, or at ``end_s``."""
    ends_s = end_s or (depths[-1][0] + 0.5 if depths else 100)
    samples = [
        event(at, "sample", queues={"q1": {"ready": held_at(depths, at), "unacked": 0}}, memory_bytes={})
        for at in range(math.ceil(ends_s) if depths else 0)
    ]
    told = [cluster(), queues("q1"), phases(steady=0, chaos=10, end=ends_s)]
    return Backlog.model_validate(bounds).check(history((), (), [*told, *samples]))


GROWN = ((5, 100), (10, 100), (20, 5000), (30, 10_000), (40, 4000), (50, 400), (60, 90))


def test_empty() -> None:
    assert check().verdict is Verdict.UNKNOWN
    assert check((20, None)).verdict is Verdict.UNKNOWN


def test_sane() -> None:
    finding = check(*GROWN)
    assert finding.verdict is Verdict.VALID
    assert finding.numbers == {
        "backlog_peak": 10_000,
        "backlog_peak_at_s": 30,
        "backlog_steady": 100,
        "drained_after_s": 20,
    }


def test_the_steady_phase_ends_where_chaos_begins() -> None:
    assert check((0, 100), (9, 100), (10, 500), (20, 5000), (60, 5)).numbers["backlog_steady"] == 100
    assert check((10, 500), (20, 5000), (60, 5)).numbers["backlog_steady"] == 0


def test_what_one_look_of_the_steady_phase_found_is_not_always_under_way() -> None:
    grown = ((10, 100), (49, 100), (50, 8000), (51, 7000), (80, 7000))
    spike = ((0, 100), (4, 100), (5, 7900), (6, 100), *grown)
    assert check(*spike, drained_within_s=10).verdict is Verdict.INVALID
    plateau = ((0, 100), (4, 100), (5, 7900), (6, 7900), (7, 100), *grown)
    assert check(*plateau, drained_within_s=10).verdict is Verdict.VALID
    assert check((9, 300), (10, 300), (50, 800), (51, 300)).numbers["backlog_steady"] == 300


def test_drained_is_what_holds_no_more_than_five_percent() -> None:
    assert check((5, 100), (10, 100), (30, 10_000), (50, 500), (60, 90)).numbers["drained_after_s"] == 20
    assert check((5, 100), (10, 100), (30, 10_000), (50, 501), (60, 90)).numbers["drained_after_s"] == 21
    assert check((20, 1), (21, 0)).numbers["drained_after_s"] == 1


@pytest.mark.parametrize("lacking", ["steady", "chaos"])
def test_unknown_without_the_steady_phase(lacking: str) -> None:
    told = phases(**{name: at_s for name, at_s in PHASES.items() if name != lacking})
    depth = event(20, "sample", queues={"q1": {"ready": 1, "unacked": 0}}, memory_bytes={})
    assert Backlog().check(history((), (), [cluster(), queues("q1"), told, depth])).verdict is Verdict.UNKNOWN


def test_sane_within_its_bound() -> None:
    assert check(*GROWN, drained_within_s=20).verdict is Verdict.VALID


def test_sane_queues_that_never_grew_have_nothing_to_drain() -> None:
    finding = check((5, 100), (10, 100), (20, 300), (30, 250), drained_within_s=1)
    assert (finding.verdict, finding.numbers["drained_after_s"]) == (Verdict.VALID, None)
    assert check((5, 100), (10, 100), (20, 301), (30, 250), (50, 80), drained_within_s=1).verdict is Verdict.INVALID


def test_pathological_drained_too_late(message: Messages) -> None:
    finding = check(*GROWN, drained_within_s=19)
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "10000" in finding.summary


def test_pathological_grown_again() -> None:
    finding = check(*GROWN, (70, 3000), (80, 20), drained_within_s=30)
    assert (finding.verdict, finding.numbers["drained_after_s"]) == (Verdict.INVALID, 49)


def test_pathological_never_drained() -> None:
    never = ((5, 100), (10, 100), (20, 5000), (60, 4000))
    for within_s, verdict, shown in ((30, Verdict.INVALID, 1), (40, Verdict.INVALID, 1), (60, Verdict.UNKNOWN, 0)):
        finding = check(*never, drained_within_s=within_s)
        assert (finding.verdict, len(finding.examples)) == (verdict, shown)
    assert check(*never).numbers["drained_after_s"] is None


def test_a_backlog_that_was_not_built_cannot_tell() -> None:
    assert check(*GROWN, peak_min=10_001).verdict is Verdict.UNKNOWN
    assert check(*GROWN, peak_min=10_000).verdict is Verdict.VALID


def test_pathological_no_one_reports_from_the_fault_on(message: Messages) -> None:
    finding = check((0, 100), (12, None), end_s=60)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "+11.000 s" in finding.summary
    assert finding.coverage == Coverage(1.0, 50.0)
    assert check((0, 100), (20, 5000), (40, 90), (50, None), end_s=65, drained_within_s=30).verdict is Verdict.UNKNOWN


def test_what_no_one_reported_is_no_gap_in_short_and_in_the_middle() -> None:
    assert check((0, 100), (20, 5000), (30, None), (38, 90), end_s=60, drained_within_s=18).verdict is Verdict.VALID
    finding = check((0, 100), (20, None), (40, 90), end_s=60)
    assert (finding.verdict, finding.coverage) == (Verdict.VALID, Coverage(29.0, 50.0))


@pytest.mark.parametrize(("within_s", "verdict"), [(41, Verdict.VALID), (40, Verdict.UNKNOWN), (9, Verdict.UNKNOWN)])
def test_a_backlog_may_have_been_longest_while_no_one_reported(within_s: int, verdict: Verdict) -> None:
    """Nobody told from 19 s to 50 s; at 60 s it is drained, but of a longer one it might have been before."""
    hidden = ((0, 100), (20, None), (50, 5000), (60, 90))
    assert check(*hidden, end_s=70, drained_within_s=within_s).verdict is verdict


@pytest.mark.parametrize(("within_s", "verdict"), [(31, Verdict.VALID), (30, Verdict.UNKNOWN)])
def test_queues_may_have_grown_while_no_one_reported(within_s: int, verdict: Verdict) -> None:
    assert check((0, 100), (20, None), (50, 100), end_s=70, drained_within_s=within_s).verdict is verdict


@pytest.mark.parametrize(("told", "verdict"), [("connection_lost", Verdict.VALID), ("connected", Verdict.UNKNOWN)])
def test_an_exclusive_queue_that_is_not_listed_holds_nothing_while_its_consumer_is_away(
    told: str, verdict: Verdict
) -> None:
    """It held 5,000 messages until 30 s, and is not listed from then on."""
    owned = event(0, "queues", queues={"q1": _place(), "own": _place(kind="exclusive", consumer=0)})
    samples = [
        event(at, "sample", queues={"q1": _row(0)} | ({"own": _row(5000 * (at >= 20))} if at < 30 else {}))
        for at in range(95)
    ]
    of_consumer = [
        event(at_s, "worker", worker="consumer-0", event=what, node="a1")
        for at_s, what in ((1, "connected"), (29, told))
    ]
    whole = [cluster(), owned, phases(), *samples, *of_consumer]
    assert Backlog(drained_within_s=30).check(history((), (), whole)).verdict is verdict


def test_a_backlog_may_be_usual_where_the_steady_phase_was_not_seen() -> None:
    """500 messages are left, which are too many unless there were always as many."""
    left_over = ((10, 500), (29, 500), (30, 2000), (49, 2000), (50, 500), (95, 500))
    assert check((0, 500), *left_over, drained_within_s=20).verdict is Verdict.VALID
    assert check((0, 50), *left_over, drained_within_s=20).verdict is Verdict.INVALID
    assert check((0, None), *left_over, drained_within_s=20).verdict is Verdict.UNKNOWN
    assert check((0, None), *left_over[:-2], (50, 90), (95, 90), drained_within_s=20).verdict is Verdict.VALID


@pytest.mark.parametrize(("deleted", "verdict"), [("q2", Verdict.VALID), ("q1", Verdict.UNKNOWN), ("", Verdict.VALID)])
def test_only_the_queue_that_a_step_deleted_may_be_missing(deleted: str, verdict: Verdict) -> None:
    """q2 holds 5,000 messages, and is not listed from 40 to 60 s. Early records do not say which was deleted."""
    rows = [{"q1": _row(0)} | ({} if 40 <= at < 60 else {"q2": _row(5000 if 38 <= at < 40 else 0)}) for at in range(95)]
    step = fault(39.5, 60, name="delete_queue", deleted=deleted)
    whole = [cluster(), queues("q1", "q2"), phases(), step]
    samples = [event(at, "sample", queues=row) for at, row in enumerate(rows)]
    assert Backlog(drained_within_s=5).check(history((), (), [*whole, *samples])).verdict is verdict


def test_queues_that_are_not_of_the_load_do_not_count() -> None:
    rows = {"q1": _row(0), "churn-1": {"ready": None, "unacked": None}, "churn-2": _row(5000)}
    whole = [cluster(), queues("q1"), phases(), *(event(at, "sample", queues=rows) for at in range(95))]
    finding = Backlog(drained_within_s=5).check(history((), (), whole))
    assert (finding.verdict, finding.numbers["backlog_peak"]) == (Verdict.VALID, 0)


@pytest.mark.parametrize(("peak_at_s", "verdict"), [(30, Verdict.VALID), (60, Verdict.INVALID)])
def test_a_second_of_the_load_is_one_of_the_load_of_then(peak_at_s: int, verdict: Verdict) -> None:
    """300 messages wait for 20 s from 30 s on. The target is 1,000/s for 20 s, then or later, and else 10/s."""
    steps = load(10, 10, (10, peak_at_s - 10), (1000, 20))
    samples = [event(at, "sample", queues={"q1": _row(300 if 30 <= at < 50 else 2)}) for at in range(95)]
    whole = [cluster(), queues("q1"), phases(), steps, *samples]
    assert Backlog(drained_within_s=10).check(history((), (), whole)).verdict is verdict


@pytest.mark.parametrize(("per_s", "verdict"), [(1000, Verdict.UNKNOWN), (10, Verdict.VALID)])
def test_in_a_gap_queues_fill_by_the_load_of_then(per_s: int, verdict: Verdict) -> None:
    """The depths are not known from 41 to 55 s; at most 1,000 messages were seen before."""
    depths = [None if 40 < at < 55 else 1000 if 20 <= at < 22 else 0 for at in range(95)]
    samples = [event(at, "sample", queues={"q1": _row(held)}) for at, held in enumerate(depths) if held is not None]
    whole = [cluster(), queues("q1"), phases(), load(10, 10, (10, 30), (per_s, 30)), *samples]
    assert Backlog(drained_within_s=10).check(history((), (), whole)).verdict is verdict


def _place(kind: str = "quorum", consumer: int | None = None) -> dict[str, object]:
    return {"type": kind, "members": ["a1"], "leader": "a1", "consumer": consumer}


def _row(ready: int) -> dict[str, int]:
    return {"ready": ready, "unacked": 0}
