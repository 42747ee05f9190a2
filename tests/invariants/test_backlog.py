from __future__ import annotations

import pytest

from invariants.backlog import Backlog
from invariants.verdict import Finding, Verdict
from reports.events import Event
from tests.invariants.literal import PHASES, cluster, event, history, phases, queues

BASE: list[Event | list[Event]] = [cluster(), queues("q1"), phases()]


def check(*depths: tuple[float, int | None], **bounds: float) -> Finding:
    """``depths``: at_s and what q1 holds. The steady phase ends at 10 s, and the run at 100 s."""
    samples = [
        event(at_s, "sample", queues={"q1": {"ready": depth, "unacked": 0}}, memory_bytes={}) for at_s, depth in depths
    ]
    return Backlog.model_validate(bounds).check(history((), (), [*BASE, *samples]))


GROWN = ((5, 100), (20, 5000), (30, 10_000), (40, 4000), (50, 400), (60, 90))


def test_empty() -> None:
    assert check().verdict is Verdict.UNKNOWN
    assert check((20, None)).verdict is Verdict.UNKNOWN


def test_sane() -> None:
    finding = check(*GROWN)
    assert finding.verdict is Verdict.VALID
    assert finding.numbers == {"backlog_peak": 10_000, "backlog_steady": 100, "drained_after_s": 20}


def test_the_steady_phase_ends_where_chaos_begins() -> None:
    assert check((0, 100), (10, 500), (20, 5000), (60, 5)).numbers["backlog_steady"] == 100
    assert check((10, 500), (20, 5000), (60, 5)).numbers["backlog_steady"] == 0


def test_drained_is_what_holds_no_more_than_five_percent() -> None:
    assert check((5, 100), (30, 10_000), (50, 500), (60, 90)).numbers["drained_after_s"] == 20
    assert check((5, 100), (30, 10_000), (50, 501), (60, 90)).numbers["drained_after_s"] == 30
    assert check((20, 1), (30, 0)).numbers["drained_after_s"] == 10


@pytest.mark.parametrize("lacking", ["steady", "chaos"])
def test_unknown_without_the_steady_phase(lacking: str) -> None:
    told = phases(**{name: at_s for name, at_s in PHASES.items() if name != lacking})
    depth = event(20, "sample", queues={"q1": {"ready": 1, "unacked": 0}}, memory_bytes={})
    assert Backlog().check(history((), (), [cluster(), queues("q1"), told, depth])).verdict is Verdict.UNKNOWN


def test_sane_within_its_bound() -> None:
    assert check(*GROWN, drained_within_s=20).verdict is Verdict.VALID


def test_sane_queues_that_never_grew_have_nothing_to_drain() -> None:
    finding = check((5, 100), (20, 300), (30, 250), drained_within_s=1)
    assert (finding.verdict, finding.numbers["drained_after_s"]) == (Verdict.VALID, None)
    assert check((5, 100), (20, 301), (30, 250), (50, 80), drained_within_s=1).verdict is Verdict.INVALID


def test_pathological_drained_too_late() -> None:
    finding = check(*GROWN, drained_within_s=19)
    assert finding.verdict is Verdict.INVALID
    assert "10000 messages waited" in finding.summary


def test_pathological_grown_again() -> None:
    finding = check(*GROWN, (70, 3000), (80, 20), drained_within_s=30)
    assert (finding.verdict, finding.numbers["drained_after_s"]) == (Verdict.INVALID, 50)


def test_pathological_never_drained() -> None:
    never = ((5, 100), (20, 5000), (60, 4000))
    for within_s, verdict, shown in ((30, Verdict.INVALID, 1), (40, Verdict.INVALID, 1), (60, Verdict.UNKNOWN, 0)):
        finding = check(*never, drained_within_s=within_s)
        assert (finding.verdict, len(finding.examples)) == (verdict, shown)
    assert check(*never).numbers["drained_after_s"] is None


def test_a_backlog_that_was_not_built_cannot_tell() -> None:
    assert check(*GROWN, peak_min=10_001).verdict is Verdict.UNKNOWN
    assert check(*GROWN, peak_min=10_000).verdict is Verdict.VALID
