"""How much disk is left: literal histories, and generated ones against a slow look at each number."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.disk import Disk
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from tests.invariants.literal import THREE, Row, cluster, event, fault, history, node_states, phases, queues, told, us
from tests.messages import Messages

GB = 1e9
LIMIT = 0.05 * GB


def disk(free: Any = 10 * GB, *, limit: Any = LIMIT) -> list[list[Row]]:
    """All nodes have 10 GB free, but for b1."""
    calm = [told("disk_free", other, 10 * GB) for other in THREE if other != "b1"]
    calm += [told("disk_limit", other, LIMIT) for other in THREE if other != "b1"]
    return [*calm, told("disk_free", "b1", free), told("disk_limit", "b1", limit)]


def check(metrics: list[list[Row]], *events: Any, driver: str = "local", **bounds: Any) -> Finding:
    whole = [cluster(driver=driver), queues("q1"), phases(), node_states()]
    return Disk(**bounds).check(history((), (), [*whole, *events], metrics=metrics))


def test_empty() -> None:
    assert Disk().check(history()).verdict is Verdict.UNKNOWN
    assert check([]).verdict is Verdict.UNKNOWN
    assert check([told("disk_free", "a1", GB)]).verdict is Verdict.UNKNOWN


def test_sane_shows_who_had_least(message: Messages) -> None:
    low = disk(lambda at: 4 * GB if at == 40 else 9 * GB)
    finding = check(low, fault(35, 45, name="kill", down=["c1"]), driver="attached")
    assert (finding.verdict, finding.numbers["free_ratio_min"]) == (Verdict.VALID, 80)
    assert finding.numbers["taken_bytes_max"] == 5 * GB
    message(finding.summary)
    assert "b1" in finding.summary
    assert "+40.000 s" in finding.summary
    assert "step 0" in finding.summary


def test_pathological_the_limit_is_reached(message: Messages) -> None:
    finding = check(disk(lambda at: LIMIT if 50 <= at < 53 else 9 * GB))
    assert (finding.verdict, finding.numbers["violations"]) == (Verdict.INVALID, 1)
    (example,) = finding.examples
    message(example)
    assert "b1" in example
    assert "+50.000 s" in example
    assert check(disk(lambda at: 1.001 * LIMIT if at == 50 else 9 * GB)).verdict is Verdict.VALID
    assert check(disk(lambda at: 1.9 * LIMIT if at == 50 else 9 * GB), free_ratio_min=2).verdict is Verdict.INVALID


@pytest.mark.parametrize(("bound", "verdict"), [(2 * GB, Verdict.VALID), (2 * GB - 1, Verdict.INVALID)])
def test_what_is_taken_has_a_bound_of_its_own(bound: float, verdict: Verdict, message: Messages) -> None:
    finding = check(disk(lambda at: 10 * GB if at < 30 else 8 * GB), driver="attached", taken_bytes_max=int(bound))
    assert finding.verdict is verdict
    if verdict is Verdict.INVALID:
        message(finding.summary)
        assert "b1" in finding.summary
        assert "2000000000" in finding.summary
        assert "+30.000 s" in finding.summary


def stored(b1: Any, *, node: str = "b1") -> list[Any]:
    """What brokers have in their folders, every 5 s; the others have nothing in theirs."""
    idle = dict.fromkeys(set(THREE) - {node}, 0)
    return [
        event(at, "machine", busy=0.1, others=0.0, stored_bytes=idle | {node: int(b1(at))}) for at in range(0, 96, 5)
    ]


@pytest.mark.parametrize(("bound", "verdict"), [(2 * GB, Verdict.VALID), (2 * GB - 1, Verdict.INVALID)])
def test_of_a_folder_of_its_own_a_broker_takes_what_that_grows_by(
    bound: float, verdict: Verdict, message: Messages
) -> None:
    """All share a disk, of which 5 GB go."""
    shared = [rows for node in THREE for rows in (told("disk_free", node, lambda at: 10 * GB - at / 20 * GB),)]
    shared += [told("disk_limit", node, LIMIT) for node in THREE]
    grown = stored(lambda at: GB if at < 30 else 3 * GB)
    finding = check(shared, *grown, taken_bytes_max=int(bound))
    assert (finding.verdict, finding.numbers["taken_bytes_max"]) == (verdict, 2 * GB)
    if verdict is Verdict.INVALID:
        message(finding.summary)
    assert check(shared, *stored(lambda _at: 3 * GB), taken_bytes_max=1).verdict is Verdict.VALID
    assert check(shared, taken_bytes_max=1).verdict is Verdict.UNKNOWN
    unseen = [look for look in stored(lambda _at: 3 * GB) if not us(30) <= look.t_us <= us(50)]
    assert check(shared, *unseen, taken_bytes_max=1).verdict is Verdict.UNKNOWN


def test_what_a_folder_grows_by_in_an_alarm_on_purpose_is_exempt() -> None:
    looks = stored(lambda at: 9000 if 30 <= at < 43 else 1000)
    raised = fault(30, 40, name="alarm", alarm="disk", alarmed=["b1"])
    assert check(disk(), *looks, raised, taken_bytes_max=2000).verdict is Verdict.VALID
    assert check(disk(), *looks, taken_bytes_max=2000).verdict is Verdict.INVALID


def test_an_alarm_on_purpose_is_exempt() -> None:
    short = disk(limit=lambda at: 20 * GB if 30 <= at < 43 else LIMIT)
    raised = fault(30, 40, name="alarm", alarm="disk", alarmed=["b1"])
    assert check(short, raised).verdict is Verdict.VALID
    assert check(short, raised, grace_s=1).verdict is Verdict.INVALID
    assert check(short).verdict is Verdict.INVALID
    other = fault(30, 40, name="alarm", alarm="memory", alarmed=["b1"])
    assert check(short, other).verdict is Verdict.INVALID


def test_unknown_where_an_alarm_excuses_to_the_end(message: Messages) -> None:
    raised = fault(30, 40, name="alarm", alarm="disk", alarmed=["b1"], states=("injecting", "injected", "proven"))
    finding = check(disk(limit=lambda at: 20 * GB if at >= 30 else LIMIT), raised)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "b1" in finding.summary
    assert "+95.000 s" in finding.summary


def test_unknown_where_a_node_that_served_said_nothing(message: Messages) -> None:
    finding = check(disk(lambda at: None if 30 <= at < 50 else 9 * GB))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "b1" in finding.summary


def test_a_limit_of_nothing_is_never_reached() -> None:
    assert check(disk(limit=0.0)).verdict is Verdict.VALID


@given(
    free=st.lists(st.integers(0, 20), min_size=96, max_size=96),
    limits=st.lists(st.integers(0, 4), min_size=96, max_size=96),
    ratio=st.integers(1, 3),
    taken=st.none() | st.integers(1, 20),
    alarm=st.none() | st.tuples(st.integers(0, 90), st.integers(1, 20)),
)
def test_the_same_as_slowly(
    free: list[int], limits: list[int], ratio: int, taken: int | None, alarm: tuple[int, int] | None
) -> None:
    metrics = disk(lambda at: float(free[int(at)]), limit=lambda at: float(limits[int(at)]))
    steps = [fault(alarm[0], sum(alarm), name="alarm", alarm="disk", alarmed=["b1"])] if alarm else []
    judged = [at for at in range(96) if not alarm or not alarm[0] <= at <= sum(alarm) + 10]
    wrong = any(limits[at] and free[at] <= ratio * limits[at] for at in judged)
    wrong |= taken is not None and any(free[judged[0]] - free[at] > taken for at in judged)
    finding = check(metrics, *steps, driver="attached", free_ratio_min=ratio, taken_bytes_max=taken)
    assert (finding.verdict is Verdict.INVALID) == wrong
