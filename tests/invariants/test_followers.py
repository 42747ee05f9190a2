from __future__ import annotations

from collections.abc import Callable
from typing import Any

from invariants.followers import Followers
from invariants.verdict import Finding, Verdict
from tests.invariants.literal import THREE, Row, cluster, event, fault, history, node_states, phases, queues, told

Written = Callable[[float], float | None]


def entries(at_s: float) -> float:
    """The leader's log: 100 entries a second until the drain."""
    return 100 * min(at_s, 90)


def raft(written: Written = entries, *, node: str = "c1") -> list[list[Row]]:
    """All members are where the leader is, but for ``node``."""
    logs = {member: written if member == node else entries for member in THREE}
    metrics = ("raft_written_index", "raft_commit_index")
    return [told(metric, member, index, queue="q1") for metric in metrics for member, index in logs.items()]


def check(metrics: list[list[Row]], *events: Any, kind: str = "quorum") -> Finding:
    healed = fault(20, 60, name="kill", down=["c1"])
    whole = [cluster(), queues("q1", kind=kind), phases(), node_states(), healed]
    return Followers(within_s=15).check(history((), (), [*whole, *events], metrics=metrics))


def test_empty() -> None:
    assert Followers().check(history()).verdict is Verdict.UNKNOWN
    assert check([]).verdict is Verdict.UNKNOWN


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


def test_pathological_caught_up_late() -> None:
    finding = check(raft(lambda at: 2000 if 20 <= at < 80 else entries(at)))
    assert finding.verdict is Verdict.INVALID
    assert finding.summary == "q1 on c1 was behind at +79.000 s, 19 s after the last healing"


def test_pathological_falls_back_after_it_had_caught_up() -> None:
    assert check(raft(lambda at: 7000 if 83 <= at < 85 else entries(at))).verdict is Verdict.INVALID


def test_pathological_never_catches_up() -> None:
    finding = check(raft(lambda at: 2000 if at >= 20 else entries(at)))
    assert (finding.verdict, finding.numbers["caught_up_after_s"]) == (Verdict.INVALID, None)


def test_unknown_where_the_record_ends_before_the_time_is_over() -> None:
    behind = raft(lambda at: 2000 if at >= 20 else entries(at))
    ends = [[row for row in rows if row["t_us"] < 1_070_000_000] for rows in behind]
    assert check(ends).verdict is Verdict.UNKNOWN


def test_unknown_where_a_member_says_nothing() -> None:
    finding = check(raft(lambda at: entries(at) if at < 20 else None))
    assert finding.verdict is Verdict.UNKNOWN
    assert "q1 on c1" in finding.summary


def test_unknown_where_nobody_tells_what_is_committed() -> None:
    only_written = [rows for rows in raft() if rows[0]["metric"] == "raft_written_index"]
    assert check(only_written).verdict is Verdict.UNKNOWN


def test_unknown_where_a_member_falls_silent_before_the_end() -> None:
    assert check(raft(lambda at: entries(at) if at < 75 else None)).verdict is Verdict.UNKNOWN


def mirrors(behind_until_s: float) -> list[Any]:
    return [event(at, "sample", queues={"q1": {"behind": int(at < behind_until_s)}}) for at in range(95)]


def test_mirrors_by_what_the_leader_says_of_them() -> None:
    assert check([], kind="mirrored").verdict is Verdict.UNKNOWN
    finding = check([], *mirrors(70), kind="mirrored")
    assert (finding.verdict, finding.numbers["caught_up_after_s"]) == (Verdict.VALID, 10)
    assert check([], *mirrors(80), kind="mirrored").verdict is Verdict.INVALID
