from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rabbitmq_resilience.checkers.checker_catalogue import ASSUMPTIONS
from rabbitmq_resilience.checkers.judge import judge
from rabbitmq_resilience.checkers.recovery import Recovery, ill_nodes
from rabbitmq_resilience.checkers.verdict import Coverage, Finding, Verdict
from rabbitmq_resilience.history.events import Event, SampleEvent
from tests.invariants.literal import THREE, cluster, event, fault, history, node_states, phases, queues, sample, us
from tests.messages import Messages


def samples(ill_until_s: float = 0, *, end_s: int = 95, **ill: int | str | None) -> list[SampleEvent]:
    shown = ill or {"online": 2}
    return [sample(at, **(shown if at < ill_until_s else {})) for at in range(end_s)]  # type: ignore[arg-type]


def check(
    states: Sequence[Event], sampled: Sequence[Event], *, within_s: float = 15, names: Sequence[str] = ("q1",)
) -> Finding:
    return Recovery(within_s=within_s).check(history((), (), [cluster(), queues(*names), phases(), states, sampled]))


def test_empty() -> None:
    assert Recovery().check(history()).verdict is Verdict.UNKNOWN


def test_sane() -> None:
    finding = check(node_states(), samples())
    assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.VALID, 0)


def test_sane_takes_as_long_as_the_slower_of_nodes_and_queues() -> None:
    finding = check(node_states(unlike={"a1": [(40, 73, "paused")]}), samples(78))
    assert (finding.verdict, finding.examples) == (Verdict.VALID, ())
    assert finding.numbers == {"recovered_after_s": 8, "watched_s": 24, "mirrors_behind": 0}


def test_sane_a_run_that_was_broken_off_before_its_end() -> None:
    events = [cluster(), queues("q1"), phases(steady=0, chaos=10, recovery=70), node_states(), samples()]
    assert Recovery(within_s=15).check(history((), (), events)).verdict is Verdict.VALID


def test_pathological_one_good_look_and_none_until_the_end(message: Messages) -> None:
    finding = check(node_states(), [sample(72)])
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "+72.000 s" in finding.summary
    assert "+95.000 s" in finding.summary
    assert finding.coverage == Coverage(2.0, 25.0)
    assert check(node_states(end_s=75), samples()).verdict is Verdict.UNKNOWN


def test_pathological_without_leader_in_every_second_look() -> None:
    flapping = [sample(at, leader=None if at % 2 else "a1") for at in range(95)]
    for last in (94, 95):
        finding = check(node_states(), flapping[:last])
        assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.INVALID, None if last == 94 else 24)


def test_pathological_whole_only_in_the_last_look(message: Messages) -> None:
    finding = check(node_states(), samples(94), within_s=60)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "1 s" in finding.summary
    assert check(node_states(), samples(93), within_s=60).verdict is Verdict.VALID


def test_when_it_became_whole_is_not_known_where_no_one_looked() -> None:
    hidden = [e for e in samples(74) if not us(73) < e.t_us < us(90)]
    assert check(node_states(), hidden, within_s=5).verdict is Verdict.UNKNOWN
    assert check(node_states(), hidden, within_s=2).verdict is Verdict.INVALID


def test_pathological_a_node_that_no_one_looks_at() -> None:
    assert check(node_states(("a1", "b1")), samples()).verdict is Verdict.UNKNOWN


def test_mirrors_that_are_behind_at_the_end_are_counted_and_not_judged() -> None:
    def mirrors(at_s: float, **behind: int) -> SampleEvent:
        listed = sample(at_s, names=["q1", "q2", "q3"])
        rows = {
            name: {**row, **({"behind": behind[name]} if name in behind else {})} for name, row in listed.queues.items()
        }
        return replace(listed, queues=rows)

    told = [mirrors(70, q1=5), mirrors(71, q1=7), mirrors(80), mirrors(90, q2=4), mirrors(92, q1=2, q2=1)]
    finding = check(node_states(), told)
    assert (finding.verdict, finding.numbers["mirrors_behind"]) == (Verdict.VALID, 3)


def test_pathological_node_comes_back_late(message: Messages) -> None:
    finding = check(node_states(unlike={"a1": [(40, 87, "paused")]}), samples())
    assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.INVALID, 17)
    message(finding.examples[0])
    assert "a1 is paused" in finding.examples[0]


def test_pathological_node_never_comes_back(message: Messages) -> None:
    finding = check(node_states(unlike={"a1": [(40, 99, "down")]}), samples())
    assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.INVALID, None)
    message(finding.summary)
    assert "a1 is down" in finding.summary


def test_pathological_no_node_comes_back_to_list_queues(message: Messages) -> None:
    away = node_states(unlike={node: [(40, 99, "paused")] for node in THREE})
    finding = check(away, samples(end_s=40))
    assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.INVALID, None)
    message(finding.summary)
    assert "a1 is paused" in finding.summary
    assert "q1 is not listed" in finding.summary
    assert check(away, samples(end_s=40), within_s=60).verdict is Verdict.UNKNOWN
    assert check(node_states(), samples(end_s=40)).verdict is Verdict.UNKNOWN


def test_pathological_node_dies_at_the_very_end(message: Messages) -> None:
    finding = check(node_states(unlike={"a1": [(94.5, 99, "down")]}), samples())
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "a1 is down" in finding.summary
    soon_well = check(node_states(unlike={"a1": [(94.5, 99, "down")], "b1": [(0, 94.5, "down")]}), samples())
    message(soon_well.summary)
    assert "b1" not in soon_well.summary


def test_pathological_queue_stays_without_leader(message: Messages) -> None:
    finding = check(node_states(), samples(99, leader=None))
    assert finding.verdict is Verdict.INVALID
    (example,) = finding.examples
    message(example)
    assert "q1" in example
    assert "+94.000 s" in example
    assert "q1" in finding.summary


def test_pathological_member_stays_offline(message: Messages) -> None:
    finding = check(node_states(), samples(99, online=2))
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "q1" in finding.summary
    assert "2 of 3" in finding.summary


def test_pathological_queue_vanishes(message: Messages) -> None:
    finding = check(node_states(), [sample(at, names=["q1"] if at < 70 else []) for at in range(95)])
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "q1" in finding.summary


def test_a_queue_that_is_listed_as_ill_once_was_slow_to_tell() -> None:
    def listed(*ill: int) -> Finding:
        return check(node_states(), [sample(at, online=2 if at in ill else 3) for at in range(95)])

    assert listed(80).numbers["recovered_after_s"] == 0
    assert listed(70).numbers["recovered_after_s"] == 1
    assert listed(71).numbers["recovered_after_s"] == 0
    assert listed(80, 81).numbers["recovered_after_s"] == 12
    assert listed(80, 91).numbers["recovered_after_s"] == 0
    assert listed(80, 89).numbers["recovered_after_s"] == 20
    assert listed(94).verdict is Verdict.UNKNOWN
    assert listed(93, 94).verdict is Verdict.INVALID


def test_each_queue_is_slow_to_tell_by_itself() -> None:
    """One that is ill in more than one of twenty looks is ill, whatever another is; two that are so once are not."""

    def listed(**ill: Sequence[int]) -> Finding:
        looks = []
        for at in range(95):
            rows = {name: sample(at, online=2 if at in ill[name] else 3).queues["q1"] for name in ("q1", "q2")}
            looks.append(SampleEvent(t_us=us(at), queues=rows))
        return check(node_states(), looks, names=("q1", "q2"))

    assert listed(q1=[80], q2=[82]).numbers["recovered_after_s"] == 0
    assert listed(q1=[80], q2=[80]).numbers["recovered_after_s"] == 0
    assert listed(q1=[71, 82, 93], q2=[]).numbers["recovered_after_s"] == 24
    assert listed(q1=[71, 82, 93], q2=[82]).numbers["recovered_after_s"] == 24


def test_pathological_relapse() -> None:
    finding = check(node_states(unlike={"b1": [(40, 72, "down"), (80, 88, "down")]}), samples())
    assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.INVALID, 18)


def test_pathological_all_nodes_suspended() -> None:
    frozen = {node: [(70.0, 99.0, "suspended")] for node in THREE}
    assert check(node_states(unlike=frozen), samples()).verdict is Verdict.INVALID


def test_watched_too_short_a_time_to_tell() -> None:
    finding = check(node_states(unlike={"a1": [(40, 99, "paused")]}), samples(), within_s=60)
    assert finding.verdict is Verdict.UNKNOWN


def test_no_one_watched() -> None:
    assert check(node_states(end_s=60), samples()).verdict is Verdict.UNKNOWN
    assert check(node_states(), samples(end_s=60)).verdict is Verdict.UNKNOWN


def test_no_one_watched_the_nodes_for_a_while() -> None:
    """It matters since they were whole and had to be, and not before the last fault was healed."""

    def judged(first_s: float, last_s: float) -> Verdict:
        seen = [look for look in node_states() if not us(first_s) < look.t_us < us(last_s)]
        healed = fault(20, 70, name="kill", down=["a1"])
        events = [cluster(), queues("q1"), phases(), seen, samples(), healed]
        only = {"watched": ASSUMPTIONS["watched"]}
        return judge(history((), (), events), {"recovery": Recovery(within_s=15)}, only).verdict

    assert judged(40, 60) is Verdict.VALID
    assert judged(64, 71) is Verdict.VALID
    assert judged(75, 81.5) is Verdict.VALID
    assert judged(82, 88) is Verdict.VALID
    assert judged(82, 88.5) is Verdict.UNKNOWN


def test_a_machine_that_stood_still_makes_nothing_late() -> None:
    late = node_states(unlike={"a1": [(40, 87, "paused")]})
    never = node_states(unlike={"a1": [(40, 99, "paused")]})
    for states in (late, never):
        for first_s, last_s, verdict in (
            (60, 69, Verdict.INVALID),
            (72, 78, Verdict.INVALID),
            (72, 79, Verdict.UNKNOWN),
        ):
            seen = [look for look in states if not us(first_s) < look.t_us < us(last_s)]
            assert check(seen, samples()).verdict is verdict


def test_what_happens_after_the_end_does_not_count() -> None:
    states = node_states(unlike={"a1": [(95, 99, "down")]}, end_s=99)
    assert check(states, samples()).verdict is Verdict.VALID
    late = [sample(at, online=2 if at >= 95 else 3) for at in range(99)]
    assert check(node_states(), late).verdict is Verdict.VALID


def test_pathological_split_outlives_the_cut(message: Messages) -> None:
    split = [replace(event, partitions={"a1": ["c1"], "c1": ["a1"]}) for event in samples()]
    finding = check(node_states(), split)
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "a1" in finding.summary
    assert "c1" in finding.summary


def test_the_clock_starts_when_the_last_fault_is_healed() -> None:
    kill = fault(20, 30, name="kill", down=["a1"])
    seen = node_states(unlike={"a1": [(20, 30, "down"), (30, 69, "paused")]})
    finding = Recovery(within_s=15).check(history((), (), [cluster(), queues("q1"), phases(), seen, samples(), kill]))
    assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.INVALID, 39)


def test_pathological_what_the_run_waited_for_in_vain(message: Messages) -> None:
    vain = event(90, "recovery", complete=False, detail="publisher 1 gets no confirms")
    events = [cluster(), queues("q1"), phases(), node_states(), samples(), vain]
    finding = Recovery(within_s=15).check(history((), (), events))
    assert finding.verdict is Verdict.INVALID
    assert finding.numbers == {"recovered_after_s": None, "watched_s": 20}
    (example,) = finding.examples
    message(example)
    assert "publisher 1" in example
    assert "+90.000 s" in example
    assert Recovery(within_s=25).check(history((), (), events)).verdict is Verdict.UNKNOWN


def test_of_many_that_are_ill_some_are_named_and_the_others_counted(message: Messages) -> None:
    names = [f"n{i}" for i in range(12)]
    assert "n9" in ill_nodes(dict.fromkeys(names[:10], "down"))
    message(ill_nodes(dict.fromkeys(names[:10], "down")))
    told = ill_nodes(dict.fromkeys(names, "down"))
    assert "n9" in told
    assert "n10" not in told
    message(told)


def test_late_while_others_keep_the_machine_busy_is_not_reported_and_very_late_is(message: Messages) -> None:
    """Whole 8 s after healing."""
    states = node_states(unlike={"a1": [(40, 73, "paused")]})
    busy = [event(at_s, "machine", busy=1.0, others=0.6) for at_s in range(1, 80)]
    told = {within_s: check(states, [*samples(78), *busy], within_s=within_s) for within_s in (8, 5, 3.9)}
    assert [finding.verdict for finding in told.values()] == [Verdict.VALID, Verdict.UNKNOWN, Verdict.INVALID]
    message(told[5].summary)
    assert "60%" in told[5].summary
    assert check(states, samples(78), within_s=5).verdict is Verdict.INVALID
