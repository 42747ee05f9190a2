from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.gaps import UNSEEN_S_MAX
from rabbitmq_resilience.checkers.no_crash import NoCrash
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from tests.invariants.literal import THREE, apart, cluster, event, fault, history, node_states, phases, queues
from tests.messages import Messages


def check(*events: Any, states: Any = None) -> Finding:
    return NoCrash().check(history((), (), [cluster(), queues("q1"), phases(), states or node_states(), *events]))


def gone(node: str, *spells: tuple[float, float]) -> Any:
    return node_states(unlike={node: [(start, end, "down") for start, end in spells]})


def test_empty() -> None:
    assert NoCrash().check(history()).verdict is Verdict.UNKNOWN
    assert NoCrash().check(history((), (), [cluster(), phases()])).verdict is Verdict.UNKNOWN


def test_sane() -> None:
    assert check().verdict is Verdict.VALID
    assert check(fault(20, 40, name="kill", down=["b1"]), states=gone("b1", (20, 44))).verdict is Verdict.VALID
    starved = fault(20, 40, name="limit", starved=["b1"])
    assert check(starved, states=gone("b1", (39, 45))).verdict is Verdict.VALID


def test_sane_what_pauses_keeps_its_process() -> None:
    paused = node_states(unlike={"b1": [(25, 45, "paused")]})
    assert check(fault(20, 40, cut=apart(["b1"], ["a1", "c1"])), states=paused).verdict is Verdict.VALID


def test_pathological_a_broker_that_is_back_before_the_end(message: Messages) -> None:
    finding = check(fault(20, 40, name="kill", down=["a1"]), states=gone("b1", (30, 33)))
    assert (finding.verdict, finding.numbers["crashed"]) == (Verdict.INVALID, "b1")
    message(finding.summary)
    assert "b1" in finding.summary
    assert "+30.000 s" in finding.summary
    assert "step 0" in finding.summary


@pytest.mark.parametrize("spell", [(19, 25), (50, 55)])
def test_pathological_before_its_step_and_after_it_was_back(spell: tuple[float, float]) -> None:
    killed = fault(20, 40, name="kill", down=["b1"])
    assert check(killed, states=gone("b1", spell, (20, 42))).verdict is Verdict.INVALID


def test_pathological_a_cut_takes_no_process_away() -> None:
    assert check(fault(20, 40, cut=apart(["b1"], ["a1", "c1"])), states=gone("b1", (25, 45))).verdict is Verdict.INVALID


@pytest.mark.parametrize("again", [[], [fault(44, 60, step=1, name="kill", down=["b1"])]])
def test_what_ends_while_it_starts_is_named(again: list[Any], message: Messages) -> None:
    """``recovery`` judges that it is not back. What a second step takes away did not end by itself."""
    seen = node_states(unlike={"b1": [(20, 41, "down"), (41, 46, "paused"), (46, 95, "down")]})
    finding = check(fault(20, 40, name="kill", down=["b1"]), *again, states=seen)
    assert (finding.verdict, "b1 ended while starting" in finding.summary) == (Verdict.VALID, not again)
    message(finding.summary)


def test_a_step_that_never_began_excuses_nothing() -> None:
    skipped = fault(20, 40, name="kill", down=["b1"], states=["skipped"])
    assert check(skipped, states=gone("b1", (25, 30))).verdict is Verdict.INVALID


def test_what_ends_with_the_run_is_no_crash() -> None:
    assert check(states=node_states(unlike={"b1": [(95, 99, "down")]}, end_s=99)).verdict is Verdict.VALID


def test_unknown_where_no_one_looked(message: Messages) -> None:
    finding = check(states=[e for e in node_states() if not 30e6 < e.t_us - 1e9 < 45e6])
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "a1" in finding.summary
    assert "+30.000 s" in finding.summary
    assert "+45.000 s" in finding.summary


@dataclass(frozen=True)
class Node:
    """What was done to it and what it did, in seconds."""

    steps: tuple[tuple[int, int, str], ...]
    spells: tuple[tuple[int, int, str], ...]


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    def some(kinds: Sequence[str]) -> tuple[tuple[int, int, str], ...]:
        found = draw(st.lists(st.tuples(st.integers(0, 88), st.integers(1, 20), st.sampled_from(kinds)), max_size=3))
        return tuple((start, min(start + lasts, 89), kind) for start, lasts, kind in found)

    return Node(some(["down", "starved", "cut", "skipped"]), some(["down", "paused", "suspended"]))


def is_excused(mine: Mapping[int, str], now: int, step: tuple[int, int, str]) -> bool:
    """Whether a node may be gone because of a step, by what it was in each second."""
    start, end, kind = step
    up = [at for at, state in mine.items() if at < now and state == "up"]
    if now < start or any(at >= end for at in up):
        return False
    away = [at for at, state in mine.items() if start <= at < min(now, end) and state != "up"]
    return kind == "starved" or now >= end or not any(at > away[0] for at in up if away)


@given(st.tuples(nodes(), nodes(), nodes()), st.sets(st.integers(0, 94)))
def test_second_by_second(three: tuple[Node, Node, Node], unlooked: set[int]) -> None:
    """The same verdict from each second alone: a step began before, and the node was not seen up after it was away."""
    states: dict[int, dict[str, str]] = {at: {} for at in range(95) if at not in unlooked}
    events: list[Any] = []
    for name, node in zip(THREE, three, strict=True):
        for at, seen in states.items():
            seen[name] = next((kind for start, end, kind in node.spells if start <= at < end), "up")
        for start, end, kind in node.steps:
            reached: dict[str, dict[str, Any]] = {
                "down": {"down": [name]},
                "starved": {"starved": [name]},
                "cut": {"cut": apart([name], ["x"])},
                "skipped": {"down": [name], "states": ["skipped"]},
            }
            events.append(fault(start, end, step=len(events), **reached[kind]))
    crashed = set()
    for name, node in zip(THREE, three, strict=True):
        mine = {at: seen[name] for at, seen in states.items()}
        taken = [step for step in node.steps if step[2] in ("down", "starved")]
        for now in (at for at, state in mine.items() if state == "down"):
            if not any(is_excused(mine, now, step) for step in taken):
                crashed.add(name)
    told = [event(at, "nodes", states=row) for at, row in states.items()]
    finding = NoCrash().check(history((), (), [cluster(), queues("q1"), phases(), told, *events]))
    looks = sorted({0, *states, 95})
    blind = any(b - a > UNSEEN_S_MAX for a, b in itertools.pairwise(looks))
    expected = Verdict.INVALID if crashed else Verdict.UNKNOWN if blind or not states else Verdict.VALID
    assert (finding.verdict, set(str(finding.numbers.get("crashed", "")).split())) == (expected, crashed)
