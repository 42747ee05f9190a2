from __future__ import annotations

import pytest

from rabbitmq_resilience.checkers.throughput import Throughput
from rabbitmq_resilience.checkers.uptime import Uptime
from rabbitmq_resilience.checkers.verdict import Coverage, Finding, Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants import literal
from tests.invariants.literal import (
    Row,
    apart,
    blocked,
    cluster,
    fault,
    history,
    node_states,
    phases,
    publish,
    queues,
)
from tests.messages import Messages

BASE: list[Event | list[Event]] = [cluster(), queues("q1"), phases(), node_states()]
CUT = fault(20, 50, cut=apart(["a1"], ["b1", "c1"]))


def load(*spans: tuple[float, float, float]) -> list[Row]:
    """Confirms of queue 0: (from_s, to_s, messages/s)."""
    times = [start + i / rate for start, end, rate in spans for i in range(round((end - start) * rate))]
    return [publish(n, at_s) for n, at_s in enumerate(times)]


def check(publishes: list[Row], *events: Event | list[Event], lost_grace_s: float | None = 10) -> Finding:
    demanded = Throughput(ratio_min=0.5, window_s=5, grace_s=10, lost_grace_s=lost_grace_s)
    return demanded.check(history(publishes, (), [*BASE, *events]))


def test_empty() -> None:
    assert Throughput().check(history()).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("lacking", ["cluster", "chaos", "drain"])
def test_unknown_without_the_cluster_and_its_phases(lacking: str) -> None:
    told = phases(**{name: at_s for name, at_s in literal.PHASES.items() if name != lacking})
    events = [queues("q1"), node_states(), told, *([] if lacking == "cluster" else [cluster()])]
    assert Throughput().check(history(load((0, 90, 50)), (), events)).verdict is Verdict.UNKNOWN


def test_sane() -> None:
    finding = check(load((0, 90, 50)))
    assert finding.verdict is Verdict.VALID
    assert (finding.numbers["steady_per_s"], finding.numbers["windows"]) == (50, 16)
    assert abs(float(finding.numbers["ratio"] or 0) - 1) < 0.02


def test_sane_slow_only_within_the_grace() -> None:
    assert check(load((0, 20, 50), (20, 29.9, 5), (29.9, 90, 50)), CUT).verdict is Verdict.VALID


def test_pathological_slow_after_the_grace_names_window_and_fault(message: Messages) -> None:
    finding = check(load((0, 20, 50), (20, 50, 20), (50, 90, 50)), CUT)
    assert finding.verdict is Verdict.INVALID
    assert (finding.numbers["ratio"], finding.numbers["windows_short"]) == (0.4, 4)
    message(finding.examples[0])
    assert "40%" in finding.examples[0]
    assert "chaos" in finding.examples[0]
    assert "step 0" in finding.examples[0]


def test_what_is_lost_must_first_be_noticed_and_what_comes_back_need_not() -> None:
    """net_ticktime is 4 s, so a queue may stand still for 20 s after the cut."""
    late = load((0, 20, 50), (20, 39.9, 5), (39.9, 90, 50))
    assert check(late, CUT).verdict is Verdict.INVALID
    assert check(late, CUT, lost_grace_s=None).verdict is Verdict.VALID
    slow_again = load((0, 20, 50), (20, 39.9, 5), (39.9, 50, 50), (50, 69, 5), (69, 90, 50))
    assert check(slow_again, CUT, lost_grace_s=None).verdict is Verdict.INVALID


def test_a_second_loss_must_be_noticed_as_well() -> None:
    cuts = [fault(12, 30, cut=apart(["a1"], ["b1", "c1"])), fault(50, 80, step=1, cut=apart(["b1"], ["a1", "c1"]))]
    assert check(load((0, 50, 50), (50, 69.9, 5), (69.9, 90, 50)), *cuts, lost_grace_s=None).verdict is Verdict.VALID


def test_what_is_lost_for_good_must_be_noticed_too() -> None:
    for_good = fault(20, 50, cut=apart(["a1"], ["b1", "c1"]), states=("injecting", "injected", "proven"))
    assert check(load((0, 20, 50), (20, 39.9, 5), (39.9, 90, 50)), for_good, lost_grace_s=None).verdict is Verdict.VALID


@pytest.mark.parametrize(("slow_until_s", "verdict"), [(59.9, Verdict.VALID), (66, Verdict.INVALID)])
def test_what_comes_back_has_its_grace(slow_until_s: float, verdict: Verdict) -> None:
    assert check(load((0, 50, 50), (50, slow_until_s, 5), (slow_until_s, 90, 50)), CUT).verdict is verdict


@pytest.mark.parametrize(("slow_until_s", "verdict"), [(69.9, Verdict.VALID), (76, Verdict.INVALID)])
def test_a_node_that_comes_back_from_its_pause_has_its_grace(slow_until_s: float, verdict: Verdict) -> None:
    seen = node_states(unlike={"a1": [(25, 60, "paused")]})
    slow = load((0, 60, 50), (60, slow_until_s, 5), (slow_until_s, 90, 50))
    demanded = Throughput(ratio_min=0.5, window_s=5, grace_s=10, lost_grace_s=10)
    assert demanded.check(history(slow, (), [cluster(), queues("q1"), phases(), seen, CUT])).verdict is verdict


def test_what_is_soon_back_need_not_be_noticed() -> None:
    blip = fault(20, 22, cut=apart(["a1"], ["b1", "c1"]))
    slow_later = load((0, 32, 50), (32, 39.9, 5), (39.9, 90, 50))
    assert check(slow_later, blip, lost_grace_s=None).verdict is Verdict.INVALID


def test_a_machine_that_does_not_hold_the_load_cannot_tell(message: Messages) -> None:
    target = literal.event(10, "load", begins_us=literal.us(10), rate_per_s=100, variable_rate=[])
    finding = check(load((0, 20, 79), (20, 90, 10)), target)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "79 of 100" in finding.summary
    assert check(load((0, 20, 80), (20, 90, 10)), target).verdict is Verdict.INVALID


UNSETTLED = [fault(at, at + 5, step=at, cut=apart(["a1"], ["b1", "c1"])) for at in range(10, 90, 10)]
ASKED_100 = [literal.event(9, "load", begins_us=literal.us(9), rate_per_s=100, variable_rate=[])]


@pytest.mark.parametrize(("events", "windows"), [(UNSETTLED, 0), (ASKED_100, 16)])
def test_what_cannot_be_judged_shows_what_was_reached(events: list[Event | list[Event]], windows: int) -> None:
    """300 messages in 9 s."""
    told = [cluster(), queues("q1"), phases(steady=0, chaos=9, recovery=70, drain=90, end=95), node_states()]
    finding = Throughput(window_s=5, grace_s=10).check(history(load((0, 9, 100 / 3)), (), [*told, *events]))
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.numbers == {"steady_per_s": 33.3, "windows": windows}


def test_a_steady_phase_may_be_as_short_as_a_tick() -> None:
    told = [cluster(), queues("q1"), phases(steady=0, chaos=0.02, recovery=70, drain=90, end=95), node_states()]
    assert Throughput().check(history([publish(0, 0)], (), told)).numbers["steady_per_s"] == 50


def test_pathological_never_as_fast_again_after_healing(message: Messages) -> None:
    finding = check(load((0, 50, 50), (50, 90, 20)), CUT)
    assert finding.verdict is Verdict.INVALID
    assert any("recovery" in example for example in finding.examples)
    message("\n".join(finding.examples))


def test_pathological_one_window_stands_still() -> None:
    finding = check(load((0, 60, 50), (65, 90, 50)))
    assert (finding.verdict, finding.numbers["windows_short"]) == (Verdict.INVALID, 1)


def test_pathological_nothing_at_all_after_the_steady_phase() -> None:
    finding = check(load((0, 10, 50)))
    assert (finding.verdict, finding.numbers["ratio"]) == (Verdict.INVALID, 0)


def test_pathological_slow_under_latency() -> None:
    slow = fault(20, 60, name="latency", slow=[("a1", "b1")])
    assert check(load((0, 20, 50), (20, 60, 10), (60, 90, 50)), slow).verdict is Verdict.INVALID


def test_pathological_just_short_of_the_ratio() -> None:
    assert check(load((0, 10, 50), (10, 90, 24))).verdict is Verdict.INVALID
    assert check(load((0, 10, 50), (10, 90, 26))).verdict is Verdict.VALID


def test_no_majority_demands_nothing() -> None:
    kill = fault(15, 60, name="kill", down=["a1", "b1"])
    assert check(load((0, 15, 50), (70, 90, 50)), kill).verdict is Verdict.VALID


def test_no_steady_load_cannot_be_decided() -> None:
    assert check(load((10, 90, 50))).verdict is Verdict.UNKNOWN


def test_never_settled_cannot_be_decided() -> None:
    assert check(load((0, 90, 50)), *UNSETTLED).verdict is Verdict.UNKNOWN


def test_an_intermittent_cut_is_a_change_all_the_time() -> None:
    flapping = fault(20, 50, cut=apart(["a1"], ["b1", "c1"]), intermittent=True)
    assert check(load((0, 20, 50), (20, 50, 20), (50, 90, 50)), flapping).verdict is Verdict.VALID
    assert check(load((0, 60, 50), (60, 90, 20)), flapping).verdict is Verdict.INVALID


PEAK = literal.load(10, 50, (100, 20), (10, 20))


def test_sane_a_lower_target_lowers_what_is_demanded() -> None:
    finding = check(load((0, 10, 50), (10, 30, 100), (30, 50, 10), (50, 90, 50)), PEAK)
    assert finding.verdict is Verdict.VALID
    assert abs(float(finding.numbers["ratio"] or 0) - 1) < 0.02


def test_pathological_short_of_the_lower_target(message: Messages) -> None:
    finding = check(load((0, 10, 50), (10, 30, 100), (30, 50, 4), (50, 90, 50)), PEAK)
    assert (finding.verdict, finding.numbers["ratio"], finding.numbers["windows_short"]) == (Verdict.INVALID, 0.4, 4)
    message(finding.examples[0])
    assert "40%" in finding.examples[0]
    assert "10 messages/s" in finding.examples[0]


def test_a_peak_is_not_demanded() -> None:
    assert check(load((0, 90, 50)), literal.load(10, 50, (100, 80))).verdict is Verdict.VALID
    assert check(load((0, 10, 50), (10, 90, 40)), literal.load(10, 50, (100, 80))).verdict is Verdict.VALID
    assert check(load((0, 10, 50), (10, 90, 20)), literal.load(10, 50, (100, 80))).verdict is Verdict.INVALID


def test_pathological_slow_after_the_lower_target(message: Messages) -> None:
    finding = check(load((0, 10, 50), (10, 30, 100), (30, 90, 10)), PEAK)
    assert finding.verdict is Verdict.INVALID
    message("\n".join(finding.examples))


def test_nothing_is_demanded_in_a_pause_and_all_right_after_it() -> None:
    pause = literal.load(10, 50, (50, 10), (0, 20))
    assert check(load((0, 20, 50), (40, 90, 50)), pause).verdict is Verdict.VALID
    finding = check(load((0, 20, 50), (46, 90, 50)), pause)
    assert (finding.verdict, finding.numbers["windows_short"], finding.numbers["slowest_start_s"]) == (
        Verdict.INVALID,
        1,
        40,
    )


def test_without_a_steady_target_what_was_reached_stands_for_it() -> None:
    steps = literal.load(10, None, (10, 20), (200, 20))
    assert check(load((0, 10, 50), (10, 30, 9), (30, 90, 50)), steps).verdict is Verdict.VALID
    assert check(load((0, 10, 50), (10, 30, 4), (30, 90, 50)), steps).verdict is Verdict.INVALID
    assert check(load((0, 10, 50), (10, 30, 9), (30, 90, 20)), steps).verdict is Verdict.INVALID
    killed = fault(12, 20, name="kill", down=["c1"])
    assert check(load((0, 10, 50), (10, 30, 9), (30, 90, 50)), steps, killed).numbers["kept_ratio"] == 0.9


ALARM = fault(20, 40, name="alarm", alarm="memory", alarmed=["b1"])


def test_nothing_is_demanded_while_an_alarm_of_a_step_blocks_publishers() -> None:
    assert check(load((0, 21, 50), (42, 90, 50)), ALARM, blocked(21, 42)).verdict is Verdict.VALID


def test_pathological_blocked_without_a_step_that_blocks() -> None:
    for other in (fault(20, 40, name="alarm"), fault(20, 40, name="kill")):
        assert check(load((0, 21, 50), (42, 90, 50)), other, blocked(21, 42)).verdict is Verdict.INVALID


def test_pathological_slow_during_an_alarm_that_blocks_no_one() -> None:
    finding = check(load((0, 21, 50), (42, 90, 50)), ALARM)
    assert finding.verdict is Verdict.INVALID
    assert "step 0 (alarm)" in finding.examples[0]


def test_pathological_blocked_for_good_after_the_alarm_was_cleared() -> None:
    assert check(load((0, 21, 50)), ALARM, blocked(21, None)).verdict is Verdict.INVALID


def test_what_is_kept_while_a_node_is_away_is_reported() -> None:
    """Away from 20 to 30 s, and then seen up again."""
    killed = fault(20, 30, name="kill", down=["c1"])
    assert check(load((0, 20, 50), (20, 30, 20), (30, 90, 50)), killed).numbers["kept_ratio"] == 0.4
    assert check(load((0, 90, 50)), CUT).numbers["kept_ratio"] is None


def test_what_is_kept_is_a_part_of_the_target_of_then() -> None:
    peak = literal.event(10, "load", begins_us=literal.us(10), rate_per_s=50, variable_rate=[STEP])
    killed = fault(20, 30, name="kill", down=["c1"])
    assert check(load((0, 10, 50), (10, 40, 100), (40, 90, 50)), killed, peak).numbers["kept_ratio"] == 1
    assert check(load((0, 90, 50)), killed, peak).numbers["kept_ratio"] == 0.5


#: Twice the rate of the steady phase.
STEP = {"rate_per_s": 100, "for_s": 30}


def test_pathological_one_window_before_the_fault_and_next_to_nothing_from_then_on(message: Messages) -> None:
    """The load ends 9 s after the cut was healed, and the grace is 10 s."""
    soon = [cluster(), queues("q1"), phases(steady=0, chaos=10, recovery=50, drain=59, end=60), node_states(), CUT]
    demanded = Throughput(ratio_min=0.5, window_s=5, grace_s=10, lost_grace_s=40)

    def judged(*spans: tuple[float, float, float]) -> Finding:
        return demanded.check(history(load((0, 20, 50), *spans), (), soon))

    finding = judged((20, 59, 1))
    assert (finding.verdict, finding.numbers["windows"]) == (Verdict.UNKNOWN, 2)
    message(finding.summary)
    assert "2%" in finding.summary
    assert "+54.000 s" in finding.summary
    assert "phases.settled_s" in finding.summary
    assert finding.coverage == Coverage(10.0, 10.0)
    assert judged((20, 54, 1), (54, 59, 50)).verdict is Verdict.VALID
    assert judged((20, 54, 50), (54, 59, 24)).verdict is Verdict.UNKNOWN


def test_mirrored_queues_are_settled_some_time_after_they_were_rebalanced_and_others_at_once() -> None:
    """Mirrors of what moved are synchronised when the rebalancing has ended; the grace is 10 s."""
    moved = fault(30, 34, name="rebalance", operation=True)
    for slow_until_s, verdict in ((43, Verdict.VALID), (51, Verdict.INVALID)):
        rows = load((0, 34, 50), (34, slow_until_s, 5), (slow_until_s, 90, 50))
        assert check(rows, queues("q1", kind="mirrored"), moved).verdict is verdict
        assert check(rows, moved).verdict is Verdict.INVALID


def test_pathological_the_load_ends_with_the_last_fault(message: Messages) -> None:
    soon = [cluster(), queues("q1"), phases(steady=0, chaos=10, recovery=50, drain=54, end=60), node_states(), CUT]
    finding = Throughput(window_s=5, grace_s=10).check(history(load((0, 54, 50)), (), soon))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "5 s" in finding.summary


def test_what_is_shorter_than_a_window_is_not_judged() -> None:
    assert check(load((0, 90, 50)), lost_grace_s=None).coverage == Coverage(80.0, 80.0)
    finding = Throughput(window_s=30, grace_s=10).check(history(load((0, 90, 50)), (), BASE))
    assert finding.coverage == Coverage(60.0, 80.0)


def test_the_last_window_counts_where_the_load_pauses_after_the_last_healing() -> None:
    """It pauses from 52 s to 55 s; until then the rate had come back."""
    healed = fault(20, 44, cut=apart(["a1"], ["b1", "c1"]))
    told = [cluster(), queues("q1"), phases(steady=0, chaos=10, recovery=44, drain=60, end=65), node_states(), healed]
    demanded = Throughput(ratio_min=0.5, window_s=5, grace_s=20, lost_grace_s=5)
    pause = literal.load(10, 50, (50, 42), (0, 3))
    for rate_per_s, verdict in ((1, Verdict.UNKNOWN), (50, Verdict.VALID)):
        rows = load((0, 52, 50), (55, 60, rate_per_s))
        assert demanded.check(history(rows, (), [*told, pause])).verdict is verdict


@pytest.mark.parametrize(("in_flight", "verdict"), [(100, Verdict.VALID), (None, Verdict.UNKNOWN)])
@pytest.mark.parametrize("checker", [Throughput(), Uptime(outage_s_max=5)])
def test_where_no_confirms_are_awaited_their_rate_is_not_known(
    checker: Throughput | Uptime, in_flight: int | None, verdict: Verdict
) -> None:
    rows = [publish(n, n / 5) for n in range(450)]
    fields = {"rate_per_s": 5, "variable_rate": [], "publishers": 1, "begins_us": literal.us(0)}
    events = [*BASE, literal.event(0, "load", in_flight=in_flight, **fields)]
    assert checker.check(history(rows, (), events)).verdict is verdict


def test_a_moment_with_a_lower_target_lowers_no_whole_window() -> None:
    """From 40 to 45 s 46 % are confirmed, whether or not the target sinks for a tenth of a second in it."""
    dip = literal.load(10, 50, (50, 33), (1, 0.1))
    slow = load((0, 42, 50), (42, 47, 5), (47, 90, 50))
    assert check(slow).verdict is Verdict.INVALID
    assert check(slow, dip).verdict is Verdict.INVALID


def test_what_is_kept_is_compared_with_each_target_of_that_time() -> None:
    killed = fault(20, 50, name="kill", down=["c1"])
    lower = literal.load(10, 50, (50, 15), (10, 5), (50, 60))
    whole = load((0, 25, 50), (25, 30, 10), (30, 90, 50))
    assert check(whole, killed, lower).numbers["kept_ratio"] == pytest.approx(1, abs=0.02)
