from __future__ import annotations

from invariants.recovery import Recovery
from invariants.verdict import Finding, Verdict
from reports.events import Event
from tests.invariants.literal import THREE, cluster, event, fault, history, node_states, phases, queues, sample


def samples(ill_until_s: float = 0, *, end_s: int = 95, **ill: int | str | None) -> list[Event]:
    shown = ill or {"online": 2}
    return [sample(at, **(shown if at < ill_until_s else {})) for at in range(end_s)]  # type: ignore[arg-type]


def check(states: list[Event], sampled: list[Event], *, within_s: float = 15) -> Finding:
    return Recovery(within_s=within_s).check(history((), (), [cluster(), queues("q1"), phases(), states, sampled]))


def test_empty() -> None:
    assert Recovery().check(history()).verdict is Verdict.UNKNOWN


def test_sane() -> None:
    finding = check(node_states(), samples())
    assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.VALID, 0)


def test_sane_takes_as_long_as_the_slower_of_nodes_and_queues() -> None:
    finding = check(node_states(unlike={"a1": [(40, 73, "paused")]}), samples(78))
    assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.VALID, 8)


def test_pathological_node_comes_back_late() -> None:
    finding = check(node_states(unlike={"a1": [(40, 87, "paused")]}), samples())
    assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.INVALID, 17)
    assert "a1 is paused" in finding.examples[0]


def test_pathological_node_never_comes_back() -> None:
    finding = check(node_states(unlike={"a1": [(40, 99, "down")]}), samples())
    assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.INVALID, None)
    assert "a1 is down" in finding.summary


def test_pathological_queue_stays_without_leader() -> None:
    finding = check(node_states(), samples(99, leader=None))
    assert finding.verdict is Verdict.INVALID
    assert "q1 has no leader" in finding.summary


def test_pathological_member_stays_offline() -> None:
    finding = check(node_states(), samples(99, online=2))
    assert finding.verdict is Verdict.INVALID
    assert "q1 has 2 of 3 members online" in finding.summary


def test_pathological_queue_vanishes() -> None:
    finding = check(node_states(), [sample(at, names=["q1"] if at < 70 else []) for at in range(95)])
    assert finding.verdict is Verdict.INVALID
    assert "q1 is not listed" in finding.summary


def test_a_queue_that_is_listed_as_ill_once_was_slow_to_tell() -> None:
    def listed(*ill: int) -> Finding:
        return check(node_states(), [sample(at, online=2 if at in ill else 3) for at in range(95)])

    assert listed(80).numbers["recovered_after_s"] == 0
    assert listed(80, 81).numbers["recovered_after_s"] == 12
    assert listed(94).numbers["recovered_after_s"] == 0
    assert listed(93, 94).verdict is Verdict.INVALID


def test_pathological_relapse() -> None:
    finding = check(node_states(unlike={"b1": [(40, 72, "down"), (80, 88, "down")]}), samples())
    assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.INVALID, 18)


def test_pathological_all_nodes_suspended() -> None:
    frozen = {node: [(70.0, 99.0, "suspended")] for node in THREE}
    assert check(node_states(unlike=frozen), samples()).verdict is Verdict.INVALID


def test_watched_too_short_a_time_to_tell() -> None:
    finding = check(node_states(unlike={"a1": [(40, 99, "paused")]}), samples(), within_s=60)
    assert finding.verdict is Verdict.UNKNOWN


def test_nobody_watched() -> None:
    assert check(node_states(end_s=60), samples()).verdict is Verdict.UNKNOWN
    assert check(node_states(), samples(end_s=60)).verdict is Verdict.UNKNOWN


def test_what_happens_after_the_end_does_not_count() -> None:
    states = node_states(unlike={"a1": [(95, 99, "down")]}, end_s=99)
    assert check(states, samples()).verdict is Verdict.VALID


def test_pathological_split_outlives_the_cut() -> None:
    split = [event | {"partitions": {"a1": ["c1"], "c1": ["a1"]}} for event in samples()]
    finding = check(node_states(), split)
    assert finding.verdict is Verdict.INVALID
    assert "a1 says that it is partitioned from c1" in finding.summary


def test_the_clock_starts_when_the_last_fault_is_healed() -> None:
    kill = fault(20, 30, name="kill", down=["a1"])
    seen = node_states(unlike={"a1": [(20, 30, "down"), (30, 69, "paused")]})
    finding = Recovery(within_s=15).check(history((), (), [cluster(), queues("q1"), phases(), seen, samples(), kill]))
    assert (finding.verdict, finding.numbers["recovered_after_s"]) == (Verdict.INVALID, 39)


def test_pathological_what_the_run_waited_for_in_vain() -> None:
    vain = event(90, "recovery", complete=False, detail="publisher 1 gets no confirms")
    events = [cluster(), queues("q1"), phases(), node_states(), samples(), vain]
    finding = Recovery(within_s=15).check(history((), (), events))
    assert finding.verdict is Verdict.INVALID
    assert "publisher 1 gets no confirms" in finding.summary
    assert Recovery(within_s=25).check(history((), (), events)).verdict is Verdict.UNKNOWN
