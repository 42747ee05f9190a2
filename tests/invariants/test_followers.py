from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rabbitmq_resilience.checkers.followers import Followers
from rabbitmq_resilience.checkers.verdict import Coverage, Finding, Verdict
from tests.invariants.literal import (
    PHASES,
    THREE,
    Row,
    cluster,
    event,
    fault,
    history,
    node_states,
    phases,
    queues,
    told,
    us,
)
from tests.messages import Messages

Written = Callable[[float], float | None]


def entries(at_s: float) -> float:
    """The leader's log: 100 entries a second until the drain."""
    return 100 * min(at_s, 90)


def raft(written: Written = entries, *, node: str = "c1") -> list[list[Row]]:
    """All members are where the leader is, but for ``node``."""
    logs = {member: written if member == node else entries for member in THREE}
    metrics = ("raft_written_index", "raft_commit_index")
    return [told(metric, member, index, queue="q1") for metric in metrics for member, index in logs.items()]


def check(
    metrics: list[list[Row]], *events: Any, kind: str = "quorum", within_s: float = 15, healed_s: float = 60
) -> Finding:
    healed = fault(20, healed_s, name="kill", down=["c1"])
    whole = [cluster(), queues("q1", kind=kind), phases(), node_states(), healed]
    return Followers(within_s=within_s).check(history((), (), [*whole, *events], metrics=metrics))


def undisturbed(metrics: list[list[Row]], *lacking: str) -> Finding:
    """Without any fault, and without the phases that are ``lacking``."""
    told_phases = phases(**{name: at_s for name, at_s in PHASES.items() if name not in lacking})
    return Followers(within_s=15).check(
        history((), (), [cluster(), queues("q1"), told_phases, node_states()], metrics=metrics)
    )


def until(silent_s: float) -> list[list[Row]]:
    """c1 tells nothing from then on."""
    return raft(lambda at: entries(at) if at < silent_s else None)


def test_empty() -> None:
    assert Followers().check(history()).verdict is Verdict.UNKNOWN
    assert check([]).verdict is Verdict.UNKNOWN
    assert check([], kind="classic").verdict is Verdict.UNKNOWN
    assert undisturbed(raft(), "recovery").verdict is Verdict.UNKNOWN


def test_without_a_fault_the_clock_starts_with_the_recovery_phase() -> None:
    finding = undisturbed(raft(lambda at: 2000 if 20 <= at < 80 else entries(at)))
    assert (finding.verdict, finding.numbers["caught_up_after_s"]) == (Verdict.VALID, 10)


def test_sane() -> None:
    finding = check(raft())
    assert (finding.verdict, finding.numbers["caught_up_after_s"]) == (Verdict.VALID, 0)


def test_sane_what_members_tell_late_is_not_behind() -> None:
    """Each renews its numbers every five seconds."""
    assert check(raft(lambda at: entries(at - at % 5))).verdict is Verdict.VALID


def test_sane_caught_up_in_time() -> None:
    finding = check(raft(lambda at: None if 20 <= at < 66 else 2000 if at < 70 else entries(at)))
    assert (finding.verdict, finding.numbers["caught_up_after_s"]) == (Verdict.VALID, 10)
    assert finding.numbers["entries_behind_max"] == 5900 - 2000


def test_pathological_caught_up_late(message: Messages) -> None:
    finding = check(raft(lambda at: 2000 if 20 <= at < 80 else entries(at)))
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "q1" in finding.summary
    assert "c1" in finding.summary
    assert "+79.000 s" in finding.summary
    assert "19 s" in finding.summary
    assert len(finding.examples) == 1


@pytest.mark.parametrize(("behind_until_s", "verdict"), [(76, Verdict.VALID), (77, Verdict.INVALID)])
def test_a_follower_may_be_behind_as_long_as_the_bound_and_no_longer(behind_until_s: int, verdict: Verdict) -> None:
    assert check(raft(lambda at: 2000 if 20 <= at < behind_until_s else entries(at))).verdict is verdict
    assert check([], *mirrors(behind_until_s), kind="mirrored").verdict is verdict


def test_pathological_one_entry_is_missing_for_good() -> None:
    """At 95 s it lacks the last of the 8500 that were committed at 85 s."""
    finding = check(raft(lambda at: min(entries(at), 8499)))
    assert (finding.verdict, finding.numbers["entries_behind_max"]) == (Verdict.INVALID, 1)


def test_unknown_where_it_is_behind_at_the_end_and_had_more_time() -> None:
    finding = check(raft(lambda at: 2000 if at >= 20 else entries(at)), within_s=60)
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.numbers == {"followers": 3, "caught_up_after_s": None, "entries_behind_max": 6500}


def test_pathological_falls_back_after_it_had_caught_up() -> None:
    assert check(raft(lambda at: 7000 if 83 <= at < 85 else entries(at))).verdict is Verdict.INVALID


def test_pathological_never_catches_up() -> None:
    finding = check(raft(lambda at: 2000 if at >= 20 else entries(at)))
    assert (finding.verdict, finding.numbers["caught_up_after_s"]) == (Verdict.INVALID, None)


def test_unknown_where_the_record_ends_before_the_time_is_over() -> None:
    behind = raft(lambda at: 2000 if at >= 20 else entries(at))
    ends = [[row for row in rows if row["t_us"] < 1_070_000_000] for rows in behind]
    assert check(ends).verdict is Verdict.UNKNOWN


def test_unknown_where_a_member_says_nothing(message: Messages) -> None:
    finding = check(raft(lambda at: entries(at) if at < 20 else None))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "q1" in finding.summary
    assert "c1" in finding.summary
    assert finding.numbers == {"followers": 3, "caught_up_after_s": 0, "entries_behind_max": 0}


def test_unknown_where_no_one_shows_what_is_committed() -> None:
    only_written = [rows for rows in raft() if rows[0]["metric"] == "raft_written_index"]
    assert check(only_written).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("silent", "verdict"), [((), Verdict.INVALID), (("a1",), Verdict.INVALID), (("a1", "b1"), Verdict.UNKNOWN)]
)
def test_what_was_committed_is_known_while_most_members_say_it(silent: tuple[str, ...], verdict: Verdict) -> None:
    """c1 stays behind what a1 and b1 commit after 50 s, and has committed all that it has."""
    behind = raft(lambda at: min(entries(at), 5000))
    heard = [
        [
            row
            for row in rows
            if row["node"] not in silent or row["metric"] != "raft_commit_index" or row["t_us"] < us(45)
        ]
        for rows in behind
    ]
    assert check(heard).verdict is verdict


def test_unknown_where_a_member_falls_silent_before_the_end() -> None:
    """It told something in the last 15 s before the end, or ten seconds after the healing if that is later."""
    assert check(until(80)).verdict is Verdict.UNKNOWN
    assert check(until(81)).verdict is Verdict.VALID
    assert check(until(81), event(99, "note", detail="")).verdict is Verdict.VALID
    assert check(until(90), healed_s=80).verdict is Verdict.UNKNOWN
    assert check(until(91), healed_s=80).verdict is Verdict.VALID


def test_without_an_end_the_last_event_is_the_end_of_the_record() -> None:
    """It is at 94.5 s."""
    assert undisturbed(until(81), "end").verdict is Verdict.VALID
    assert undisturbed(until(80), "end").verdict is Verdict.UNKNOWN


def mirrors(behind_until_s: float) -> list[Any]:
    return [event(at, "sample", queues={"q1": {"behind": int(at < behind_until_s)}}) for at in range(95)]


def test_a_queue_that_was_deleted_has_another_log() -> None:
    """It was declared again at 60 s, and its log begins at 0."""
    deleted = fault(50, 60, step=1, name="delete_queue", deleted="q1")

    def anew(at_s: float) -> float:
        return 100 * at_s if at_s < 50 else 100 * max(0.0, min(at_s, 90) - 60)

    both = ("raft_written_index", "raft_commit_index")
    finding = check([told(one, node, anew, queue="q1") for one in both for node in THREE], *deleted, within_s=9)
    assert finding.verdict is Verdict.VALID
    assert finding.numbers["entries_behind_max"] == 0


def test_mirrors_by_what_the_leader_says_of_them() -> None:
    assert check([], kind="mirrored").verdict is Verdict.UNKNOWN
    finding = check([], *mirrors(70), kind="mirrored")
    assert (finding.verdict, finding.numbers["caught_up_after_s"]) == (Verdict.VALID, 10)
    assert check([], *mirrors(80), kind="mirrored").verdict is Verdict.INVALID
    assert check([], *mirrors(61), kind="mirrored").numbers["caught_up_after_s"] == 1
    silent = [event(at, "sample", queues={"q1": {}}) for at in range(95)]
    assert check([], *silent, kind="mirrored").numbers["caught_up_after_s"] == 0
    after_the_end = event(95, "sample", queues={"q1": {"behind": 1}})
    assert check([], *mirrors(70), after_the_end, kind="mirrored").verdict is Verdict.VALID


def test_unknown_where_no_one_reported_when_it_was_due() -> None:
    """Behind at 74 s, due at 75 s, and caught up at 90 s, in the next look."""
    hidden = raft(lambda at: 2000 if 20 <= at < 75 else None if at < 90 else entries(at))
    finding = check(hidden)
    assert (finding.verdict, finding.coverage) == (Verdict.UNKNOWN, Coverage(2, 3, "followers"))
    soon = raft(lambda at: 2000 if 20 <= at < 75 else None if at < 77 else entries(at))
    assert check(soon).verdict is Verdict.VALID


def test_unknown_where_a_mirror_was_seen_once_and_then_no_more() -> None:
    once = [e for e in mirrors(0) if e.t_us < us(62)]
    finding = check([], *once, kind="mirrored")
    assert (finding.verdict, finding.coverage) == (Verdict.UNKNOWN, Coverage(0, 1, "followers"))
    assert check([], *mirrors(0), kind="mirrored").verdict is Verdict.VALID


def test_a_mirror_that_is_gone_is_behind() -> None:
    there = [event(at, "sample", queues={"q1": {"behind": 0, "online": 3}}) for at in range(95)]
    assert check([], *there, kind="mirrored").verdict is Verdict.VALID
    gone = [event(at, "sample", queues={"q1": {"behind": 0, "online": 3 if at < 20 else 2}}) for at in range(95)]
    assert check([], *gone, kind="mirrored").verdict is Verdict.INVALID
    back = [event(at, "sample", queues={"q1": {"behind": 0, "online": 2 if 20 <= at < 70 else 3}}) for at in range(95)]
    assert check([], *back, kind="mirrored").numbers["caught_up_after_s"] == 10


def test_unknown_where_a_member_was_silent_until_long_after_it_was_due() -> None:
    """Nothing is known of b1 from 60 to 88 s, and it was due at 75 s."""
    hidden = raft(lambda at: None if 60 <= at < 88 else entries(at))
    assert check(hidden).verdict is Verdict.UNKNOWN
    soon = raft(lambda at: None if 60 <= at < 76 else entries(at))
    assert check(soon).verdict is Verdict.VALID
