"""No cut is proven that was not made, whatever else goes on: generated histories, in a time of their own.

The truth is known here: when each link is silent or slow, and each broker away or busy. Probes are answered by it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis import silence, watch
from rabbitmq_resilience.nemesis.at_work import AtWork
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof
from rabbitmq_resilience.nemesis.silence import CROSSING_S, Silence
from rabbitmq_resilience.nemesis.watch import LOOK_S, SILENT_S, Watch
from rabbitmq_resilience.tools.waiting import WaitTimeout
from tests.messages import Messages

NODES = ("a1", "b1", "c1")
LINKS = [Link(a, b) for a, b in itertools.permutations(NODES, 2)]
ANSWER_S = 0.002
#: How much later a broker answers a direct probe, which comes after the one over the link.
NEXT_S = 0.001

Interval = tuple[float, float]


@dataclass(frozen=True)
class Other:
    """What another step does over a time: cut links, make them slow, or take a node away."""

    spell: Interval
    cut: frozenset[Link] = frozenset()
    slow: frozenset[Link] = frozenset()
    by_ms: int = 0
    node: str = ""


@dataclass
class World:
    """``own`` links are cut from 0 until ``lasts_s`` where the step acts, and not at all where it does not."""

    own: frozenset[Link]
    lasts_s: float
    acts: bool
    others: tuple[Other, ...] = ()
    busy: Mapping[str, Interval] = field(default_factory=dict)
    #: When the server of the proxies gets no processor.
    starved: Interval = (0, 0)
    now_s: float = -1.0
    at_work: AtWork = field(init=False)

    def __post_init__(self) -> None:
        self.at_work = AtWork(clock=lambda: self.now_s)
        numbered = list(enumerate(self.others, 1))
        moments = [(other.spell[0], partial(self._begin, i, other)) for i, other in numbered]
        ends = [(other.spell[1], partial(self.at_work.end, i, healed=True)) for i, other in numbered]
        self._moments: list[tuple[float, Callable[[], None]]] = sorted([*moments, *ends], key=lambda moment: moment[0])
        self.sleep(0)

    def _begin(self, step: int, other: Other) -> None:
        nodes = (other.node,) if other.node else ()
        self.at_work.begin(step, Effect(links_cut=other.cut, links_slow=other.slow, nodes_down=nodes))
        if other.slow:
            self.at_work.slow(step, other.slow, at_most_ms=other.by_ms)

    def sleep(self, for_s: float) -> None:
        ends_s = self.now_s + for_s
        while self._moments and self._moments[0][0] <= ends_s:
            at_s, happens = self._moments.pop(0)
            self.now_s = max(self.now_s, at_s)
            happens()
        self.now_s = ends_s

    def is_away(self, node: str, at_s: float) -> bool:
        return any(other.node == node and _within(at_s, other.spell) for other in self.others)

    def _was_taken(self, node: str, from_s: float, until_s: float) -> bool:
        """The connection of a probe ends with the broker that was to answer."""
        spells = (other.spell for other in self.others if other.node == node)
        return any(start_s <= until_s and from_s < end_s for start_s, end_s in spells)

    def answered_s(self, link: Link, sent_s: float, *, direct: bool) -> float | None:
        """When the answer comes to a probe; None if it never does."""
        there_s = sent_s if direct else self._crossed_s(link, sent_s)
        if self._was_taken(link.target, sent_s, there_s):
            return None
        busy = self.busy.get(link.target, (0, 0))
        answered_s = (busy[1] if _within(there_s, busy) else there_s) + ANSWER_S
        return answered_s + NEXT_S if direct else self._crossed_s(link.back, answered_s)

    def _crossed_s(self, link: Link, at_s: float) -> float:
        at_s = self.starved[1] if _within(at_s, self.starved) else at_s
        cuts = [other.spell for other in self.others if link in other.cut]
        cuts += [(0, self.lasts_s)] if self.acts and link in self.own else []
        for cut in sorted(cuts):
            at_s = cut[1] if _within(at_s, cut) else at_s
        slow_ms = [o.by_ms for o in self.others if link in o.slow and _within(at_s, o.spell)]
        return at_s + sum(slow_ms) / 1000

    def process(self, node: str) -> str:
        return "gone" if self.is_away(node, self.now_s) else "running"

    def server_answers(self) -> bool:
        if _within(self.now_s, self.starved):
            self.sleep(self.starved[1] - self.now_s)
        return True

    @property
    def context(self) -> FaultContext:
        cluster: Any = SimpleNamespace(process=self.process, links=self)
        unused: Any = None
        return FaultContext(cluster, unused, unused, at_work=self.at_work)

    def wait_until(self, look: Callable[[], bool], *, timeout_s: float, what: str, poll_s: float = 0.1) -> None:
        ends_s = self.now_s + timeout_s
        while not look():
            if self.now_s >= ends_s:
                raise WaitTimeout(what, timeout_s, None)
            self.sleep(min(poll_s, ends_s - self.now_s))

    @contextmanager
    def patched(self) -> Iterator[None]:
        clock = SimpleNamespace(monotonic=lambda: self.now_s)
        with ExitStack() as stack:
            for module in (watch, silence):
                stack.enter_context(patch.object(module, "time", clock))
                stack.enter_context(patch.object(module, "wait_until", self.wait_until))
                stack.enter_context(patch.object(module, "let_pass", self.sleep))
                stack.enter_context(patch.object(module, "ProbeRound", partial(Round, self)))
            yield


@dataclass
class Round:
    """In place of ``ProbeRound``, which has sockets."""

    world: World
    links: object
    over: Collection[Link]
    _opened_s: float = 0.0
    _sent_s: float | None = None
    _asked_s: float | None = None

    def __enter__(self) -> Self:
        self._opened_s = self.world.now_s
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        pass

    def send(self) -> None:
        self._sent_s = self.world.now_s

    def ask(self) -> None:
        self._asked_s = self.world.now_s

    @property
    def unreached(self) -> list[Link]:
        return self.away

    @property
    def away(self) -> list[Link]:
        return [link for link in self.over if self.world.is_away(link.target, self._opened_s)]

    @property
    def answered_s(self) -> dict[Link, float]:
        told = {link: self._answered_s(link, direct=False) for link in self.over if link not in self.away}
        return {link: at_s for link, at_s in told.items() if at_s is not None}

    @property
    def all_answered_directly(self) -> bool:
        return all(self._answered_s(link, direct=True) for link in self.over if link not in self.away)

    def answered_directly(self, link: Link, *, before_s: float) -> bool:
        at_s = self._answered_s(link, direct=True)
        return at_s is not None and at_s <= before_s

    def _answered_s(self, link: Link, *, direct: bool) -> float | None:
        sent_s = self._asked_s if direct else self._sent_s
        at_s = None if sent_s is None else self.world.answered_s(link, sent_s, direct=direct)
        return at_s if at_s is not None and at_s <= self.world.now_s else None


def _within(at_s: float, interval: Interval) -> bool:
    return interval[0] <= at_s < interval[1]


def proven(world: World) -> Proof:
    """What the proof of a cut that lasts says, looked at from 0 on."""
    with world.patched():
        world.sleep(-world.now_s)
        return Watch(world.context, world.own).prove(timeout_s=world.lasts_s)


def blip_proven(world: World) -> Proof:
    with world.patched():
        silent = Silence(world.context, world.own)
        world.sleep(-world.now_s)
        silent.begin()
        world.sleep(world.lasts_s - CROSSING_S)
        silent.end()
        world.lasts_s = max(world.lasts_s, world.now_s)  # the end of the cut waits for slow links
        return silent.prove()


def told_alone_s(world: World, link: Link, *, idle: bool) -> float:
    """The slow and obvious way: how long, at a stretch, the link was nobody else's, and its broker there (and idle)."""
    step_s, longest_s, now_s = 0.01, 0.0, 0.0
    for i in range(int(world.lasts_s / step_s)):
        at_s = i * step_s
        hidden = any({link, link.back} & o.cut and _within(at_s, o.spell) for o in world.others)
        away = world.is_away(link.target, at_s) or (idle and _within(at_s, world.busy.get(link.target, (0, 0))))
        now_s = 0.0 if hidden or away else now_s + step_s
        longest_s = max(longest_s, now_s)
    return longest_s


def spells(until_s: float) -> st.SearchStrategy[Interval]:
    moments = st.integers(-5, int(until_s * 10) + 10).map(lambda tenths: tenths / 10)
    return st.tuples(moments, moments).map(lambda ends: (min(ends), max(ends) + 0.1))


def _others(until_s: float) -> st.SearchStrategy[tuple[Other, ...]]:
    links = st.frozensets(st.sampled_from(LINKS), min_size=1)
    any_of = st.one_of(
        st.builds(Other, spells(until_s), cut=links),
        st.builds(Other, spells(until_s), slow=links, by_ms=st.sampled_from([20, 200, 1500])),
        st.builds(Other, spells(until_s), node=st.sampled_from(NODES)),
    )
    return st.lists(any_of, max_size=4).map(tuple)


@st.composite
def worlds(draw: st.DrawFn, *, acts: bool, lasts_s: float) -> World:
    own = draw(st.frozensets(st.sampled_from(LINKS), min_size=1))
    none: Interval = (0, 0)
    busy_spells = {node: draw(spells(lasts_s)) for node in draw(st.sets(st.sampled_from(NODES)))}
    starved = draw(st.one_of(st.just(none), spells(lasts_s)))
    return World(own, lasts_s, acts, draw(_others(lasts_s)), busy_spells, starved)


A_TO_B = frozenset({Link("a1", "b1")})


@given(worlds(acts=False, lasts_s=6.0))
@example(World(A_TO_B, 6.0, False, (Other((-1, 9), cut=frozenset({Link("b1", "a1")})),)))
@example(World(A_TO_B, 6.0, False, (Other((-1, 9), slow=A_TO_B, by_ms=1500),)))
@example(World(A_TO_B, 6.0, False, starved=(0, 1.5)))
@example(World(A_TO_B, 6.0, False, (Other((0, 1.2), slow=A_TO_B, by_ms=1500),), {"b1": (2.6, 4.2)}, starved=(0, 1.1)))
def test_a_cut_that_is_not_made_is_not_proven(world: World) -> None:
    assert not proven(world).proven, world


@given(worlds(acts=True, lasts_s=6.0))
def test_a_cut_that_can_be_shown_is_proven_and_no_other(world: World) -> None:
    """Two looks fit into the time: the first may begin too early."""
    alone_s = {link: told_alone_s(world, link, idle=True) for link in world.own}
    slow_s = sum(other.by_ms for other in world.others) / 500
    proof = proven(world)
    if all(told_s > 2 * (SILENT_S + LOOK_S + slow_s) for told_s in alone_s.values()) and world.starved[1] <= 0:
        assert proof.proven, (world, proof)
    if proof.proven:
        assert max(told_alone_s(world, link, idle=False) for link in world.own) >= SILENT_S - 0.02, (world, proof)


@given(worlds(acts=False, lasts_s=0.5))
@example(World(A_TO_B, 0.5, False, (Other((0.1, 2), cut=A_TO_B),)))
@example(World(A_TO_B, 0.5, False, (Other((-1, 2), slow=A_TO_B, by_ms=200),), busy={"b1": (0.15, 1.0)}))
@example(World(A_TO_B, 0.5, False, (Other((-1, 2), slow=A_TO_B, by_ms=20), Other((0, 1), slow=A_TO_B, by_ms=1500))))
@example(World(A_TO_B, 0.5, False, (Other((-1, 2), slow=A_TO_B, by_ms=1500),)))
@example(World(A_TO_B, 0.5, False, (Other((0, 0.4), slow=A_TO_B, by_ms=200),), starved=(0, 0.3)))
def test_a_blip_that_is_not_made_is_not_proven(world: World) -> None:
    assert not blip_proven(world).proven, world


@pytest.mark.parametrize("acts", [True, False])
def test_both_are_proven_where_nothing_else_goes_on(acts: bool) -> None:
    assert proven(World(frozenset(LINKS), 3.0, acts)).proven == acts
    proof = blip_proven(World(frozenset(LINKS), 0.5, acts))
    assert proof.proven == acts, proof


def test_a_link_whose_broker_is_away_is_spoken_for_by_the_others_but_not_alone(message: Messages) -> None:
    of_b = (Other((-1, 9), node="b1"),)
    both = World(frozenset({*A_TO_B, Link("b1", "a1")}), 4.0, True, of_b)
    proof = proven(both)
    assert "a1->b1" in proof.detail
    message(proof.detail)
    assert not proven(World(A_TO_B, 4.0, True, of_b)).proven


def test_a_broker_that_is_killed_and_back_within_a_blip_does_not_spoil_its_proof() -> None:
    of_b = (Other((0.1, 0.3), node="b1"),)
    proof = blip_proven(World(frozenset({*A_TO_B, Link("b1", "a1")}), 0.5, True, of_b))
    assert proof.proven, proof
    assert "1 link" in proof.detail
    assert "b1->a1" in proof.detail
    assert not blip_proven(World(A_TO_B, 0.5, True, of_b)).proven


def test_a_blip_on_a_link_that_is_slow_all_the_time_is_proven() -> None:
    slow = (Other((-1, 9), slow=A_TO_B, by_ms=20),)
    assert blip_proven(World(A_TO_B, 0.5, True, slow)).proven
    busy = blip_proven(World(A_TO_B, 0.5, True, slow, busy={"b1": (0.1, 2.0)}))
    assert not busy.proven, busy
