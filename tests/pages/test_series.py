from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from rabbitmq_resilience.history.events import SampleEvent, event_of
from rabbitmq_resilience.history.history import DELIVERIES, PUBLISHES, Outcome
from rabbitmq_resilience.report.series import Batches, Series, series
from rabbitmq_resilience.report.timeline import POINTS_MAX, SwimLane, TimelineInterval

S = 1_000_000


def publishes(*rows: tuple[int, int, float, Outcome, float]) -> pa.RecordBatch:
    """Rows of (publisher, sequence, sent_s, outcome, outcome_s)."""
    return pa.RecordBatch.from_pylist(
        [
            {"publisher": p, "route": 0, "sequence": n, "due_us": int(sent * S), "sent_us": int(sent * S)}
            | {"outcome": outcome, "outcome_us": int(known * S), "node": 0}
            for p, n, sent, outcome, known in rows
        ],
        schema=PUBLISHES,
    )


def deliveries(*rows: tuple[int, int, float], intact: bool = True) -> pa.RecordBatch:
    """Rows of (publisher, sequence, received_s)."""
    return pa.RecordBatch.from_pylist(
        [
            {"consumer": 0, "publisher": p, "queue": 0, "sequence": n, "received_us": int(at * S)}
            | {"redelivered": False, "intact": intact}
            for p, n, at in rows
        ],
        schema=DELIVERIES,
    )


def of(*batches: pa.RecordBatch) -> Batches:
    return lambda: iter(batches)


def test_empty() -> None:
    seen = series(of(), of(), [])

    assert seen.totals == {"sent": 0, "confirmed": 0, "received": 0, "refused": 0, "unknown": 0}
    assert seen.rates["sent"] == [0.0]
    assert seen.confirm_ms["p50"] == [None]
    assert seen.duration_s == 0


def test_sane() -> None:
    seen = series(
        of(publishes((0, 0, 10.0, Outcome.CONFIRMED, 10.02), (0, 1, 10.5, Outcome.CONFIRMED, 11.5))),
        of(deliveries((0, 0, 10.04), (0, 1, 11.7))),
        [],
    )

    assert seen.bucket_s == 1
    assert seen.at_s == [0.5, 1.5]
    rest = pytest.approx(1 / 0.7, abs=0.01)  # the last bucket is as long as the rest of the record
    assert (seen.rates["sent"], seen.rates["confirmed"], seen.rates["received"]) == ([2, 0], [1, rest], [1, rest])
    assert seen.confirm_ms["max"] == [20, 1000]
    assert seen.delivery_ms["max"] == [40, 1200]


def test_each_outcome_is_counted_where_it_ended() -> None:
    outcomes = (Outcome.NACKED, Outcome.RETURNED, Outcome.UNKNOWN, Outcome.CONFIRMED)
    rows = [(0, n, 0.0, outcome, 1.5) for n, outcome in enumerate(outcomes)]

    seen = series(of(publishes(*rows, (0, 4, 0.0, Outcome.NEVER_SENT, 0.0))), of(), [])

    assert seen.totals == {"sent": 4, "confirmed": 1, "received": 0, "refused": 2, "unknown": 1}
    assert seen.rates["refused"] == [pytest.approx(2 / 1.5, abs=0.01)]


def test_what_was_never_sent_does_not_stretch_time() -> None:
    never, sent = (0, 0, 0.0, Outcome.NEVER_SENT, 0.0), (0, 1, 5000.0, Outcome.CONFIRMED, 5001.0)

    assert series(of(publishes(never, sent)), of(), []).duration_s == 1


def test_rows_out_of_order_and_several_publishers() -> None:
    seen = series(
        of(
            publishes((1, 5000, 2.0, Outcome.CONFIRMED, 2.1), (0, 7, 1.0, Outcome.CONFIRMED, 1.1)),
            publishes((1, 0, 0.0, Outcome.CONFIRMED, 0.1)),
        ),
        of(deliveries((0, 7, 1.3), (1, 0, 0.2), (1, 5000, 2.6))),
        [],
    )

    assert seen.delivery_ms["max"] == [200, 300, 600]


def test_a_delivery_of_what_no_one_sent_has_no_latency() -> None:
    seen = series(
        of(publishes((0, 3, 0.0, Outcome.CONFIRMED, 0.1))),
        of(deliveries((0, 1, 0.2), (0, 10**9, 0.2), (9, 0, 0.2)), deliveries((0, 0, 0.2), intact=False)),
        [],
    )

    assert seen.totals["received"] == 4
    assert seen.delivery_ms["max"] == [None]


def test_latencies_of_long_runs_are_known_too() -> None:
    day_s = 86_400.0
    sent_s = 6 * day_s
    first = (0, 0, 0.0, Outcome.CONFIRMED, 0.1)
    seen = series(
        of(publishes(first, (0, 1, sent_s, Outcome.CONFIRMED, sent_s + 0.1))), of(deliveries((0, 1, sent_s + 0.2))), []
    )
    assert [ms for ms in seen.delivery_ms["max"] if ms is not None] == [pytest.approx(200, abs=1)]


@pytest.mark.parametrize("end_s", [10.09, 10.15, 10.49, 10.5, 10.95])
def test_a_steady_rate_is_steady_to_the_end(end_s: float) -> None:
    rows = [(0, n, n / 100, Outcome.CONFIRMED, n / 100) for n in range(round(end_s * 100) + 1)]
    assert series(of(publishes(*rows)), of(), []).rates["sent"] == pytest.approx([100] * round(end_s), rel=0.03)


def test_percentiles_are_within_a_bin_of_the_truth() -> None:
    rows = [(0, n, 0.0, Outcome.CONFIRMED, (n + 1) / 1000) for n in range(1000)]

    seen = series(of(publishes(*rows, (0, 1000, 0.0, Outcome.UNKNOWN, 1.6))), of(), [])

    latencies = {name: values[0] for name, values in seen.confirm_ms.items()}
    assert latencies == {
        "p50": pytest.approx(500, rel=0.04),
        "p95": pytest.approx(950, rel=0.04),
        "p99": pytest.approx(990, rel=0.04),
        "max": pytest.approx(999),
    }


def test_many_small_batches_are_as_one_large() -> None:
    rows = [(0, n, n / 100, Outcome.CONFIRMED, n / 100 + 0.01) for n in range(500)]

    one = series(of(publishes(*rows)), of(), [])
    many = series(of(*(publishes(row) for row in rows)), of(), [])

    assert one == many


@pytest.mark.parametrize("hours", [1, 24, 400])
def test_a_long_run_stays_small(hours: int) -> None:
    seen = series(
        of(publishes((0, 0, 0.0, Outcome.CONFIRMED, 0.1), (0, 1, hours * 3600.0, Outcome.CONFIRMED, hours * 3600.0))),
        of(),
        [SampleEvent(t_us=i * S, queues={"q1": {"ready": i, "unacked": 0}}) for i in range(3 * 3600)],
    )

    assert len(seen.at_s) <= POINTS_MAX
    assert len(seen.timeline.depth.at_s) <= POINTS_MAX
    assert seen.timeline.depth.curves["ready"][-1] == 3 * 3600 - 1


def from_events(*events: dict[str, Any]) -> Series:
    return series(of(), of(), [event_of({"t_us": int(e.pop("at_s") * S), **e}) for e in events])


def fault(at_s: float, state: str, *, step: int = 0, **effect: Any) -> dict[str, Any]:
    return {"at_s": at_s, "kind": "fault", "step": step, "fault": "partition", "state": state, "effect": effect}


def test_phases_and_states_become_intervals() -> None:
    line = from_events(
        {"at_s": 0, "kind": "phase", "phase": "steady"},
        {"at_s": 1, "kind": "nodes", "states": {"a1": "up"}},
        {"at_s": 2, "kind": "nodes", "states": {"a1": "up"}},
        {"at_s": 3, "kind": "nodes", "states": {"a1": "paused"}},
        {"at_s": 4, "kind": "phase", "phase": "chaos"},
        {"at_s": 6, "kind": "phase", "phase": "end"},
    ).timeline

    assert [(i.state, i.start_s, i.end_s) for i in line.phases] == [("steady", 0, 4), ("chaos", 4, 6)]
    assert [(i.state, i.start_s, i.end_s) for i in line.nodes[0].intervals] == [("up", 1, 3), ("paused", 3, 6)]


def test_a_fault_is_a_window_with_its_proofs() -> None:
    (window,) = from_events(
        fault(0, "injecting"), fault(1, "injected"), fault(2, "proven"), fault(8, "healed"), fault(9, "heal_unproven")
    ).timeline.faults

    assert (window.start_s, window.end_s, window.proven, window.heal_proven) == (1, 8, True, False)


def test_a_fault_says_what_it_acted_on_and_what_showed_it() -> None:
    told = fault(2, "proven", nodes_down=["c1"]) | {"detail": "the process is gone"}

    (window,) = from_events(fault(0, "injected", nodes_down=["c1"], links_cut=[["a1", "b1"]]), told).timeline.faults

    assert (window.detail, window.proof) == ("c1 down, a1 → b1 cut", "the process is gone")


def test_a_fault_that_was_never_healed_lasts_to_the_end() -> None:
    (window,) = from_events(fault(0, "injected"), {"at_s": 5, "kind": "note"}).timeline.faults

    assert (window.end_s, window.healed, window.proven) == (5, False, None)


def test_a_skipped_fault_touches_no_link() -> None:
    line = from_events(fault(0, "skipped", links_cut=[["a1", "b1"]]), {"at_s": 5, "kind": "note"}).timeline

    assert line.faults[0].skipped
    assert line.links == ()


def test_links_of_one_fate_share_a_lane_and_a_cut_hides_what_is_slow() -> None:
    slow: dict[str, Any] = {"links_slow": [["a1", "b1"]]}
    cut: dict[str, Any] = {"links_cut": [["a1", "b1"], ["b1", "a1"]]}
    line = from_events(
        fault(0, "injected", **slow),
        fault(2, "injected", step=1, **cut),
        fault(3, "healed", step=1, **cut),
        fault(5, "healed", **slow),
    ).timeline

    lanes = {lane.name: [(i.state, i.start_s, i.end_s) for i in lane.intervals] for lane in line.links}
    assert lanes == {"a1 → b1": [("slow", 0, 2), ("cut", 2, 3), ("slow", 3, 5)], "b1 → a1": [("cut", 2, 3)]}


def test_both_directions_between_two_sides_are_one_lane() -> None:
    pairs = [["a1", "b1"], ["a1", "b2"], ["b1", "a1"], ["b2", "a1"]]

    (lane,) = from_events(fault(0, "injected", links_cut=pairs), fault(2, "healed")).timeline.links

    assert lane.name == "a1 ⇄ b1 b2"


def test_a_node_without_statistics_has_no_memory_rather_than_none_used() -> None:
    sample = {"kind": "sample", "queues": {}}
    line = from_events(
        {**sample, "at_s": 0, "memory_bytes": {"a1": 5, "b1": 0}}, {**sample, "at_s": 1, "memory_bytes": {"b1": 7}}
    ).timeline

    assert line.memory.curves == {"a1": [5, None], "b1": [None, 7]}


def test_missing_samples_leave_a_gap() -> None:
    moments = (0, 1, 2, 3, 20, 21)
    line = from_events(
        *({"at_s": s, "kind": "sample", "queues": {"q1": {"ready": s, "unacked": 1}}} for s in moments)
    ).timeline

    assert line.depth.at_s == [0, 1, 2, 3, 11.5, 20, 21]
    assert line.depth.curves["ready"] == [0, 1, 2, 3, None, 20, 21]
    assert line.memory.curves == {}


def test_the_target_is_shown_from_the_steady_phase_to_the_end_of_publishing() -> None:
    steps = [{"rate_per_s": 900, "for_s": 2}, {"rate_per_s": 0, "for_s": 1}, {"rate_per_s": None, "for_s": 1}]
    seen = from_events(
        {"at_s": 1, "kind": "phase", "phase": "steady"},
        {"at_s": 2, "kind": "load", "begins_us": 2 * S, "rate_per_s": 500, "variable_rate": steps},
        {"at_s": 8, "kind": "phase", "phase": "drain"},
        {"at_s": 9, "kind": "phase", "phase": "end"},
    )
    assert seen.target_per_s == [500, 900, 900, 0, None, 500, 500, None]
    assert len(seen.target_per_s) == len(seen.at_s)
    assert from_events({"at_s": 0, "kind": "phase", "phase": "steady"}).target_per_s == []


def test_publishers_are_blocked_until_the_last_of_them_is_let_go() -> None:
    changes = [(1, 0, "connected"), (2, 0, "blocked"), (3, 1, "blocked"), (4, 0, "unblocked"), (6, 1, "killed")]
    changes += [(7, 0, "blocked")]
    events = [
        {"at_s": at_s, "kind": "worker", "worker": f"publisher-{i}", "event": what, "node": "a1"}
        for at_s, i, what in changes
    ]
    (lane,) = from_events(*events, {"at_s": 9, "kind": "note"}).timeline.blocked
    assert lane == SwimLane("publishers", (TimelineInterval(1, 5, "blocked"), TimelineInterval(6, 8, "blocked")))
    assert from_events({"at_s": 0, "kind": "note"}).timeline.blocked == ()
