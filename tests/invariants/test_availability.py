from __future__ import annotations

import pytest

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.verdict import Coverage, Finding, Verdict
from rabbitmq_resilience.history.events import Event
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import (
    FOUR,
    Row,
    apart,
    blocked,
    cluster,
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

BASE: list[Event | list[Event]] = [cluster(), queues("q1"), phases()]
MINORITY = apart(["a1"], ["b1", "c1"])


def confirms(*spans: tuple[float, float], queue: int = 0) -> list[Row]:
    """Ten a second in each span."""
    times = [start + i / 10 for start, end in spans for i in range(round((end - start) * 10))]
    return [publish(n, at_s, publisher=queue, queue=queue) for n, at_s in enumerate(times)]


def check(publishes: list[Row], *events: Event | list[Event], stall_s_max: float = 15) -> Finding:
    return Availability(stall_s_max=stall_s_max, grace_s=5).check(history(publishes, (), [*BASE, *events]))


def test_empty() -> None:
    assert Availability().check(history()).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("lacking", range(3))
def test_unknown_without_the_cluster_its_queues_or_when_they_were_used(lacking: int) -> None:
    events = [part for i, part in enumerate(BASE) if i != lacking]
    assert Availability().check(history(confirms((0, 90)), (), events)).verdict is Verdict.UNKNOWN


def test_sane() -> None:
    finding = check(confirms((0, 90)))
    assert finding.verdict is Verdict.VALID
    assert 0.05 < float(finding.numbers["stall_s"] or 0) < 0.2


def test_sane_stall_within_the_bound_is_measured() -> None:
    finding = check(confirms((0, 20), (31, 90)), fault(20, 50, cut=MINORITY))
    assert finding.verdict is Verdict.VALID
    assert abs(float(finding.numbers["stall_s"] or 0) - 11.1) < 0.1


def test_pathological_stall_with_a_majority_up_names_queue_time_and_fault(message: Messages) -> None:
    finding = check(confirms((0, 20), (45, 90)), fault(20, 50, cut=MINORITY))
    assert finding.verdict is Verdict.INVALID
    assert abs(float(finding.numbers["stall_start_s"] or 0) - 19.9) < 0.1
    assert (finding.numbers["stalls_too_long"], finding.numbers["stalls_excused"]) == (1, 0)
    message(finding.examples[0])
    assert "q1" in finding.examples[0]
    assert "+19.9" in finding.examples[0]
    assert "chaos" in finding.examples[0]
    assert "step 0" in finding.examples[0]


def test_pathological_never_confirmed() -> None:
    finding = check([])
    assert (finding.verdict, finding.numbers["stall_s"]) == (Verdict.INVALID, 90)


def test_pathological_stops_before_the_end_of_publishing() -> None:
    assert check(confirms((0, 60))).verdict is Verdict.INVALID


def test_pathological_starts_late() -> None:
    finding = check(confirms((20, 90)))
    assert finding.verdict is Verdict.INVALID
    assert abs(float(finding.numbers["stall_s"] or 0) - 20.005) <= 0.01


def test_pathological_one_queue_of_two() -> None:
    events = [cluster(), queues("q1", "q2"), phases()]
    rows = [*confirms((0, 90)), *confirms((0, 30), (60, 90), queue=1)]
    finding = Availability(grace_s=5).check(history(rows, (), events))
    assert (finding.verdict, finding.numbers["queue"], finding.numbers["queues_judged"]) == (Verdict.INVALID, "q2", 2)
    rows = [*confirms((0, 30), (60, 90)), *confirms((0, 90), queue=1)]
    finding = Availability(grace_s=5).check(history(rows, (), events))
    assert (finding.verdict, finding.numbers["queue"]) == (Verdict.INVALID, "q1")


def test_pathological_no_majority_excuses_only_itself_and_its_grace() -> None:
    split = fault(20, 40, down=["a1", "b1"], name="kill")
    assert check(confirms((0, 20), (45, 90)), split, node_states()).verdict is Verdict.VALID
    assert check(confirms((0, 20), (61, 90)), split, node_states()).verdict is Verdict.INVALID


def test_the_grace_after_it_counts_from_when_the_majority_is_back() -> None:
    split = fault(20, 40, down=["a1", "b1"], name="kill")
    assert check(confirms((0, 20), (59.9, 90)), split, node_states()).verdict is Verdict.VALID
    assert check(confirms((0, 20), (60.1, 90)), split, node_states()).verdict is Verdict.INVALID


def test_pathological_stall_before_the_excuse() -> None:
    split = fault(36, 40, down=["a1", "b1"], name="kill")
    assert check(confirms((0, 20), (41, 90)), split).verdict is Verdict.INVALID


def test_pathological_latency_is_no_excuse() -> None:
    assert check(confirms((0, 20), (40, 90)), fault(20, 40, name="latency", slow=MINORITY)).verdict is Verdict.INVALID


def test_node_counts_as_down_until_it_was_seen_up() -> None:
    kill = fault(20, 22, down=["a1", "b1"], name="kill")
    booting = {"a1": [(20.0, 40.0, "paused")], "b1": [(20.0, 40.0, "paused")]}
    assert check(confirms((0, 20), (44, 90)), kill, node_states(unlike=booting)).verdict is Verdict.VALID
    assert check(confirms((0, 20), (44, 90)), kill, node_states()).verdict is Verdict.INVALID


def test_even_split_promises_nothing() -> None:
    events = [cluster(FOUR), queues("q1", members=FOUR), phases(), fault(20, 50, cut=apart(FOUR[:2], FOUR[2:]))]
    finding = Availability(grace_s=5).check(history(confirms((0, 20), (54, 90)), (), events))
    assert finding.verdict is Verdict.VALID


def test_mirrored_queue_needs_one_mirror_on_the_majority_side() -> None:
    cut = fault(20, 50, cut=MINORITY)
    rows = confirms((0, 20), (54, 90))
    for members, verdict in ((("a1",), Verdict.VALID), (("a1", "b1"), Verdict.INVALID)):
        events = [cluster(), queues("q1", kind="mirrored", members=members), phases(), cut]
        assert Availability(grace_s=5).check(history(rows, (), events)).verdict is verdict


def test_no_majority_all_the_time_cannot_be_decided() -> None:
    assert check([], fault(0, 90, down=["a1", "b1"], name="kill")).verdict is Verdict.UNKNOWN


def test_pathological_stops_for_good_just_before_publishing_ends() -> None:
    """What was under way at the end is waited for, and the waiting counts."""
    given_up = publish(899, 89.9, Outcome.UNKNOWN) | {"outcome_us": us(110)}
    finding = check([*confirms((0, 88)), given_up])
    assert finding.verdict is Verdict.INVALID
    assert abs(float(finding.numbers["stall_s"] or 0) - 22.1) < 0.1


def test_sane_last_confirms_come_after_the_end() -> None:
    late = publish(899, 89.99)
    assert check([*confirms((0, 89)), late | {"outcome_us": us(92)}]).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("late", "stall_s"),
    [
        pytest.param([(Outcome.CONFIRMED, 91), (Outcome.CONFIRMED, 99)], 11, id="the first confirm ends it"),
        pytest.param([(Outcome.CONFIRMED, 99), (Outcome.CONFIRMED, 91)], 11, id="whatever its row"),
        pytest.param([(Outcome.CONFIRMED, 90), (Outcome.CONFIRMED, 99)], 10, id="even at the end of publishing"),
        pytest.param([(Outcome.UNKNOWN, 110), (Outcome.UNKNOWN, 95)], 30, id="the last that was given up"),
        pytest.param([(Outcome.UNKNOWN, 110), (Outcome.CONFIRMED, 91)], 11, id="a confirm before it"),
    ],
)
def test_what_was_under_way_at_the_end_is_waited_for(late: list[tuple[Outcome, float]], stall_s: float) -> None:
    waiting = [publish(900 + n, 89, outcome) | {"outcome_us": us(at_s)} for n, (outcome, at_s) in enumerate(late)]
    finding = check([*confirms((0, 80.1)), *waiting])
    assert abs(float(finding.numbers["stall_s"] or 0) - stall_s) < 0.02


def test_by_default_the_bound_follows_net_ticktime() -> None:
    checker = Availability(grace_s=5)
    assert checker.bound_s(4) == 20
    assert checker.check(history(confirms((0, 20), (38, 90)), (), BASE)).verdict is Verdict.VALID
    assert checker.check(history(confirms((0, 20), (42, 90)), (), BASE)).verdict is Verdict.INVALID


BLIP = fault(20, 20.1, cut=apart(["a1"], ["b1", "c1"]) + apart(["b1"], ["c1"]), sudden=True)
ALL_PAUSED = node_states(unlike={node: [(20.5, 32, "paused")] for node in ("a1", "b1", "c1")})


def test_nodes_that_may_pause_and_do_are_as_good_as_down() -> None:
    """Back at 32 s, and with 5 s of grace."""
    stall = confirms((0, 20), (46.9, 90))
    assert check(stall, BLIP, ALL_PAUSED, stall_s_max=10).verdict is Verdict.VALID
    assert check(confirms((0, 20), (47.1, 90)), BLIP, ALL_PAUSED, stall_s_max=10).verdict is Verdict.INVALID
    never_back = node_states(unlike={node: [(20.5, 99, "paused")] for node in ("a1", "b1", "c1")})
    assert check(confirms((0, 20)), BLIP, never_back, stall_s_max=10).verdict is Verdict.UNKNOWN


def test_pathological_nodes_that_pause_without_need_are_no_excuse() -> None:
    stall = confirms((0, 20), (38, 90))
    assert check(stall, ALL_PAUSED, stall_s_max=10).verdict is Verdict.INVALID
    assert check(stall, BLIP, node_states(), stall_s_max=10).verdict is Verdict.INVALID


def test_a_pause_of_the_load_excuses_itself_and_no_more() -> None:
    pause = load(10, 100, (100, 10), (0, 30))
    assert check(confirms((0, 20), (50.1, 90)), pause).verdict is Verdict.VALID
    assert check(confirms((0, 20), (66, 90)), pause).verdict is Verdict.INVALID
    assert check(confirms((0, 4), (50.1, 90)), pause).verdict is Verdict.INVALID


def test_pathological_pauses_do_not_hide_a_dead_queue() -> None:
    """It confirms nothing from 20 s on, and the load pauses again and again: each piece between is short."""
    pauses = load(10, 100, *[(100, 10), (0, 2)] * 6)
    finding = check(confirms((0, 20)), pauses)
    assert finding.verdict is Verdict.INVALID
    assert round(float(finding.numbers["stall_s"] or 0)) == 70 - 6 * 2


ALARM = fault(20, 50, name="alarm", alarm="disk", alarmed=["b1"])


def test_an_alarm_of_a_step_excuses_only_while_it_blocks_and_its_grace() -> None:
    assert check(confirms((0, 21), (54, 90)), ALARM, blocked(21, 54)).verdict is Verdict.VALID
    assert check(confirms((0, 21), (54, 90)), ALARM).verdict is Verdict.INVALID
    assert check(confirms((0, 21), (71, 90)), ALARM, blocked(21, None)).verdict is Verdict.INVALID
    assert check(confirms((0, 21), (54, 90)), ALARM, blocked(21, 25)).verdict is Verdict.INVALID
    assert check(confirms((0, 6), (23, 90)), ALARM, blocked(18, 20)).verdict is Verdict.INVALID


def test_a_publisher_that_is_gone_is_blocked_no_more() -> None:
    for end in ("killed", "connection_lost", "stopped", "started"):
        told = [*blocked(21, 25, end=end), event(25, "worker", worker="publisher-0", event="started")]
        assert check(confirms((0, 21), (54, 90)), ALARM, told).verdict is Verdict.INVALID


#: Until 30 s the majority confirms. With ``ignore`` nobody mends a split; an operator takes a side down.
SPLIT = fault(20, 30, cut=MINORITY)
ONE_PAIR = fault(20, 30, cut=apart(["a1"], ["b1"]))


def taken_down(*nodes: str) -> list[Event]:
    return fault(60, 62, step=1, name="stop", down=nodes)


@pytest.mark.parametrize(
    ("cut", "by_hand", "spans", "verdict"),
    [
        pytest.param(SPLIT, [], [(0, 30)], Verdict.UNKNOWN, id="nobody mends it"),
        pytest.param(SPLIT, [], [(0, 20)], Verdict.UNKNOWN, id="10 s are no stall"),
        pytest.param(SPLIT, [], [(0, 12)], Verdict.INVALID, id="dead while the cut lasts"),
        pytest.param(SPLIT, taken_down("a1"), [(0, 30), (79.9, 90)], Verdict.VALID, id="soon after it is mended"),
        pytest.param(SPLIT, taken_down("a1"), [(0, 30), (80.2, 90)], Verdict.INVALID, id="dead after it is mended"),
        pytest.param(SPLIT, taken_down("b1"), [(0, 30)], Verdict.UNKNOWN, id="half a side is not enough"),
        pytest.param(SPLIT, taken_down("b1", "c1"), [(0, 30)], Verdict.INVALID, id="the other side does as well"),
        pytest.param(ONE_PAIR, [], [(0, 20)], Verdict.UNKNOWN, id="one pair, and nobody mends it"),
        pytest.param(ONE_PAIR, taken_down("a1"), [(0, 20)], Verdict.UNKNOWN, id="one pair, one node down"),
        pytest.param(fault(20, 22, cut=MINORITY), [], [(0, 20)], Verdict.INVALID, id="too short to be noticed"),
    ],
)
def test_after_a_split_nothing_is_promised_until_it_is_mended(
    cut: list[Event], by_hand: list[Event], spans: list[tuple[float, float]], verdict: Verdict
) -> None:
    events = [cluster(mode="ignore"), queues("q1"), phases(), node_states(), cut, by_hand]
    assert Availability(stall_s_max=15, grace_s=5).check(history(confirms(*spans), (), events)).verdict is verdict


def test_pathological_nothing_is_ever_confirmed_again_and_each_demanded_stretch_is_short(message: Messages) -> None:
    """Two of three nodes are away again and again: 10 s of majority between, where 20 s are allowed."""
    kills = [fault(at, at + 10, step=i, down=["a1", "b1"], name="kill") for i, at in enumerate((20, 45, 70))]
    finding = check(confirms((0, 20)), *kills, node_states(), stall_s_max=20)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "q1" in finding.summary
    assert "+19.910 s" in finding.summary
    assert "phases.settled_s" in finding.summary
    assert (
        check(confirms((0, 20), (32, 45), (57, 70), (82, 90)), *kills, node_states(), stall_s_max=20).verdict
        is Verdict.VALID
    )


def test_pathological_nothing_in_a_whole_stretch_between_two_faults(message: Messages) -> None:
    kills = [fault(at, at + 10, step=i, down=["a1", "b1"], name="kill") for i, at in enumerate((20, 45))]
    finding = check(confirms((0, 20), (57, 90)), *kills, node_states(), stall_s_max=20)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "q1" in finding.summary
    assert "+35.000 s" in finding.summary
    assert "+45.000 s" in finding.summary
    assert finding.coverage == Coverage(50.0, 60.0)


def test_a_stall_that_ends_in_time_in_which_the_queue_may_stand_still_is_none() -> None:
    """A cut, and 3 s later another node dies: nobody had noticed the cut yet."""
    both = [fault(20, 40, cut=MINORITY), fault(23, 30, step=1, down=["b1"], name="kill")]
    finding = check(confirms((0, 20), (46, 90)), *both, node_states())
    assert finding.verdict is Verdict.VALID
    assert finding.coverage is not None
    assert finding.coverage.judged < finding.coverage.demanded


def test_pathological_dead_soon_after_the_last_healing() -> None:
    """It confirmed while the cut lasted; the load ends 6 s after that."""
    events = [cluster(), queues("q1"), phases(steady=0, chaos=10, recovery=50, drain=56, end=60)]
    told = [*events, fault(20, 50, cut=MINORITY)]
    for spans, verdict in (((0, 49.5), Verdict.UNKNOWN), ((0, 50.5), Verdict.UNKNOWN), ((0, 56), Verdict.VALID)):
        assert Availability().check(history(confirms(spans), (), told)).verdict is verdict


def test_a_queue_that_confirms_seldom_is_not_taken_for_one_that_stands_still() -> None:
    seldom = [publish(n, 4.0 * n + 1) for n in range(22)]
    finding = check(seldom, fault(20, 50, cut=MINORITY))
    assert (finding.verdict, finding.coverage) == (Verdict.VALID, Coverage(90.0, 90.0))


@pytest.mark.parametrize(("confirms", "verdict"), [(11, Verdict.VALID), (1, Verdict.UNKNOWN)])
def test_a_queue_may_confirm_once_in_the_steady_phase(confirms: int, verdict: Verdict) -> None:
    """One that never confirms again may be dead."""
    seldom = [publish(n, 5 + 8.0 * n) for n in range(confirms)]
    assert check(seldom, stall_s_max=100).verdict is verdict


def test_pathological_nothing_was_confirmed_in_the_moment_that_is_left_after_the_last_healing(
    message: Messages,
) -> None:
    events = [cluster(), queues("q1"), phases(steady=0, chaos=10, recovery=56, drain=56.2, end=60)]
    told = [*events, fault(20, 55.6, cut=MINORITY)]
    finding = Availability().check(history(confirms((0, 55.5)), (), told))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "q1" in finding.summary
    assert "+55.600 s" in finding.summary
    assert Availability().check(history(confirms((0, 56)), (), told)).verdict is Verdict.VALID
    healed_later = [*events, fault(20, 57, cut=MINORITY)]
    assert Availability().check(history(confirms((0, 56)), (), healed_later)).verdict is Verdict.UNKNOWN


def test_time_in_which_the_load_pauses_makes_no_one_late() -> None:
    """36.5 s without a confirm, 16.5 s of them with load, while others had half of the machine."""
    paused = load(10, 10, (10, 20), (0, 20), (10, 40))
    busy = [event(at_s, "machine", busy=1.0, others=0.5) for at_s in range(1, 96)]
    finding = check(confirms((0, 20), (56.5, 90)), paused, busy)
    assert (finding.verdict, finding.numbers["stalls_excused"]) == (Verdict.UNKNOWN, 1)
    within = load(10, 10, (10, 20), (0, 12), (10, 48))
    elsewhen = [event(at_s, "machine", busy=1.0, others=0.95 if 30 < at_s <= 42 else 0.0) for at_s in range(1, 96)]
    assert check(confirms((0, 22), (50.5, 90)), within, elsewhen).verdict is Verdict.INVALID
